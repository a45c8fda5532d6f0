"""Lines of tables and keys in an agents file, for messages: the TOML parser does not keep them. Pure.

Only headers and keys at the start of a line are known, which is how people write them.
"""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*[.=]")
_LONG = re.compile(r'"""|\'\'\'')


class Lines:
    def __init__(self, text: str) -> None:
        self._found: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        place, until = "", ""
        for number, line in enumerate(text.splitlines(), 1):
            if not until:
                header, key = _HEADER.fullmatch(line), _KEY.match(line)
                if header is not None:
                    place = self._enter(re.split(r"\s*\.\s*", header[2]), is_list=header[1] == "[[")
                    self._found.setdefault((place, ""), number)
                elif key is not None:
                    self._found.setdefault((place, key[1].strip("\"'")), number)
            until = _open_string(line, until)

    def of(self, place: str, key: str) -> int | None:
        """The line of a key; of its table, if the key is missing; None if neither is known. ``place``: ``agents[0].tools[1]``."""
        found = self._found.get((place, key))
        if found is None and "." in place:
            # A table may be written inline, as a value of the one around it.
            outer, _, name = place.rpartition(".")
            found = self._found.get((outer, name.partition("[")[0])) if (place, "") not in self._found else None
        return self._found.get((place, "")) if found is None else found

    def _enter(self, names: list[str], *, is_list: bool) -> str:
        """The place of the table that begins here."""
        place = ""
        for depth, name in enumerate(names):
            place = f"{place}.{name}" if place else name
            if depth == len(names) - 1 and is_list:
                self._counts[place] = self._counts.get(place, -1) + 1
            if place in self._counts:
                place = f"{place}[{self._counts[place]}]"
        return place


def _open_string(line: str, until: str) -> str:
    """The mark that ends the multi-line string that is open behind this line; empty if there is none."""
    for mark in _LONG.findall(line):
        if not until:
            until = mark
        elif mark == until:
            until = ""
    return until
