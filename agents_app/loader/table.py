"""Reader of one table of an agents file: returns typed values, records faults."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from agents_app.errors import FileFault

T = TypeVar("T")
W = TypeVar("W", bound=str)

MAX_NAME = 200
TOP = "file"
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_line(text: str) -> bool:
    """Whether a text is a name: not blank, one line, not too long."""
    return bool(text.strip()) and not CONTROL.search(text) and len(text) <= MAX_NAME


def unknown(key: str, known: Collection[str]) -> str:
    """The reason of a fault for an unknown key, with the key that was probably meant."""
    meant = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.7)
    return f"unknown key; did you mean {meant[0]}?" if meant else "unknown key"


class Table:
    """Reads one table: returns typed values, records faults, and reports keys that were never read.

    An invalid value is a fault and counts as missing.
    """

    def __init__(self, values: Mapping[str, Any], place: str, owner: str, faults: list[FileFault]) -> None:
        self._values, self._place, self._owner, self._faults = values, place, owner, faults
        self._asked: set[str] = set()

    def fault(self, key: str, reason: str) -> None:
        table = f"{self._place} ({self._owner})" if self._owner else self._place
        self._faults.append(FileFault(table, key, reason))

    def has(self, key: str) -> bool:
        return key in self._values

    def is_list(self, key: str) -> bool:
        return isinstance(self._values.get(key), list)

    def names(self) -> tuple[str, ...]:
        """All keys of a table whose keys are names."""
        return tuple(self._values)

    def ask(self, key: str) -> None:
        """The value of a key that the caller checks."""
        self._asked.add(key)

    def refuse_unknown(self) -> None:
        for key in self._values:
            if key not in self._asked:
                self.fault(key, unknown(key, self._asked))

    def text(self, key: str, *, required: bool = False) -> str | None:
        value = self._typed(key, str, "a string", required=required)
        if value is not None and "\x00" in value:
            self.fault(key, "must not contain U+0000")
            return None
        return value

    def line(self, key: str, *, required: bool = False) -> str | None:
        """A text that is a name: not blank, one line, not too long."""
        value = self.text(key, required=required)
        if value is None:
            return None
        if not is_line(value):
            self.fault(key, f"must be one line of 1 to {MAX_NAME} characters")
            return None
        return value

    def flag(self, key: str, default: bool, wanted: str = "true or false") -> bool:
        value = self._typed(key, bool, wanted)
        return default if value is None else value

    def whole(self, key: str, default: int, least: int = 1) -> int:
        value = self._typed(key, int, "a whole number")
        if value is None:
            return default
        if value < least:
            self.fault(key, f"must be at least {least}")
            return default
        return value

    def seconds(self, key: str) -> float | None:
        value = self._typed(key, (int, float), "a number of seconds")
        if value is None:
            return None
        if not 0 < value < math.inf:
            self.fault(key, "must be more than 0 seconds")
            return None
        return float(value)

    def amount(self, key: str, *, required: bool = False) -> float | None:
        value = self._typed(key, (int, float), "a number", required=required)
        if value is None:
            return None
        if not 0 <= value < math.inf:
            self.fault(key, "must be 0 or more")
            return None
        return float(value)

    def word(self, key: str, allowed: Sequence[W], *, required: bool = False) -> W | None:
        value = self._typed(key, str, "a string", required=required)
        if value is None or value in allowed:
            return cast("W | None", value)
        self.fault(key, f"must be one of {', '.join(allowed)}")
        return None

    def words(self, key: str, allowed: Sequence[W], default: tuple[W, ...]) -> tuple[W, ...]:
        values = self._typed(key, list, "a list")
        if values is None:
            return default
        wrong = [value for value in values if value not in allowed]
        if wrong:
            self.fault(key, f"may hold only {', '.join(allowed)}")
        elif len(set(values)) != len(values):
            self.fault(key, "holds a value twice")
        return tuple(value for value in values if value in allowed)

    def texts(self, key: str) -> tuple[str, ...] | None:
        values = self._typed(key, list, "a list of strings")
        if values is None:
            return None
        if not all(isinstance(value, str) and "\x00" not in value for value in values):
            self.fault(key, "must be a list of strings")
            return None
        return tuple(values)

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self._typed(key, dict, "a table")
        return {} if value is None else value

    def table(self, key: str) -> Table:
        return Table(self.mapping(key), f"{self._place}.{key}", self._owner, self._faults)

    def beside(self, values: Mapping[str, Any], place: str) -> Table:
        """A reader of values from elsewhere, whose faults are recorded with this table's."""
        return Table(values, place, self._owner, self._faults)

    def tables(self, key: str, *, owner: str = "") -> Iterator[Table]:
        values = self._typed(key, list, f"a list of tables ([[{key}]])")
        prefix = key if self._place == TOP else f"{self._place}.{key}"
        for number, value in enumerate(values or ()):
            table = Table(value if isinstance(value, dict) else {}, f"{prefix}[{number}]", owner or self._owner, self._faults)
            if isinstance(value, dict):
                yield table
            else:
                table.fault("", "must be a table")

    def named(self, owner: str) -> None:
        """Let later faults name the agent too."""
        self._owner = owner

    def _typed(self, key: str, kind: type[T] | tuple[type[T], ...], wanted: str, *, required: bool = False) -> T | None:
        self._asked.add(key)
        if key not in self._values:
            if required:
                self.fault(key, "is required")
            return None
        value = self._values[key]
        # bool is an int in Python, not in TOML.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fault(key, f"must be {wanted}")
            return None
        return value
