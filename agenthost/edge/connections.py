"""Limits on open connections, in total and per client address."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from agenthost.edge.addresses import Slots
from sessions_app.core.base.client_networks import group_of

RESERVE = 32
"""Connections above the limit that get a 503 response; further ones are dropped without a response."""

_REPORT_SECONDS = 60.0


class Admission(Enum):
    ADMITTED = auto()
    ADDRESS_IS_FULL = auto()
    SERVER_IS_FULL = auto()
    DROPPED = auto()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server process. Times are in seconds."""

    connections: int = 4096
    per_address: int = 256
    head_bytes: int = 32768
    head_seconds: float = 10.0
    send_seconds: float = 60.0


@dataclass(slots=True)
class Connections:
    """Counts open connections. Used in one event loop, not thread-safe."""

    limits: Limits
    open: int = 0
    ending: bool = False
    """The server stops: a connection that it still accepts has one request."""
    _addresses: Slots = field(init=False)
    _reported: float | None = None

    def __post_init__(self) -> None:
        self._addresses = Slots(lambda: self.limits.per_address)

    def enter(self, host: str | None) -> tuple[Admission, Slot]:
        """Count a new connection. ``host`` None: count it for no address (a proxy, a Unix socket).

        Every slot must be released, also that of a refused connection, which stays open until its client has read the response.
        """
        self.open += 1
        if self.open > self.limits.connections + RESERVE:
            return Admission.DROPPED, Slot(self, None)
        if self.open > self.limits.connections:
            return Admission.SERVER_IS_FULL, Slot(self, None)
        if host is None:
            return Admission.ADMITTED, Slot(self, None)
        name = group_of(host)
        if not self._addresses.take(name):
            return Admission.ADDRESS_IS_FULL, Slot(self, None)
        return Admission.ADMITTED, Slot(self, name)

    def reports(self, now: float) -> bool:
        """Whether to log a full address: at most once a minute, however many connections are refused."""
        if self._reported is not None and now - self._reported < _REPORT_SECONDS:
            return False
        self._reported = now
        return True


@dataclass(slots=True)
class Slot:
    """The slot of one connection. Releasing it twice has no effect."""

    _connections: Connections
    _name: str | None
    _released: bool = False

    def release(self) -> None:
        if self._released:
            return
        self._released = True
        self._connections.open -= 1
        if self._name is not None:
            self._connections._addresses.give_back(self._name)
