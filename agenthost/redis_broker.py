"""Redis broker: kombu's transport, with channels that reuse their client, and whose messages may be taken elsewhere.

The stock transport creates a client for each command, which took a quarter of the time of publishing a message. A worker takes
its messages in its own loop (redis_receiver.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis


class Channel(redis.Channel):
    _reused_client: Any = None
    taken_elsewhere = False
    """True: this channel waits for no messages in its queues. They are given to the transport's ``_deliver``."""

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]  # missing in kombu's types
        # After a lost connection the channel makes a new pool, but a client keeps the pool that it was made with.
        if self._reused_client is None or self._reused_client.connection_pool is not self.pool:
            self._reused_client = super()._create_client()  # type: ignore[misc]  # as above
        return self._reused_client

    def keys(self) -> Sequence[str]:
        """The keys in Redis of the queues that are consumed now, the urgent ones first."""
        key = self._q_for_pri  # type: ignore[attr-defined]  # missing in kombu's types
        return [self.global_keyprefix + key(queue, priority) for priority in self.priority_steps for queue in self.active_queues]

    def queue_of(self, key: str) -> str:
        return key.removeprefix(self.global_keyprefix).rsplit(self.sep, 1)[0]


class _Poller(redis.MultiChannelPoller):
    def _register_BRPOP(self, channel: Channel) -> None:  # noqa: N802  # kombu's name
        if not channel.taken_elsewhere:
            super()._register_BRPOP(channel)  # type: ignore[misc]  # as above


class Transport(redis.Transport):
    Channel = Channel

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cycle = _Poller()


TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))
