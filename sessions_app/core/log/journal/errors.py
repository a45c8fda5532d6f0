"""The journal's errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sessions_app.core.base.lock_timeouts import LockHeld


class JournalError(Exception):
    """Base class of the journal's errors. None of them is caused by a client's request."""


class MissingTail(JournalError):
    """The session has no tail, or the tenant no counter."""

    def __init__(self, sessions: Sequence[int]) -> None:
        self.sessions = tuple(sessions)
        super().__init__(f"no tail or counter for {', '.join(map(str, self.sessions))}")


class StaleFence(JournalError):
    """The events' fence is lower than their session's: another run has taken over."""

    def __init__(self, sessions: Sequence[int]) -> None:
        self.sessions = tuple(sessions)
        super().__init__(f"a newer run has taken over the sessions {', '.join(map(str, self.sessions))}")


class CounterLocked(JournalError, LockHeld):
    """Another transaction is appending for these tenants, and the caller does not wait for locks."""

    def __init__(self, tenants: Collection[int]) -> None:
        self.tenants = frozenset(tenants)
        super().__init__(f"the counters of {len(self.tenants)} tenants are locked")


class NoEra(JournalError):
    """The database has crashed, and another transaction is starting its new era."""

    def __init__(self) -> None:
        super().__init__("the database has just restarted after a crash")


class BadUnit(JournalError):
    """The database refuses this unit's data; nothing of it is stored."""


class WriterClosed(JournalError):
    """The writer closed before this unit was stored."""
