"""Queries that are one statement: which columns they share, and that each gets its own rows back."""

from __future__ import annotations

from sessions_app.core.base.stacked_queries import stacked, unstacked

NAMES = ("select id, name, nick from names where id = %s", ("bigint", "text", "text"))
TIMES = ("select label, at from times", ("text", "timestamptz"))


def test_columns_of_one_type_are_shared() -> None:
    assert stacked([NAMES, TIMES]).splitlines() == [
        "select 0, c1, c2, c3, null::timestamptz from (select id, name, nick from names where id = %s) as q0(c1, c2, c3)",
        "union all",
        "select 1, null::bigint, c2, null::text, c4 from (select label, at from times) as q1(c2, c4)",
    ]


def test_each_query_gets_its_rows_with_its_columns_in_order() -> None:
    rows = [(0, 7, "ann", None, None), (0, 8, "ben", "b", None), (1, None, "noon", None, "12:00")]
    assert unstacked([NAMES, TIMES], rows) == [[(7, "ann", None), (8, "ben", "b")], [("noon", "12:00")]]
    assert unstacked([NAMES, TIMES], []) == [[], []]


def test_a_column_keeps_its_place_where_another_query_has_its_types_in_another_order() -> None:
    swapped = ("select at, label from times", ("timestamptz", "text"))
    rows = [(0, "noon", "12:00"), (1, "noon", "12:00")]
    assert unstacked([TIMES, swapped], rows) == [[("noon", "12:00")], [("12:00", "noon")]]
