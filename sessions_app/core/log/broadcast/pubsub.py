"""The interface of a pub/sub transport between processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

Deliver = Callable[[str, bytes], None]
"""Receives a topic and a payload. Called from any thread; never waits, never raises."""

Interrupted = Callable[[], None]
"""Called when the transport goes down, and when it is up again with all topics subscribed: in both cases recent messages may
have been lost."""


class PubSub(Protocol):
    """A pub/sub transport. Every method may be called from any thread and returns immediately."""

    def publish(self, topic: str, payload: bytes) -> bool:
        """Publish a payload; False if it was dropped because the transport is down or its buffer is full."""

    def may_have_subscribers(self, topic: str) -> bool:
        """Whether the topic may have subscribers; True if that is not known."""

    def subscribe(self, topic: str) -> Future[bool]:
        """The future is True once all later payloads arrive. It is False if the transport is down: the topic is then subscribed
        before the transport is up again."""

    def unsubscribe(self, topic: str) -> None: ...

    def up(self) -> bool: ...

    def tried(self) -> bool:
        """Whether the first attempt to connect has ended; before that, ``up`` means nothing."""

    def close(self) -> None: ...
