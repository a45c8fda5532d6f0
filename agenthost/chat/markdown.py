"""Markdown of an answer as text for a terminal, while it streams. No I/O: text leaves through the wrapper.

Each character is read once and what has been written stays: there is no part of the screen that is drawn again. A line's form
is decided by its beginning (heading, list, quote, code, table), and a line end of the answer is one on the screen, because
models use them for verses and addresses. A table is held until it is complete or long, and then keeps its columns.
"""

from __future__ import annotations

import re

from agenthost.chat.inline import BOLD, CODE, DIM, UNDERLINED, Inline
from agenthost.chat.tables import Table, is_delimiters, records
from agenthost.chat.wrapping import Run, Wrapper, joined
from agenthost.client.safe_text import visible

_READ_AT_ONCE = 4_096
"""Each line is cut off what has been read, which would take quadratic time with a long text."""
_MOST_MARKS = 200
_MOST_LINE = 4_000
_MOST_ROWS = 60
_MOST_INDENT = 16
# The beginning of a line may still become another form: nothing but marks so far.
_UNDECIDED = re.compile(r"(?:[>\-*+_=#~|\s]|\d{1,9}[.)]?|\[[ xX]?\]?)*")
_QUOTE = re.compile(r" {0,3}>[ ]?")
_HEADING = re.compile(r" {0,3}(#{1,6})[ ]+")
_RULE = re.compile(r" {0,3}(?:(?:-[ ]*){3,}|(?:\*[ ]*){3,}|(?:_[ ]*){3,})")
_UNDERLINE = re.compile(r" {0,3}={3,}[ ]*")
_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])( +)(?:\[([ xX])\] )?")
_FENCE = re.compile(r"( *)(`{3,}|~{3,})[ ]*([^`]*)")
_INDENT = re.compile(r" +")


