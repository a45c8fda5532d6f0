"""Statements that were planned on empty tables use indexes, because their plans are kept (decision 0053)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import psycopg
import pytest
from django.db import connection

from sessions_app.core import turns
from sessions_app.core.base import database, loop_connections
from sessions_app.core.base.loop_calls import LoopCall
from sessions_app.core.sessions import creating
from sessions_app.core.sessions.creating import FirstTurn, SessionRequest
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
        claim = partial(turns.claim, "w", loader=Loading())
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
        writer: Any = worker._writer
        own: psycopg.AsyncConnection[Any] = writer._store._connection
        prepared = await (await own.execute(PREPARED)).fetchall()
        return {
            statement: scans(await (await own.execute(explain(name, parameters))).fetchall())
            for name, statement, parameters in prepared
        }

    found = asyncio.run_coroutine_threadsafe(plans(), worker.loop).result(WAIT)
    assert any("session_tail" in statement for statement in found)
    assert [statement for statement, scans in found.items() if scans] == []
