"""Several queries as one statement for Postgres, which costs less than as many statements in one round trip.

The statement is a UNION ALL. Its columns are shared: a query's first bigint is in the same one as another query's first
bigint. The rows come in the order of the queries; the order of one query's rows is not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

Rows = list[tuple[Any, ...]]
Types = tuple[str, ...]
"""The Postgres types of a query's columns; at least two."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """``sql`` has the queries' parameters in order. ``columns``: the places of each query's columns in the rows."""

    sql: str
    columns: list[tuple[int, ...]]


def stacked(queries: Sequence[tuple[str, Types]]) -> str:
    """The statement for queries, each with the types of its columns. Its parameters are theirs, in order."""
    return _layout(tuple(queries)).sql


def unstacked(queries: Sequence[tuple[str, Types]], rows: Rows) -> list[Rows]:
    """The rows of each query."""
    found: list[Rows] = [[] for _ in queries]
    pickers = [itemgetter(*columns) for columns in _layout(tuple(queries)).columns]
    for row in rows:
        number = row[0]
        found[number].append(pickers[number](row))
    return found


@lru_cache(maxsize=32)
def _layout(queries: tuple[tuple[str, Types], ...]) -> _Layout:
    shared: dict[tuple[str, int], int] = {}
    """The place of the n-th column of a type; the first place has the query's number."""
    columns = []
    for _, types in queries:
        seen: Counter[str] = Counter()
        places = []
        for each in types:
            places.append(shared.setdefault((each, seen[each]), len(shared) + 1))
            seen[each] += 1
        columns.append(tuple(places))
    parts = []
    for number, ((sql, _), own) in enumerate(zip(queries, columns, strict=True)):
        names = {place: f"c{place}" for place in own}
        values = [names.get(place, f"null::{kind}") for (kind, _), place in shared.items()]
        parts.append(f"select {number}, {', '.join(values)} from ({sql}) as q{number}({', '.join(names.values())})")
    return _Layout("\nunion all\n".join(parts), columns)
