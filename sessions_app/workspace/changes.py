"""Changes of files that wait to be reported, at most so many: later ones of a file are merged with earlier ones. Pure."""

from __future__ import annotations

from typing import Literal

Kind = Literal["added", "updated", "deleted"]
Names = tuple[bytes, ...]
"""A path from the root of a watch; () is the root."""

MOST_CHANGES = 500
MOST_BYTES = 128 * 1024

_MERGED: dict[tuple[Kind, Kind], Kind | None] = {
    ("added", "updated"): "added",
    ("added", "deleted"): None,
    ("updated", "added"): "updated",
    ("deleted", "added"): "updated",
}


class Changes:
    """``lost``: there were more than fit, or some were not seen; then no single one is kept."""

    def __init__(self) -> None:
        self._kinds: dict[Names, Kind] = {}
        self._bytes = 0
        self.lost = False

    def __bool__(self) -> bool:
        return self.lost or bool(self._kinds)

    def add(self, path: Names, kind: Kind) -> None:
        if self.lost:
            return
        before = self._kinds.get(path)
        if before is None:
            self._bytes += 64 + sum(map(len, path))
            if len(self._kinds) >= MOST_CHANGES or self._bytes > MOST_BYTES:
                self.lose()
                return
            self._kinds[path] = kind
            return
        merged = _MERGED.get((before, kind), kind)
        if merged is None:
            del self._kinds[path]
            self._bytes -= 64 + sum(map(len, path))
        else:
            self._kinds[path] = merged

    def lose(self) -> None:
        self.take()
        self.lost = True

    def take(self) -> tuple[dict[Names, Kind], bool]:
        """All changes, in order, and whether some were lost; nothing waits afterwards."""
        taken = self._kinds, self.lost
        self._kinds, self._bytes, self.lost = {}, 0, False
        return taken
