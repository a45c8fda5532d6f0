"""Joins the statements of a unit into few, because each one costs a message, a plan's start and 0.1 ms of the driver's time.

The parts of a joined statement see the same snapshot and the database chooses their order, so only statements that do not
depend on each other are joined: none updates a table that another one writes, or reads a table into which another one inserts.
A statement that fits no group begins the next one, and groups are executed in order.

A check (``Statement.is_check``) is joined with the group behind it as its main query. Postgres executes the main query first
and the writes at its end, so the check takes its locks before the writes do. It raises in time in any order, because a
statement takes effect as a whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain

from sessions_app.core.base import raw_sql
from sessions_app.core.base.raw_sql import Statement

MOST = 8
"""Statements in a group. Units with more, which have many calls, would otherwise prepare a statement for each number of them."""

_WRITE = re.compile(r"\s*(insert into|update|delete from)\s+(\w+)", re.IGNORECASE)


def joined(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Statements for Postgres with the effect of these, in groups that are joined. The first one returns a first check's rows."""
    check = statements[0] if statements[0].is_check else None
    writes = statements if check is None else statements[1:]
    if check is not None and (not writes or writes[0].is_check or _WRITE.match(writes[0].sql) is None):
        yield _alone(check)
        yield from joined(writes) if writes else ()
        return
    if len(writes) == 1 and check is None:
        yield _alone(writes[0])
        return
    texts = tuple(statement.sql for statement in writes)
    for first, last, sql in _groups(texts, None if check is None else check.sql):
        params = chain.from_iterable(statement.params for statement in writes[first:last])
        if check is None or first:
            yield Statement(sql, tuple(params))
        else:
            yield Statement(sql, (*params, *check.params))


def _alone(statement: Statement) -> Statement:
    return Statement(raw_sql.rendered(statement.sql, "postgresql"), statement.params)


@dataclass(slots=True)
class _Group:
    texts: list[str] = field(default_factory=list)
    inserted: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def takes(self, write: re.Match[str], text: str) -> bool:
        """Whether the statement depends on none of the group, and none of the group on it."""
        is_insert, table = write[1].lower() == "insert into", write[2]
        if table in self.changed or (table in self.inserted and not is_insert):
            return False
        return len(self.texts) < MOST and self.inserted.isdisjoint(re.findall(r"\w+", text[write.end() :]))

    def add(self, write: re.Match[str], text: str) -> None:
        self.texts.append(text)
        (self.inserted if write[1].lower() == "insert into" else self.changed).add(write[2])


@lru_cache(maxsize=512)
def _groups(texts: tuple[str, ...], check: str | None) -> list[tuple[int, int, str]]:
    """The groups: the first index, the one after the last, and the SQL. ``check`` is joined with the first group."""
    groups: list[list[str]] = []
    group: _Group | None = None
    for text in texts:
        write = _WRITE.match(text)
        if write is None:
            groups.append([text])
            group = None
            continue
        if group is None or not group.takes(write, text):
            group = _Group()
            groups.append(group.texts)
        group.add(write, text)
    ends = accumulate(len(each) for each in groups)
    first = 0 if check is None else len(groups[0])
    return [(end - len(each), end, _one(each, check if end == first else None)) for end, each in zip(ends, groups, strict=True)]


def _one(texts: Sequence[str], check: str | None) -> str:
    *before, last = [raw_sql.rendered(text, "postgresql") for text in texts]
    if check is not None:
        before, last = [*before, last], f"select * from ({raw_sql.rendered(check, 'postgresql')}) as checked"
    if not before:
        return last
    parts = ", ".join(f"s{number} as ({text})" for number, text in enumerate(before))
    return f"with {parts} {last}"
