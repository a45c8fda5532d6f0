"""The operator's rules of access to the files of workspaces: which paths agents and clients may read, write and run in. Pure.

Of the rules that apply, the first one that matches a path decides. What no rule matches is allowed; only programs, which
rules of paths cannot restrict, are more limited as soon as a rule restricts reading or writing.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

Operation = Literal["read", "write", "run"]
Decision = Literal["allow", "ask", "deny"]
Subject = Literal["agent", "client"]
Path = tuple[str, ...]
"""The names of a path from the root of its workspace; () is the root."""

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
DECISIONS: tuple[Decision, ...] = get_args(Decision)
SUBJECTS: tuple[Subject, ...] = get_args(Subject)

MOST_RULES = 100
MOST_PATTERNS = 100
"""Of one rule."""
MOST_CHARACTERS = 1_000
_MOST_NAMES = 64


@dataclass(frozen=True, slots=True)
class AccessRule:
    """``paths``: patterns. ``applies_to``: whose access it decides."""

    paths: tuple[str, ...]
    decision: Decision
    operations: tuple[Operation, ...] = ("read", "write")
    applies_to: tuple[Subject, ...] = ("agent",)

    def matches(self, path: Path) -> bool:
        """Whether a pattern names the path, or a directory above it.

        A rule that restricts matches regardless of letter case and of the form of composed characters: some file systems
        have one file for all of these spellings. A rule that allows matches exactly.
        """
        exact = self.decision == "allow"
        names = path if exact else tuple(_folded(name) for name in path)
        return any(_names(_compiled(pattern, exact), names) for pattern in self.paths)


class Policy:
    """The rules for one subject."""

    def __init__(self, rules: Iterable[AccessRule], subject: Subject) -> None:
        self._subject = subject
        self._rules = tuple(rule for rule in rules if subject in rule.applies_to)

    @property
    def restricts(self) -> bool:
        """Whether anything is not allowed."""
        return any(rule.decision != "allow" for rule in self._rules)

    def decide(self, operation: Operation, path: Path) -> Decision:
        for rule in self._rules:
            if operation in rule.operations and rule.matches(path):
                return rule.decision
        return self._default(operation)

    def _default(self, operation: Operation) -> Decision:
        """A program can read and write all files of its workspace, so it is not free where a rule restricts files."""
        if operation != "run" or not any(rule.decision != "allow" and set(rule.operations) - {"run"} for rule in self._rules):
            return "allow"
        return "ask" if self._subject == "agent" else "deny"


def strictest(decisions: Iterable[Decision]) -> Decision:
    return max(decisions, key=DECISIONS.index, default="allow")


def fault(pattern: str) -> str | None:
    """Why this text is no pattern."""
    if not pattern.strip("/ ") or len(pattern) > MOST_CHARACTERS:
        return f"a pattern has 1 to {MOST_CHARACTERS:,} characters and names something: ** names everything"
    names = _parts(pattern)
    if not names or len(names) > _MOST_NAMES:
        return f"a pattern has 1 to {_MOST_NAMES} names"
    if ".." in names:
        return "a pattern has no .. in it: it begins at the root of the workspace"
    if pattern.startswith("file:"):
        return "a pattern is a path in the workspace, such as /secrets/** or *.pem, not a URI"
    if "{" in pattern or "}" in pattern:
        return "braces have no meaning here: write one pattern for each alternative"
    return None


def _parts(pattern: str) -> list[str]:
    return [name for name in pattern.split("/") if name not in ("", ".")]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


_Part = re.Pattern[str] | None
"""The expression of one name; None for ``**``."""


@lru_cache(maxsize=2048)
def _compiled(pattern: str, exact: bool) -> tuple[_Part, ...]:
    parts = _parts(pattern)
    found: list[_Part] = []
    if len(parts) == 1 and not pattern.startswith("/"):
        # A name without a directory is found at any depth.
        found.append(None)
    for part in parts:
        text = part if exact else _folded(part)
        # `fnmatch` makes expressions that do not go back over what they matched.
        found.append(None if part == "**" else re.compile(fnmatch.translate(text)))
    return tuple(found)


def _names(pattern: Sequence[_Part], path: Path) -> bool:
    """Whether the pattern matches the path, or its first names."""
    end = len(pattern)
    reached = _skipping(pattern, {0})
    for name in path:
        if end in reached:
            return True
        following: set[int] = set()
        for position in reached:
            part = pattern[position]
            if part is None:
                following.add(position)
            elif part.match(name):
                following.add(position + 1)
        if not following:
            return False
        reached = _skipping(pattern, following)
    return end in reached


def _skipping(pattern: Sequence[_Part], positions: set[int]) -> set[int]:
    """``**`` matches no name as well."""
    found = set(positions)
    for position in range(len(pattern)):
        if position in found and pattern[position] is None:
            found.add(position + 1)
    return found
