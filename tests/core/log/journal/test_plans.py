"""Statements that were planned on empty tables use indexes, because their plans are kept (decision 0053)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from sessions_app.core import turns
from sessions_app.core.base import database, loop_connections, raw_sql
from sessions_app.core.base.loop_calls import LoopCall
from sessions_app.core.sessions import creating
from sessions_app.core.sessions.creating import FirstTurn, SessionRequest
from sessions_app.core.turns import queue as turn_queue
from sessions_app.core.worker import loading
from sessions_app.core.worker.worker import Worker
from tests.core.conftest import WAIT, World, wait_for_state
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import text

pytestmark = pytest.mark.django_db(transaction=True)

GROWING = ("session_tail", "journal_event", "sessions_app_session", "sessions_app_turn", "sessions_app_message")
PREPARED = "select name, statement, cardinality(parameter_types) from pg_prepared_statements"


def explain(name: str, parameters: int) -> str:
    nulls = f"({', '.join(['null'] * parameters)})" if parameters else ""
    return f"explain (costs off) execute {name}{nulls}"


def scans(plan: list[tuple[Any, ...]]) -> bool:
    return any("Seq Scan on" in line and any(table in line for table in GROWING) for (line,) in plan)


def plans() -> dict[str, bool]:
    with connection.cursor() as cursor:
        cursor.execute(PREPARED)
        found = {}
        for name, statement, parameters in cursor.fetchall():
            cursor.execute(explain(name, parameters))
            found[statement] = scans(cursor.fetchall())
    return found


@pytest.fixture(autouse=True)
def _prepares(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite plans each statement anew")


def test_requests_on_the_loop_scan_no_growing_table(alice: World) -> None:
    def create() -> creating.Created:
        return creating.create(alice.caller, SessionRequest("sailor"), first_turn=FirstTurn("hello"))

    async def create_and_explain() -> dict[str, bool]:
        for _ in range(2):
            await database.serve_on_loop(alice.caller.tenant, WAIT, copy_context(), create)
        return await loop_connections.of_loop("calls", 1, {}).run(LoopCall(plans, "tests", copy_context()))

    found = asyncio.run(create_and_explain())
    assert any("session_tail" in statement for statement in found)
    assert [statement for statement, scans in found.items() if scans] == []


def test_claims_on_the_loop_scan_no_growing_table(alice: World) -> None:
    class Loading:
        def queries(self, runs: Any) -> Any:
            return loading._queries(list(runs))

        def begin(self, rows: Any) -> None:
            pass

    async def claim_and_explain() -> dict[str, bool]:
        pool = loop_connections.of_loop("calls", 1, {})
        claim = partial(turns.claim, "w", queues=["default"], loader=Loading())
        for _ in range(2):
            assert (await pool.run(LoopCall(claim, "tests", copy_context()))).runs
        return await pool.run(LoopCall(plans, "tests", copy_context()))

    for _ in range(2):
        alice.say(alice.session(), "x")
    found = asyncio.run(claim_and_explain())
    assert any("update sessions_app_turn" in statement for statement in found)
    assert any("sessions_app_message" in statement for statement in found)
    assert [statement for statement, scans in found.items() if scans] == []


def test_the_journals_writer_scans_no_growing_table(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    worker = start_worker()
    wait_for_state(alice.say(alice.session(), model.script([text("one "), text("two")])), "done")

    async def plans() -> dict[str, bool]:
        writer: Any = worker._live.writer
        own: psycopg.AsyncConnection[Any] = writer._store._connection
        # What follows a turn's end may still be written.
        while writer._busy:  # noqa: ASYNC110 - the writer has no event for this
            await asyncio.sleep(0.01)
        prepared = await (await own.execute(PREPARED)).fetchall()
        return {
            statement: scans(await (await own.execute(explain(name, parameters))).fetchall())
            for name, statement, parameters in prepared
        }

    found = asyncio.run_coroutine_threadsafe(plans(), worker.loop).result(WAIT)
    assert any("session_tail" in statement for statement in found)
    assert [statement for statement, scans in found.items() if scans] == []


_MORE_TURNS = """
insert into sessions_app_turn (tenant_id, session_id, public_id, definition_id, format, state, stop_reason, error, run, step,
 parts, fence, worker, takeovers, input_tokens, output_tokens, cache_read_tokens, created_at, queued_at, queue)
select tenant_id, %(session)s + n, %(state)s || n, definition_id, 8, %(state)s, '', '', 1, 0,
 '[]', 0, '', 0, 0, 0, 0, now(), now(), 'heavy'
from sessions_app_turn, generate_series(1, %(number)s) n where id = %(like)s
"""


def test_a_claim_reads_no_turns_of_other_queues(alice: World) -> None:
    """With a plan that is kept for all values, and with one that is made for these (decision 0103)."""
    said = alice.say(alice.session(), "x")
    values: tuple[object, ...] = (99, True, 0, [], 99, True, 0, [], 200, 2**31 - 1, 16, "w")
    statement = raw_sql.rendered(turn_queue._claim_of(("default", "light")), "postgresql")

    def add(number: int, state: str) -> None:
        with connection.cursor() as cursor:
            # The sessions of these turns do not matter to the claim, and do not exist.
            cursor.execute("set session_replication_role = replica")
            cursor.execute(_MORE_TURNS, {"number": number, "state": state, "session": 10**6 * len(state), "like": said.turn_id})
            cursor.execute("set session_replication_role = origin")

    def read(cursor: Any, explained: str, given: Any) -> int:
        with transaction.atomic():
            cursor.execute(f"explain (analyze, costs off, timing off, summary off) {explained}", given)
            lines = [line for (line,) in cursor.fetchall()]
            transaction.set_rollback(True)
        scans = [line for line in lines if "Scan" in line and "sessions_app_turn" in line]
        assert any("turn_queued_in_pool" in line for line in lines), "\n".join(lines)
        removed = [int(line.split(":")[1]) for line in lines if "Rows Removed by Filter" in line]
        return max(*removed, *(int(found[1]) for line in scans if (found := re.search(r"actual rows=(\d+)", line))))

    def explain() -> list[int]:
        with connection.cursor() as cursor:
            numbered = statement
            for number in range(1, statement.count("%s") + 1):
                numbered = numbered.replace("%s", f"${number}", 1)
            # As in an installation: the statistics of other tests' rows would be used otherwise.
            add(1000, "done")
            add(200, "waiting")
            add(10_000, "queued")
            cursor.execute("analyze sessions_app_turn")
            cursor.execute(f"prepare claiming as {numbered.replace('%%', '%')}".replace("%", "%%"), [])
            literal = "99, true, 0, '{}', 99, true, 0, '{}', 200, 2147483647, 16, 'w'"
            counts = [read(cursor, f"execute claiming ({literal})", None), read(cursor, statement, values)]
            cursor.execute("deallocate claiming")
        return counts

    async def run() -> list[int]:
        return await loop_connections.of_loop("calls", 1, {}).run(LoopCall(explain, "tests", copy_context()))

    assert max(asyncio.run(run())) <= 20
