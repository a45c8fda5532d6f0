"""Fixtures of the core's tests: two tenants, an agent on the scripted model, a real worker in this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from agents_app import registry
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec
from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers
from sessions_app.core.records.conversation import FOLLOWING
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.sessions import creating
from sessions_app.core.tenancy import access
from sessions_app.core.worker import worker
from sessions_app.models import Session, Tenant, ToolCall, Turn, WorkerPresence
from tests.core import tools
from tests.fakes.model_server import ModelServer

WAIT = 60.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """What ``condition`` gives once it is true; a look every few milliseconds, with a bound."""
    until = time.monotonic() + WAIT
    while True:
        if value := condition():
            return value
        assert time.monotonic() < until, f"never happened: {what}"
        time.sleep(0.01)


def somebody_waits_for_a_lock() -> bool:
    """Whether a connection to this database waits for a lock (on Postgres)."""
    with connection.cursor() as cursor:
        # A transaction would see the connections as they were when it first looked.
        cursor.execute("select pg_stat_clear_snapshot()")
        cursor.execute("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
        return bool(cursor.fetchone()[0])


@dataclass
class World:
    """One tenant's view of the server."""

    caller: Caller
    agent: str = "sailor"

    def session(
        self,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        client_tools: Sequence[dict[str, Any]] = (),
        seed: Sequence[dict[str, Any]] = (),
        options: dict[str, str] | None = None,
    ) -> Session:
        refs = None if tools is None else list(tools)
        wanted = creating.SessionRequest(self.agent, refs, options or {}, list(client_tools), list(seed))
        return access.session(self.caller, creating.create(self.caller, wanted).public_id)

    def say(self, session: Session, text: str, overrides: Overrides | None = None) -> turns.Accepted:
        return turns.start(self.caller, session, content=text, overrides=overrides or Overrides())

    def answer(self, session: Session, *answers: turns.Answer) -> turns.Accepted:
        return turns.answer(self.caller, session, answers=answers, overrides=Overrides())


def claim_one(worker: str) -> turns.Claimed | None:
    """The next turn of the queue, for a worker that a test plays itself; it has a lease, and does not renew it."""
    live_workers.announce(worker)
    return next(iter(turns.claim(worker).runs), None)


def turn_of(accepted: turns.Accepted) -> Turn:
    return Turn.objects.get(pk=accepted.turn_id)


def wait_for_state(accepted: turns.Accepted, *states: str) -> Turn:
    def reached() -> Turn | None:
        turn = turn_of(accepted)
        return turn if turn.state in states else None

    found: Turn = wait_for(reached, f"turn in {states}")
    return found


def lease_is_over(accepted: turns.Accepted) -> None:
    """As if the run's worker had let go of it long ago."""
    assert Turn.objects.filter(pk=accepted.turn_id, state="running").update(lease_expires_at="2020-01-01T00:00:00Z") == 1


def lease_of(worker: str) -> datetime:
    """When the lease of this worker, and with it of its runs, expires."""
    expires_at = WorkerPresence.objects.get(worker=worker).lease_expires_at
    assert expires_at is not None
    return expires_at


def insert_call(session: Session, accepted: turns.Accepted, call_id: str, name: str, *, runner: str) -> None:
    """A pending call, as the turn's run stores it."""
    ToolCall.objects.create(
        tenant_id=session.tenant_id,
        session=session,
        turn_id=accepted.turn_id,
        call_id=call_id,
        name=name,
        arguments="{}",
        runner=runner,
        created_at=timezone.now(),
    )


@contextmanager
def locked(lock: Callable[[], object]) -> Iterator[None]:
    """Somebody has locked these rows, in a transaction that is open until the block ends."""
    entered, go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                lock()
                entered.set()
                go.wait(2 * WAIT)
        finally:
            connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert entered.wait(WAIT)
        yield
    finally:
        go.set()
        holder.join(WAIT)


def kinds(session: Session) -> list[str]:
    """The session's events in order, by kind, without those that follow from others (core.records.conversation)."""
    read = journal.read_session(session.tenant_id, session.pk, 0, limit=10_000)
    return [event.kind for event in read.events if event.kind not in FOLLOWING]


