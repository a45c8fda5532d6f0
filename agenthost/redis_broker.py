"""A broker in Redis: kombu's transport, with channels that keep their client.

The stock one makes a client for each command, and a wake-up is one command: a quarter of what publishing it takes.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis


class Channel(redis.Channel):
    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]  # kombu's types leave it out
        # After a lost connection the channel begins a new pool; a client holds on to the one it was made with.
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()  # type: ignore[misc]  # as above
        return self._kept


class Transport(redis.Transport):
    Channel = Channel


TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))
