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

    ``credit``: what the operation frees at its end. It is used first, so that a file can be replaced when the quota is full.
    At the end of the block the unused rest is given back; if the block failed, everything that was taken.
    """

    def __init__(self, ledger: Ledger, *, credit: tuple[int, int] = (0, 0)) -> None:
        self._ledger = ledger
        self._credit = credit
        self._taken = (0, 0)
        self._used = (0, 0)

    def use(self, size: int, files: int = 0) -> None:
        """Reserve ``size`` bytes and ``files`` files for what is written next. Raises ``NoRoom``."""
        used = (self._used[0] + size, self._used[1] + files)
        missing = [max(0, used[kind] - self._taken[kind] - self._credit[kind]) for kind in (0, 1)]
        if any(missing):
            self._take(missing[0], missing[1])
        self._used = used

    def _take(self, size: int, files: int) -> None:
        # A single write asks for what it needs; only those that follow ask for more.
        if any(self._taken):
            ahead = (max(size, _STEP_BYTES) if size else 0, max(files, _STEP_FILES) if files else 0)
            try:
                self._ledger.take(*ahead)
            except NoRoom:
                pass
            else:
                self._taken = (self._taken[0] + ahead[0], self._taken[1] + ahead[1])
                return
        self._ledger.take(size, files)
        self._taken = (self._taken[0] + size, self._taken[1] + files)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        done = kind is None
        size, files = (self._taken[of] + (self._credit[of] - self._used[of] if done else 0) for of in (0, 1))
        if size or files:
            self._ledger.give(size, files)