class Markdown:
    """Takes the text of one message in pieces of any size."""

    def __init__(self, wrapper: Wrapper, columns: int, *, unicode: bool) -> None:
        self._wrapper = wrapper
        self.columns = columns
        """The width of the terminal, for rules and tables."""
        self._unicode = unicode
        self._inline = Inline(wrapper.add)
        self._text = ""
        self._is_in_line = False
        """The form of the current line is known; what follows is its text."""
        self._fence = self._fence_indent = ""
        """The marks that opened the code that is being read."""
        self._in_code_line = False
        self._rows: list[str] = []
        """Lines of a table that have not been written."""
        self._table: Table | None = None
        self._table_heading = ""
        self._has_text = self._is_after_blank = False

    def feed(self, text: str) -> None:
        for start in range(0, len(text), _READ_AT_ONCE):
            self._text += visible(text[start : start + _READ_AT_ONCE])
            while self._text and self._step(is_whole=False):
                pass

    def finish(self) -> None:
        """The message is over."""
        while self._text and self._step(is_whole=True):
            pass
        if self._is_in_line:
            self._inline.finish()
            self._is_in_line = False
        self._wrapper.settle()
        self._end_table()
        self._fence, self._in_code_line = "", False

    # --- lines ---

    def _step(self, *, is_whole: bool) -> bool:
        """Read on; False if more text is needed."""
        line, end, rest = self._text.partition("\n")
        if self._fence:
            return self._code(line, end, rest, is_whole=is_whole)
        if self._is_in_line:
            self._inline.feed(line)
            self._text = rest
            if end:
                self._inline.finish()
                self._wrapper.end_line()
                self._is_in_line = False
            return bool(end)
        if not (end or is_whole) and self._is_undecided(line):
            return False
        self._begin(line, end, rest, is_complete=bool(end) or is_whole)
        return True

    def _is_undecided(self, line: str) -> bool:
        begin = line.lstrip()
        if begin.startswith(("|", "```", "~~~")):
            return len(line) <= _MOST_LINE
        if begin in ("`", "``", "~", "~~"):
            return True
        return len(line) <= _MOST_MARKS and _UNDECIDED.fullmatch(line) is not None

    def _begin(self, line: str, end: str, rest: str, *, is_complete: bool) -> None:
        if line.lstrip().startswith("|") and len(line) <= _MOST_LINE and self._table_line(line):
            self._text = rest
            return
        self._end_table()
        if not line.strip():
            self._text = rest
            self._is_after_blank = bool(end)
            return
        if self._is_after_blank and self._has_text:
            self._wrapper.end_line()
        self._is_after_blank, self._has_text = False, True
        fence = _FENCE.fullmatch(line)
        if fence is not None and len(line) <= _MOST_LINE:
            self._fence_indent, self._fence = fence[1], fence[2]
            self._text = rest
            self._rule(fence[3].strip())
            return
        first: list[Run] = []
        hanging = ""
        style = ""
        bar = "│ " if self._unicode else "| "
        while quote := _QUOTE.match(line):
            line = line[quote.end() :]
            hanging += bar
        if hanging:
            first.append(Run(hanging, DIM))
        if len(line) <= _MOST_MARKS and is_complete and (_RULE.fullmatch(line) or _UNDERLINE.fullmatch(line)):
            self._text = rest
            self._rule()
            return
        if heading := _HEADING.match(line):
            line = line[heading.end() :]
            style = joined(BOLD, UNDERLINED) if len(heading[1]) == 1 else BOLD
        elif item := _ITEM.match(line):
            line = line[item.end() :]
            shown = self._bullet(item[2], item[4])
            indent = item[1][:_MOST_INDENT]
            first.append(Run(indent + shown + " "))
            hanging += " " * (len(indent) + len(shown) + 1)
        elif indent_match := _INDENT.match(line):
            line = line[indent_match.end() :]
            first.append(Run(indent_match[0][:_MOST_INDENT]))
            hanging += indent_match[0][:_MOST_INDENT]
        self._inline = Inline(self._wrapper.add, style)
        self._wrapper.begin_line(first, Run(hanging, DIM))
        self._is_in_line = True
        self._text = line + end + rest

    def _bullet(self, mark: str, task: str | None) -> str:
        if task is not None:
            signs = ("☐", "☑") if self._unicode else ("[ ]", "[x]")
            return signs[task != " "]
        if mark in ("-", "*", "+"):
            return "•" if self._unicode else "*"
        return mark

    def _rule(self, title: str = "") -> None:
        dash = "─" if self._unicode else "-"
        text = f"{dash * 2} {title[:60]} " if title else ""
        self._wrapper.unwrapped(Run(text + dash * (min(self.columns, 60) - len(text)), DIM))
        self._wrapper.end_line()

    # --- code ---

    def _code(self, line: str, end: str, rest: str, *, is_whole: bool) -> bool:
        if not self._in_code_line:
            marks = line.strip()
            if not (end or is_whole) and len(marks) <= _MOST_MARKS and set(marks) <= set(self._fence):
                # It may become the end of the code.
                return False
            if marks and set(marks) == set(self._fence) and len(marks) >= len(self._fence):
                self._fence = ""
                self._text = rest
                self._rule()
                return True
            indent = len(line) - len(line.lstrip(" "))
            line = line[min(indent, len(self._fence_indent)) :]
        self._in_code_line = not end
        if line:
            self._wrapper.unwrapped(Run(line, CODE))
        self._text = rest
        if end:
            self._wrapper.end_line()
        return bool(rest)

    # --- tables ---

    def _table_line(self, line: str) -> bool:
        """Take a line that begins with ``|``; False if it belongs to no table."""
        if self._table is not None:
            self._write_rows([line])
            return True
        if len(self._rows) == 1 and not is_delimiters(self._rows[0], line):
            return False
        self._rows.append(line)
        if len(self._rows) >= _MOST_ROWS:
            self._begin_table()
        return True

    def _begin_table(self) -> None:
        rows, self._rows = self._rows, []
        if self._is_after_blank and self._has_text:
            self._wrapper.end_line()
        self._is_after_blank, self._has_text = False, True
        self._table = Table(rows, columns=self.columns, unicode=self._unicode)
        self._table_heading = rows[0]
        if self._table.fits:
            self._write_lines(self._table.heading(rows[0]))
        self._write_rows(rows[2:])

    def _write_rows(self, rows: list[str]) -> None:
        assert self._table is not None
        for row in rows:
            self._write_lines(self._table.row(row) if self._table.fits else [*records(self._table_heading, row), []])

    def _write_lines(self, lines: list[list[Run]]) -> None:
        is_table = self._table is not None and self._table.fits
        for runs in lines:
            if is_table:
                for run in runs:
                    self._wrapper.unwrapped(run)
            else:
                self._wrapper.begin_line([], Run("  "))
                for run in runs:
                    self._wrapper.add(run)
            self._wrapper.end_line()

    def _end_table(self) -> None:
        if len(self._rows) > 1:
            self._begin_table()
        elif self._rows:
            # One line that looked like a table.
            (line,) = self._rows
            self._rows = []
            if self._is_after_blank and self._has_text:
                self._wrapper.end_line()
            self._is_after_blank, self._has_text = False, True
            self._wrapper.begin_line([], Run(""))
            inline = Inline(self._wrapper.add)
            inline.feed(line.strip())
            inline.finish()
            self._wrapper.end_line()
        self._table = None
