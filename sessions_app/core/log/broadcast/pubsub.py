"""What brings payloads to the processes of a deployment: the seam between the layer and its carriers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

Deliver = Callable[[str, bytes], None]
"""Takes a topic and a payload. Called from any thread, never waits, never raises."""

Interrupted = Callable[[], None]
"""Told when the carrier goes down, and again when it is back with every topic subscribed: in both
cases what was published lately may not have arrived."""


class PubSub(Protocol):
    """Every method may be called from any thread and returns at once."""

    def publish(self, topic: str, payload: bytes) -> bool:
        """Hand it over; False if it was dropped because the carrier is down or clogged."""

    def may_have_subscribers(self, topic: str) -> bool:
        """Whether a payload for this topic could reach anybody; a carrier that cannot know says True."""

    def subscribe(self, topic: str) -> Future[bool]:
        """Done once whatever is published from now on arrives: True. False if the carrier is down:
        then the topic is subscribed before the carrier says that it is back."""

    def unsubscribe(self, topic: str) -> None: ...

    def up(self) -> bool: ...

    def tried(self) -> bool:
        """Whether the first attempt to connect has ended; before that ``up`` is no news."""

    def close(self) -> None: ...
