"""Compares two versions of a text: counts of lines, and a unified diff, both bounded in time and size. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from agents_app.tools.files.text import cut, lines_of, printable

CONTEXT = 3
MOST_COMPARED = 1_000
"""Lines of the changed part that are compared one by one. A longer part counts as replaced as a whole."""
MOST_SHOWN = 16 * 1024
"""Characters of a unified diff."""

Opcode = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Counts:
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Groups of changes with the lines around them."""

    before: Sequence[str]
    after: Sequence[str]
    groups: Sequence[Sequence[Opcode]]
    counts: Counts


def compare(before: str, after: str) -> Difference:
    old, new = lines_of(before), lines_of(after)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    changes = [
        (tag, i1 + start, i2 + start, j1 + start, j2 + start)
        for tag, i1, i2, j1, j2 in _opcodes(middle_old, middle_new)
        if tag != "equal"
    ]
    counts = Counts(sum(j2 - j1 for *_, j1, j2 in changes), sum(i2 - i1 for _, i1, i2, *_ in changes))
    return Difference(old, new, list(_grouped(changes)), counts)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of equal lines at the start."""
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    if not old and not new:
        return []
    if max(len(old), len(new)) > MOST_COMPARED:
        return [("replace", 0, len(old), 0, len(new))]
    return SequenceMatcher(None, old, new).get_opcodes()  # type: ignore[return-value]  # the tags are literals there


def _grouped(changes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Changes that share lines of context, together."""
    group: list[Opcode] = []
    for change in changes:
        if group and change[1] - group[-1][2] > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def unified(difference: Difference, name: str, *, most: int = MOST_SHOWN) -> str:
    """A unified diff; its end is left out, with a note, if it is longer than ``most`` characters. Empty if nothing differs."""
    if not difference.groups:
        return ""
    pieces: list[str] = [f"--- {name}", f"+++ {name}"]
    size = sum(map(len, pieces))
    left = difference.counts.added + difference.counts.removed
    for group in difference.groups:
        for line in _hunk(difference, group):
            size += len(line) + 1
            if size > most:
                pieces.append(f"[the diff is longer: {left:,} more changed lines are not shown]")
                return "\n".join(pieces)
            pieces.append(line)
            left -= line[:1] in ("+", "-")
    return "\n".join(pieces)


def _hunk(difference: Difference, group: Sequence[Opcode]) -> Iterator[str]:
    old, new = difference.before, difference.after
    lead = min(CONTEXT, group[0][1])
    tail = min(CONTEXT, len(old) - group[-1][2])
    first_old, first_new = group[0][1] - lead, group[0][3] - lead
    last_old, last_new = group[-1][2] + tail, group[-1][4] + tail
    yield f"@@ -{_span(first_old, last_old)} +{_span(first_new, last_new)} @@"
    at = first_old
    for _, i1, i2, j1, j2 in group:
        yield from _lines(" ", old[at:i1])
        yield from _lines("-", old[i1:i2])
        yield from _lines("+", new[j1:j2])
        at = i2
    yield from _lines(" ", old[at:last_old])


def _span(start: int, end: int) -> str:
    length = end - start
    return str(start + 1) if length == 1 else f"{start + 1 if length else start},{length}"


def _lines(sign: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield sign + cut(printable(line.removesuffix("\n").removesuffix("\r")))
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
