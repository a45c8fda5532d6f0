"""Tables of Markdown as lines of styled text. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agenthost.chat.inline import BOLD, DIM, runs_of
from agenthost.chat.wrapping import Run
from agenthost.client.safe_text import width

_DELIMITERS = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*\|?)?\s*")
_CELL_ENDS = re.compile(r"(?<!\\)\|")
_LEAST_COLUMN = 6
_MOST_COLUMNS = 24


class Table:
    """The rows of one table. The widths of its columns are those of the first rows that are shown."""

    def __init__(self, lines: Sequence[str], *, columns: int, unicode: bool) -> None:
        """``lines``: heading, delimiters and rows."""
        self._bar, self._dash, self._cross = ("│", "─", "┼") if unicode else ("|", "-", "+")
        cells = [_cells(line) for line in (lines[0], *lines[2:])]
        self._count = len(cells[0])
        self._aligned = ["" if ":" not in each else each[0] + each[-1] for each in _cells(lines[1])]
        self._columns = columns
        self._widths = self._fitted([max(1, *(_width(row, column) for row in cells)) for column in range(self._count)])

    @property
    def fits(self) -> bool:
        return bool(self._widths)

    def _fitted(self, widths: list[int]) -> list[int]:
        """The widths, the largest of them reduced until all fit; empty if they cannot."""
        room = self._columns - 3 * (self._count - 1)
        if self._count > _MOST_COLUMNS or room < sum(min(each, _LEAST_COLUMN) for each in widths):
            return []
        while sum(widths) > room:
            widest = widths.index(max(widths))
            others = max((each for each in widths if each < widths[widest]), default=0)
            same = widths.count(widths[widest])
            # All of the widest at once, down to the next smaller one.
            less = max(1, min(widths[widest] - others, -(-(sum(widths) - room) // same)))
            widths = [each - less if each == max(widths) else each for each in widths]
            widths = [max(1, each) for each in widths]
        return widths

    def heading(self, line: str) -> list[list[Run]]:
        rule = f"{self._dash}{self._cross}{self._dash}".join(self._dash * each for each in self._widths)
        return [*self.row(line, BOLD), [Run(rule, DIM)]]

    def row(self, line: str, style: str = "") -> list[list[Run]]:
        """The lines of one row. A cell that is too wide has several."""
        cells = _cells(line)[: self._count]
        cells += [""] * (self._count - len(cells))
        wrapped = [_wrapped(runs_of(cell, style), columns) for cell, columns in zip(cells, self._widths, strict=True)]
        lines: list[list[Run]] = []
        for number in range(max(map(len, wrapped))):
            shown: list[Run] = []
            for column, (of_cell, columns) in enumerate(zip(wrapped, self._widths, strict=True)):
                if column:
                    shown += [Run(" "), Run(self._bar, DIM), Run(" ")]
                shown += self._padded(of_cell[number] if number < len(of_cell) else [], columns, column)
            lines.append(shown)
        return lines

    def _padded(self, runs: list[Run], columns: int, column: int) -> list[Run]:
        room = max(0, columns - sum(width(run.text) for run in runs))
        aligned = self._aligned[column] if column < len(self._aligned) else ""
        before = {"::": room // 2, "-:": room}.get(aligned, 0)
        after = 0 if column == self._count - 1 else room - before
        return [Run(" " * before), *runs, Run(" " * after)]


def records(heading: str, row: str) -> list[list[Run]]:
    """A row of a table that is too wide for the terminal: a line for each cell."""
    names = _cells(heading)
    cells = _cells(row)[: len(names)]
    return [[*runs_of(name, BOLD), Run(": "), *runs_of(cell)] for name, cell in zip(names, cells, strict=False)]


def is_delimiters(heading: str, line: str) -> bool:
    return _DELIMITERS.fullmatch(line.strip()) is not None and len(_cells(line)) == len(_cells(heading))


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip() for cell in _CELL_ENDS.split(inner)]


def _width(row: Sequence[str], column: int) -> int:
    return sum(width(run.text) for run in runs_of(row[column])) if column < len(row) else 0


def _wrapped(runs: Sequence[Run], columns: int) -> list[list[Run]]:
    """The lines of a cell."""
    lines: list[list[Run]] = [[]]
    line_width = 0
    for word in _words(runs):
        needed = sum(width(run.text) for run in word)
        blank = 1 if lines[-1] else 0
        if lines[-1] and line_width + blank + needed > columns:
            lines.append([])
            line_width = blank = 0
        if blank:
            lines[-1].append(Run(" ", word[0].style if lines[-1][-1].style == word[0].style else ""))
        line_width += blank
        for run in word:
            for character in run.text:
                if line_width + width(character) > columns and line_width:
                    lines.append([])
                    line_width = 0
                if lines[-1] and lines[-1][-1].style == run.style:
                    lines[-1][-1] = Run(lines[-1][-1].text + character, run.style)
                else:
                    lines[-1].append(Run(character, run.style))
                line_width += width(character)
    return lines


def _words(runs: Sequence[Run]) -> list[list[Run]]:
    words: list[list[Run]] = [[]]
    for run in runs:
        for number, text in enumerate(run.text.split(" ")):
            if number and words[-1]:
                words.append([])
            if text:
                words[-1].append(Run(text, run.style))
    return [word for word in words if word]
