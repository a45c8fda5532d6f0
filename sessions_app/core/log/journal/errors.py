"""What the journal refuses, by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sessions_app.core.base.lock_timeouts import LockHeld


class JournalError(Exception):
    """Base of what the journal raises for a caller's mistake; none of it is a client's."""


class MissingTail(JournalError):
    """Events for a session (or tenant) whose tail (or counter) does not exist."""

    def __init__(self, sessions: Sequence[int]) -> None:
        self.sessions = tuple(sessions)
        super().__init__(f"no tail or counter for {', '.join(map(str, self.sessions))}")


class StaleFence(JournalError):
    """Events whose fence is below their session's: another run has it."""

    def __init__(self, sessions: Sequence[int]) -> None:
        self.sessions = tuple(sessions)
        super().__init__(f"a newer fence stands in {', '.join(map(str, self.sessions))}")


class CounterLocked(JournalError, LockHeld):
    """Somebody else is appending to these tenants, and the caller did not want to wait."""

    def __init__(self, tenants: Collection[int]) -> None:
        self.tenants = frozenset(tenants)
        super().__init__(f"the counters of {len(self.tenants)} tenants are held")


class NoEra(JournalError):
    """The database has crashed, and somebody is just beginning its new era."""

    def __init__(self) -> None:
        super().__init__("the database has just come back")


class BadUnit(JournalError):
    """The database refuses this unit's data; nothing of it is stored. The cause is the database's error."""


class WriterClosed(JournalError):
    """The writer closed before this unit was stored."""
