"""Reads the output of a terminal: its text, and what shell integration and programs report in it. Pure.

Marks of shell integration (OSC 633 and 133) are taken out of the text. Titles (OSC 0 and 2) and directories (OSC 7) are noticed
and stay in it. All other sequences are text.
"""

from __future__ import annotations

import codecs
import hmac
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

# Of one sequence, in characters, its introducer not counted. A longer one is text.
LONGEST_SEQUENCE = 32_768
LONGEST_LINE = 4096
LONGEST_TITLE = 512
LONGEST_PATH = 4096


@dataclass(frozen=True)
class Data:
    text: str


@dataclass(frozen=True)
class Title:
    title: str


@dataclass(frozen=True)
class Cwd:
    path: str  # an absolute path inside the box


@dataclass(frozen=True)
class CommandsAvailable:
    pass


@dataclass(frozen=True)
class CommandStarted:
    command_id: str
    line: str


@dataclass(frozen=True)
class CommandEnded:
    command_id: str
    exit_code: int | None


Output = Data | Title | Cwd | CommandsAvailable | CommandStarted | CommandEnded

ESC = "\x1b"
_MARKS = ("633", "133")
_NOTICED = ("0", "2", "7")
_NUMBER = re.compile(r"[0-9]{0,4}")
# BEL and ESC \ end a sequence. CAN, SUB and any other character after ESC cancel it.
_END = re.compile(r"[\x07\x18\x1a\x1b]")
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


class ShellOutput:
    """An incremental reader of one terminal's output.

    The split of the stream into chunks has no influence on what is returned, apart from the split of Data. At most
    LONGEST_SEQUENCE characters are held back.
    """

    def __init__(self, nonce: str | None, *, prefix: str = "") -> None:
        """`nonce` is that of the shell; without one no mark is believed. `prefix` begins every command id."""
        self._nonce = nonce
        self._prefix = prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        # Up to here nothing in the held text ends its sequence: a long one is not searched again with every chunk.
        self._searched = 0
        self._available = False
        self._line = ""
        self._commands = 0
        self._open: str | None = None
        self._title: str | None = None
        self._cwd: str | None = None

    def feed(self, data: bytes) -> list[Output]:
        """What `data` adds, in order."""
        return self._read(self._decoder.decode(data))

    def end(self) -> list[Output]:
        """What was held back: an incomplete character or sequence, and the end of an open command, without a code."""
        outputs = self._read(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        number = _NUMBER.match(held, 2)
        if held and not (held.startswith(ESC + "]") and number and number[0] in _MARKS):
            outputs.append(Data(held))
        self._close(outputs, None)
        return outputs

    def _read(self, new: str) -> list[Output]:
        text = self._held + new
        outputs: list[Output] = []
        parts: list[str] = []
        position = 0

        def flush() -> None:
            if text := "".join(parts):
                outputs.append(Data(text))
            parts.clear()

        while True:
            start = text.find(ESC, position)
            if start < 0:
                parts.append(text[position:])
                position = len(text)
                break
            parts.append(text[position:start])
            position = start
            if start + 1 == len(text):
                break
            if text[start + 1] != "]":
                parts.append(ESC)
                position = start + 1
                continue
            number = _NUMBER.match(text, start + 2)
            assert number is not None
            if number.end() == len(text) and len(number[0]) < 4:
                break
            kind = number[0]
            if kind not in _MARKS and kind not in _NOTICED:
                parts.append(text[start : number.end()])
                position = number.end()
                continue
            limit = start + 2 + LONGEST_SEQUENCE
            searched, self._searched = (self._searched if start == 0 else 0), 0
            end = _END.search(text, max(number.end(), searched), limit)
            if end is None:
                if len(text) < limit:
                    self._searched = len(text) if start == 0 else 0
                    break
                # Too long. Without its ESC a mark is never a sequence to the client's terminal either.
                parts.append(text[start + 1 : limit] if kind in _MARKS else text[start:limit])
                position = limit
                continue
            if end[0] == ESC and end.end() == len(text):
                self._searched = end.start() if start == 0 else 0
                break
            payload = text[number.end() : end.start()]
            ended = end[0] == "\x07" or (end[0] == ESC and text[end.end()] == "\\")
            position = end.end() if end[0] == "\x07" else end.start()
            if ended and end[0] == ESC:
                position = end.end() + 1
            elif not ended and end[0] != ESC:
                position = end.end()
            if kind in _NOTICED:
                parts.append(text[start:position])
            if ended and payload.startswith(";"):
                flush()
                if kind == "633":
                    self._mark(payload[1:].split(";"), outputs)
                elif kind == "7":
                    self._directory_uri(payload[1:], outputs)
                elif kind != "133":
                    self._retitled(payload[1:], outputs)
        self._held = text[position:]
        flush()
        return outputs

    def _mark(self, fields: list[str], outputs: list[Output]) -> None:
        if self._nonce is None or not hmac.compare_digest(fields[-1].encode(), self._nonce.encode()):
            return
        kind, values = fields[0], fields[1:-1]
        if not self._available:
            self._available = True
            outputs.append(CommandsAvailable())
        if kind == "E" and values:
            self._line = _unescaped(values[0])[:LONGEST_LINE]
        elif kind == "C":
            self._close(outputs, None)
            self._commands += 1
            self._open = f"{self._prefix}{self._commands}"
            outputs.append(CommandStarted(self._open, self._line))
            self._line = ""
        elif kind == "D":
            code = values[0] if values else ""
            self._close(outputs, int(code) if code.isascii() and code.isdigit() and len(code) <= 3 else None)
        elif kind == "P" and values and values[0].startswith("Cwd="):
            self._moved(_unescaped(values[0][4:]), outputs)

    def _close(self, outputs: list[Output], code: int | None) -> None:
        if self._open is not None:
            outputs.append(CommandEnded(self._open, code))
            self._open = None

    def _retitled(self, title: str, outputs: list[Output]) -> None:
        title = _CONTROLS.sub("", title)[:LONGEST_TITLE]
        if title != self._title:
            self._title = title
            outputs.append(Title(title))

    def _directory_uri(self, uri: str, outputs: list[Output]) -> None:
        if uri.startswith("file://"):
            _host, slash, path = uri[7:].partition("/")
            self._moved(unquote_to_bytes(slash + path).decode("utf-8", "replace"), outputs)

    def _moved(self, path: str, outputs: list[Output]) -> None:
        if path.startswith("/") and len(path) <= LONGEST_PATH and not _CONTROLS.search(path) and path != self._cwd:
            self._cwd = path
            outputs.append(Cwd(path))
