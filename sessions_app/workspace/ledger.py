"""Quotas: what a write reserves before it takes room, and gives back if it fails."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from sessions_app.workspace.errors import NoRoom

_STEP_BYTES = 4 * 1024 * 1024
_STEP_FILES = 64


class Ledger(Protocol):
    """Counts a workspace's bytes and files. Both methods are called from any thread."""

    def take(self, size: int, files: int) -> None:
        """Reserve; raises ``NoRoom``, and nothing is reserved, if the quota would be exceeded."""

    def give(self, size: int, files: int) -> None:
        """Give back. The sums can be a little wrong when sandboxes write at the same time, so the least sum is 0."""


class Unlimited:
    """A ledger without a quota."""

    def take(self, size: int, files: int) -> None:
        pass

    def give(self, size: int, files: int) -> None:
        pass


class Reservation:
    """What one operation reserves. It asks the ledger for more than it needs at once, so that it asks seldom.

    At the end of the block the unused rest is given back; everything, if the block failed.
    """

    def __init__(self, ledger: Ledger, *, stepwise: bool = True) -> None:
        self._ledger, self._stepwise = ledger, stepwise
        self._taken = [0, 0]
        self.used = [0, 0]

    def use(self, size: int, files: int) -> None:
        """Reserve ``size`` bytes and ``files`` files for what is written next. Raises ``NoRoom``."""
        more_bytes = max(0, self.used[0] + size - self._taken[0])
        more_files = max(0, self.used[1] + files - self._taken[1])
        if more_bytes or more_files:
            self._take(more_bytes, more_files)
        self.used[0] += size
        self.used[1] += files

    def _take(self, size: int, files: int) -> None:
        if self._stepwise:
            ahead = (max(size, _STEP_BYTES) if size else 0, max(files, _STEP_FILES) if files else 0)
            try:
                self._ledger.take(*ahead)
            except NoRoom:
                pass
            else:
                self._add(*ahead)
                return
        self._ledger.take(size, files)
        self._add(size, files)

    def _add(self, size: int, files: int) -> None:
        self._taken[0] += size
        self._taken[1] += files

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        rest = list(self._taken) if kind is not None else [self._taken[0] - self.used[0], self._taken[1] - self.used[1]]
        if any(rest):
            self._ledger.give(*rest)
