"""How many statements and round trips a turn of one token sends to Postgres, from what libpq sends over its connections.

The limits are today's numbers. Whoever adds a statement to every turn sees it here, and either finds a way without it or
raises the limit knowingly.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, connections

from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.log import broadcast
from sessions_app.core.log.journal import barriers
from sessions_app.core.log.journal.types import Announcement
from sessions_app.core.tenancy import access, keys
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Tenant
from tests.core.conftest import WAIT, World, wait_for
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import gate, text


@dataclass(frozen=True)
class Sent:
    """What was sent: statements, and the times that somebody waited for their results, after a sync or a flush request."""

    statements: int
    round_trips: int
    messages: str = ""
    """The messages themselves, for a test that fails."""


@dataclass(frozen=True)
class Phases:
    accept: Sent
    begin: Sent
    end: Sent


ACCEPT, ACCEPT_BEFORE_17 = Sent(5, 3), Sent(7, 3)
"""On the loop, as a request is accepted. The barrier's answer is the third that is waited for."""
BEGIN = Sent(3, 4)
"""The claim; what the run reads, then the barrier; and the first text."""
END = Sent(3, 2)


class Wire:
    """Traces of all connections to Postgres that this process opens, one file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self._number = 0

    def trace(self, pgconn: Any) -> None:
        self._number += 1
        file = os.open(self._directory / f"{self._number}.trace", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        pgconn.trace(file)
        pgconn.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)

    def lines(self) -> list[list[str]]:
        """The messages that were sent since the last call."""
        new = []
        for path in sorted(self._directory.iterdir()):
            content = path.read_text(errors="replace")
            new += content[self._read.get(path, 0) :].splitlines()
            self._read[path] = len(content)
        return [line.split("\t") for line in new if line.startswith("F\t")]

    def sent(self) -> Sent:
        """What was sent since the last call."""
        lines = self.lines()
        kinds = [parts[2] for parts in lines]
        queries = kinds.count("Query")
        return Sent(
            kinds.count("Execute") + queries,
            kinds.count("Sync") + kinds.count("Flush") + queries,
            "\n".join(" ".join(parts[2:]) for parts in lines),
        )


class Told:
    """The kinds of the events that this process has announced."""

    def __init__(self) -> None:
        self._kinds: list[str] = []
        self._changed = threading.Condition()

    def note(self, announcements: list[Announcement]) -> None:
        with self._changed:
            self._kinds += [event.kind for each in announcements for item in each.items for event in item.events]
            self._changed.notify_all()

    def wait(self, kind: str, times: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._kinds.count(kind) >= times, WAIT), kind


@pytest.fixture
def wire(tmp_path: Path, on_postgres: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    if not on_postgres:
        pytest.skip("SQLite is no server")
    wire = Wire(tmp_path)
    original = psycopg.BaseConnection.__init__

    def traced(self: Any, pgconn: Any) -> None:
        original(self, pgconn)
        wire.trace(pgconn)

    def close_all() -> None:
        barriers.close()
        database.shut_down()
        connections.close_all()
        connections["default"].close_pool()  # type: ignore[attr-defined]  # Postgres's has one

    # Connections that are open already have no trace.
    close_all()
    monkeypatch.setattr(psycopg.BaseConnection, "__init__", traced)
    yield wire
    close_all()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told, announce = Told(), broadcast.announce

    def noted(announcements: list[Announcement]) -> None:
        announce(announcements)
        told.note(announcements)

    monkeypatch.setattr(broadcast, "announce", noted)
    return told


def test_statements_of_a_turn_of_one_token(
    wire: Wire, told: Told, alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any
) -> None:
    # Nothing else may send statements: no sweep, no renewal.
    settings.AGENTHOST_SWEEP_SECONDS = settings.AGENTHOST_RENEW_SECONDS = 3600.0
    settings.AGENTHOST_LEASE_SECONDS = 10_000.0
    session, worker = alice.session(), start_worker()
    tenant = Tenant.objects.get(pk=alice.caller.tenant)
    key = keys.issue(tenant, name="web", scopes=["*"], expires_at=None, allowed_agents=None, actor="tests").raw

    def turn(number: int) -> Phases:
        name = f"end {number}"
        model.close_gate(name)
        wire.sent()
        content = model.script([text("hi"), gate(name)])

        def say() -> turns.Accepted:
            caller = keys.authenticate(key)
            return turns.start(caller, access.session(caller, session.public_id), content=content)

        # As a web's loop does it, here on the only loop of this process.
        accepting = database.serve_on_loop(alice.caller.tenant, None, copy_context(), say)
        asyncio.run_coroutine_threadsafe(accepting, worker.loop).result(WAIT)
        accept = wire.sent()
        worker.wake()
        told.wait("text_delta", number)
        begin = wire.sent()
        model.open_gate(name)
        told.wait("turn_ended", number)
        wait_for(worker._live.idle.is_set, "the run has ended")
        return Phases(accept, begin, wire.sent())

    # The smallest counts: preparing a statement on a connection is one more round trip, and several connections are used.
    phases = [turn(number) for number in range(1, 9)]
    accept = ACCEPT if connection.pg_version >= 170000 else ACCEPT_BEFORE_17  # type: ignore[attr-defined]
    for phase, most in (("accept", accept), ("begin", BEGIN), ("end", END)):
        sent = [getattr(each, phase) for each in phases]
        assert min(each.statements for each in sent) <= most.statements, sent[-1].messages
        assert min(each.round_trips for each in sent) <= most.round_trips, sent[-1].messages
        # The counting itself works.
        assert min(each.statements for each in sent) > 1
    assert session.turns.filter(state="done").count() == len(phases)
