"""Migrations change many rows in batches, each of them once, and continue where they were interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import NotSupportedError, connection

from sessions_app.migrations import _batches
from sessions_app.migrations._batches import InBatches

pytestmark = pytest.mark.django_db(transaction=True)

ROWS = 2500


class Killed(BaseException):
    """Like SIGKILL: nothing of the program runs after it that could tidy up."""


@pytest.fixture(autouse=True)
def _table() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("create table letters (id integer primary key, opened integer not null)")
        cursor.executemany("insert into letters values (%s, 0)", [(2 * number,) for number in range(1, ROWS + 1)])
    yield
    with connection.cursor() as cursor:
        cursor.execute("drop table letters")
        cursor.execute("drop table if exists migration_progress")


def open_letters(to: Any, after: int, upto: int) -> None:
    with to.cursor() as cursor:
        cursor.execute("update letters set opened = opened + 1 where id > %s and id <= %s", [after, upto])


def migrate(change: Any = open_letters, *, atomic: bool = False, forwards: bool = True) -> None:
    operation = InBatches("0002_opened", "letters", change, lambda _to: None)
    with connection.schema_editor(atomic=atomic) as editor:
        (operation.database_forwards if forwards else operation.database_backwards)("post", editor, None, None)


def opened() -> dict[int, int]:
    """How many letters were opened how often."""
    with connection.cursor() as cursor:
        cursor.execute("select opened, count(*) from letters group by opened")
        return dict(cursor.fetchall())


def killed_after(batches: int) -> Any:
    done: list[int] = []

    def change(to: Any, after: int, upto: int) -> None:
        open_letters(to, after, upto)
        done.append(upto)
        if len(done) > batches:
            raise Killed

    return change


def test_every_row_is_changed_once_in_transactions_of_limited_size() -> None:
    batches: list[tuple[int, int]] = []

    def change(to: Any, after: int, upto: int) -> None:
        batches.append((after, upto))
        open_letters(to, after, upto)

    migrate(change)
    assert opened() == {1: ROWS}
    assert batches[0] == (0, 2 * _batches.FIRST_ROWS)
    assert [after for after, _ in batches[1:]] == [upto for _, upto in batches[:-1]]


def test_an_interrupted_change_continues_and_repeats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Killed):
        migrate(killed_after(1))
    assert opened() == {0: ROWS - _batches.FIRST_ROWS, 1: _batches.FIRST_ROWS}
    migrate()
    assert opened() == {1: ROWS}
    assert f"0002_opened: letters: continues after id {2 * _batches.FIRST_ROWS:,} of {2 * ROWS:,}" in capsys.readouterr().err


def test_a_change_that_ended_before_its_migration_was_recorded_is_not_repeated() -> None:
    migrate()
    migrate()
    assert opened() == {1: ROWS}


def test_after_the_way_back_it_is_done_again() -> None:
    migrate()
    migrate(forwards=False)
    migrate()
    assert opened() == {2: ROWS}


def test_its_progress_is_reported_with_rate_and_rest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_batches, "REPORT_SECONDS", 0.0)
    migrate()
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"0002_opened: letters: id {2 * _batches.FIRST_ROWS:,} of {2 * ROWS:,}, ")
    assert "rows/s, about" in first
    assert first.endswith(" s left")
    assert last.startswith(f"0002_opened: letters: finished, {ROWS:,} rows in ")


def test_slow_batches_become_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def change(to: Any, after: int, upto: int) -> None:
        sizes.append(upto - after)

    monkeypatch.setattr(_batches, "AIM_SECONDS", 0.0)
    monkeypatch.setattr(_batches, "PAUSE", 0.0)
    migrate(change)
    assert sizes[:3] == [2 * _batches.FIRST_ROWS, _batches.FIRST_ROWS, _batches.FIRST_ROWS // 2]


def test_it_refuses_to_be_one_transaction() -> None:
    with pytest.raises(NotSupportedError, match="atomic = False"):
        migrate(atomic=True)
