"""Which statements of a unit are joined, and that their values stay in order."""

from __future__ import annotations

from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log.journal.joined_statements import MOST, joined

MESSAGE = Statement(
    "insert into message (session, position) values (%s, (select max(position) from message where session = %s))", (1, 2)
)
ENTRY = Statement("insert into entry (amount) values (%s)", (3,))
TURN = Statement("update turn set step = %s where id = %s", (4, 5))
KEY = Statement("insert into entry (key) values ((select key from turn where id = %s))", (6,))


def shapes(*statements: Statement) -> list[tuple[int, tuple[object, ...]]]:
    """How many writes each statement has, and its values."""
    return [(each.sql.count("insert into") + each.sql.count("update "), tuple(each.params)) for each in joined(statements)]


def test_independent_statements_are_one() -> None:
    assert shapes(MESSAGE, ENTRY, TURN, KEY) == [(4, (1, 2, 3, 4, 5, 6))]


def test_a_single_statement_is_sent_as_it_is() -> None:
    assert [each.sql for each in joined([Statement("update turn set ended_at = {now} where id = %s", (1,))])] == [
        "update turn set ended_at = statement_timestamp() where id = %s"
    ]


def test_each_update_of_a_table_is_executed() -> None:
    """Of two updates of one row in one statement only the first has an effect."""
    assert shapes(TURN, ENTRY, TURN) == [(2, (4, 5, 3)), (1, (4, 5))]
    assert shapes(Statement("insert into turn (id) values (%s)", (1,)), TURN) == [(1, (1,)), (1, (4, 5))]


def test_a_statement_that_reads_what_was_inserted_comes_after_it() -> None:
    assert shapes(MESSAGE, MESSAGE) == [(1, (1, 2)), (1, (1, 2))]


def test_a_statement_that_is_no_plain_write_stays_apart() -> None:
    wait = Statement("select pg_sleep(%s)", (0,))
    assert shapes(ENTRY, wait, TURN, KEY) == [(1, (3,)), (0, (0,)), (2, (4, 5, 6))]
    with_part = Statement("with a as (select 1) update turn set step = %s", (7,))
    assert shapes(ENTRY, with_part) == [(1, (3,)), (1, (7,))]


def test_a_group_has_a_limit() -> None:
    """Otherwise each number of calls in a message would be a statement to prepare."""
    assert shapes(*[ENTRY] * (2 * MOST + 1)) == [(MOST, (3,) * MOST), (MOST, (3,) * MOST), (1, (3,))]


CHECK = Statement("select refuse() from lock where id = %s", (8,), is_check=True)


def test_a_check_is_the_main_query_of_the_statements_behind_it() -> None:
    (only,) = joined([CHECK, ENTRY])
    assert only.sql.endswith(" select * from (select refuse() from lock where id = %s) as checked")
    assert only.params == (3, 8)
    first, second = joined([CHECK, MESSAGE, TURN, TURN])
    assert (first.sql.count("refuse()"), first.params) == (1, (1, 2, 4, 5, 8))
    assert (second.sql.count("refuse()"), second.params) == (0, (4, 5))


def test_a_check_that_has_no_writes_behind_it_stays_apart() -> None:
    assert list(joined([CHECK])) == [Statement(CHECK.sql, CHECK.params)]
    wait = Statement("select pg_sleep(%s)", (0,))
    assert [each.params for each in joined([CHECK, wait, ENTRY])] == [(8,), (0,), (3,)]
    assert [each.params for each in joined([CHECK, CHECK, ENTRY])] == [(8,), (3, 8)]