def streamed_text(session: Session) -> str:
    """The text of the session's stored deltas."""
    read = journal.read_session(session.tenant_id, session.pk, 0, limit=10_000)
    return "".join(json.loads(event.data)["delta"] for event in read.events if event.kind == "text_delta")


def make_tenant(slug: str) -> Caller:
    tenant = Tenant.objects.create(slug=slug)
    with journal.transaction():
        journal.create_counter(tenant.pk)
    from sessions_app.core.tenancy import keys

    issued = keys.issue(tenant, name="test", scopes=["*"], expires_at=None, allowed_agents=None, actor="tests", address="")
    return keys.authenticate(issued.raw)


def make_spec(model: ModelServer, **given: Any) -> AgentSpec:
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fields: dict[str, Any] = {
        "name": "sailor",
        "model": "openai-chat:test",
        "base_url": f"{model.url}",
        "api_key": "{key}",
        "instructions": "Speak {tone}.",
        "client_tools": True,
        "images": ("http", "data"),
        "options": (
            OptionSpec("secret", "key", default="sk-default"),
            OptionSpec("text", "tone", default="plainly"),
        ),
        "tools": (
            ToolSpec("add_one", "python:tests.core.tools:add_one", description="Adds one", parameters=number),
            ToolSpec("blow_up", "python:tests.core.tools:blow_up", description="Fails", parameters=number),
            ToolSpec("block", "python:tests.core.tools:block", description="Waits", parameters=number),
            ToolSpec(
                "hidden",
                "python:tests.core.tools:hidden",
                description="Runs inline",
                parameters=number,
                expose=False,
            ),
        ),
        "limits": Limits(connect=5, first_output=30, between_outputs=30, run=60, max_steps=6, tool_seconds=20),
    }
    return AgentSpec(**{**fields, **given})


@pytest.fixture
def fresh_tools() -> Iterator[None]:
    """Forget what the tools have counted, and let waiting ones return at the end."""
    tools.forget()
    yield
    tools.release.set()


@pytest.fixture
def lasting_presence(settings: Any) -> None:
    """Connections of clients last for the whole test: no process renews them here, and a worker's sweep ends old ones."""
    settings.AGENTHOST_AHP_PRESENCE_SECONDS = settings.AGENTHOST_AHP_GRACE_SECONDS = 3600.0


@pytest.fixture
def quick(settings: Any) -> None:
    """Short times: a test waits for what happens, and it should happen soon.

    The lease is long enough that a machine under pressure renews it in time. Tests of death end a lease themselves
    (``lease_is_over``).
    """
    settings.AGENTHOST_LEASE_SECONDS = 6.0
    settings.AGENTHOST_RENEW_SECONDS = 0.4
    # On SQLite each duty looks for itself: twenty sweeps a second would use a third of a core while a test waits.
    settings.AGENTHOST_SWEEP_SECONDS = 0.05 if connection.vendor == "postgresql" else 0.25
    settings.AGENTHOST_QUEUE_GRACE_SECONDS = 0.0


@pytest.fixture
def agents(model: ModelServer) -> Iterator[Callable[..., AgentSpec]]:
    """Put an agent on the scripted model into the registry; call it again to change the definition."""
    for name in ("hold", "more", "never"):
        model.close_gate(name)
    with ExitStack() as stack:

        def use(**given: Any) -> AgentSpec:
            spec = make_spec(model, **given)
            stack.enter_context(registry.use([spec]))
            return spec

        use()
        yield use


@pytest.fixture
def alice(transactional_db: None, quick: None, agents: Callable[..., AgentSpec]) -> Iterator[World]:
    yield World(make_tenant("alice"))
    database.shut_down()


@pytest.fixture
def bob(alice: World) -> World:
    return World(make_tenant("bob"))


@pytest.fixture
def start_worker(alice: World) -> Iterator[Callable[..., worker.Worker]]:
    """Start a real worker in this process; all are stopped at the end.

    It takes over at once what it finds: the lease's time that a sweeper waits at first has passed.
    """
    started: list[worker.Worker] = []

    def start(queues: Sequence[str] | None = None) -> worker.Worker:
        one = worker.Worker(queues)
        one._sweeper._in_contact_since = float("-inf")
        one.start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop(grace=0.2)
    connection.close()
