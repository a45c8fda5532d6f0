"""Row numbers that are taken before their INSERT: never the same twice."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sessions_app.core.base import row_ids
from tests.core.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = "sessions_app_session"


@pytest.fixture(autouse=True)
def _no_blocks() -> Iterator[None]:
    row_ids.forget()
    yield
    row_ids.forget()


def test_threads_get_different_numbers(on_postgres: bool) -> None:
    def take() -> list[int | None]:
        return [row_ids.take(TABLE) for _ in range(2000)]

    found = [number for numbers in at_once(take, take, take) for number in numbers]
    if on_postgres:
        assert len(set(found)) == 6000
    else:
        assert set(found) == {None}


def test_a_forked_process_does_not_use_its_parents_numbers(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no sequences")
    row_ids.take(TABLE)
    assert row_ids._free[TABLE]
    child = os.fork()
    if child == 0:
        os._exit(1 if row_ids._free else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert row_ids._free[TABLE]
