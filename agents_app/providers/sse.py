"""Incremental parser of server-sent events. Pure."""

from __future__ import annotations

MAX_EVENT_BYTES = 32 * 1024 * 1024
_CARRIAGE_RETURN = 13


class EventTooLong(Exception):
    """An event exceeds the size limit."""


class EventSplitter:
    """Takes chunks cut anywhere and returns the complete events, each as the list of its data lines.

    Names, ids, comments and retry times are ignored.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._started = False

    def feed(self, chunk: bytes) -> list[list[bytes]]:
        if not self._started and chunk:
            self._started = True
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        end = chunk.find(b"\n")
        is_one_event = end == len(chunk) - 2 and chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")
        if is_one_event and not self._pieces and not self._lines and chunk[-3] != _CARRIAGE_RETURN and end < MAX_EVENT_BYTES:
            # Most chunks are one event of one line.
            return [[chunk[6:-2]]]
        if end < 0:
            # Not joined until the line ends: joining at each chunk would be quadratic.
            self._pieces.append(chunk)
            self._grow(len(chunk))
            return []
        return self._split(chunk)

    def _split(self, chunk: bytes) -> list[list[bytes]]:
        text = b"".join((*self._pieces, chunk))
        self._pieces.clear()
        lines = text.split(b"\n")
        rest = lines.pop()
        if rest:
            self._pieces.append(rest)
        events: list[list[bytes]] = []
        for line in lines:
            self._line(line, events)
        self._size = len(rest) + sum(map(len, self._lines))
        self._grow(0)
        return events

    def finish(self) -> list[list[bytes]]:
        """The last event, if its empty line is missing: some servers omit it."""
        events: list[list[bytes]] = []
        for line in (b"".join(self._pieces), b""):
            self._line(line, events)
        self._pieces.clear()
        return events

    def _line(self, line: bytes, events: list[list[bytes]]) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if line.startswith(b"data:"):
            self._lines.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif not line and self._lines:
            events.append(self._lines)
            self._lines = []
        elif line.startswith(b"error: {"):
            # Not a field of the format: one server reports its errors so.
            self._lines.append(b'{"error":' + line[7:] + b"}")

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_EVENT_BYTES:
            raise EventTooLong
