"""The database is away while turns run: they wait and go on; a run that was taken over meanwhile stores nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import DataError, InternalError, OperationalError, connection, connections
from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log.journal import writer as writer_module
from sessions_app.core.records import live_workers
from sessions_app.core.records.history import StepRef
from sessions_app.core.sessions import connections as connections_of_clients
from sessions_app.core.worker import outage
from sessions_app.core.worker.sweep import Sweeper
from sessions_app.core.worker.worker import Worker
from sessions_app.models import PendingKind, PendingMessage, SessionClient, Turn
from tests.core import tools
from tests.core.conftest import World, claim_one, kinds, lease_is_over, turn_of, wait_for, wait_for_state
from tests.core.turns.test_turns import full
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, pause, text

LEASE = 1.5


@contextmanager
def database_away() -> Iterator[None]:
    """Postgres ends every connection to the database and takes none until the block ends."""
    parameters = connections["default"].get_connection_params()
    wanted = {name: parameters[name] for name in ("user", "password", "host", "port") if name in parameters}
    name = connections["default"].settings_dict["NAME"]
    with psycopg.connect(**wanted, dbname="postgres", autocommit=True) as other:
        other.execute(f'alter database "{name}" with allow_connections false'.encode())
        try:
            other.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", (name,))
            yield
        finally:
            other.execute(f'alter database "{name}" with allow_connections true'.encode())
    database.release()
    wait_for(_answers, "the database is back")


def _answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
    except OperationalError:
        return False
    return True


@pytest.fixture
def on_a_server(alice: World, on_postgres: bool, settings: Any) -> None:
    if not on_postgres:
        pytest.skip("SQLite is never away")
    settings.AGENTHOST_LEASE_SECONDS, settings.AGENTHOST_RENEW_SECONDS = LEASE, 0.2


def words(seconds: float) -> list[Any]:
    """What a model says in this time, a word every tenth of a second."""
    return [each for number in range(int(seconds * 10)) for each in (text(f"{number} "), pause(0.1))]


def said(steps: list[Any]) -> str:
    return "".join(str(number) + " " for number in range(len(steps) // 2))


@pytest.mark.usefixtures("on_a_server")
@pytest.mark.rule("A78")
def test_a_turn_survives_a_database_outage_of_several_lease_times(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    """One answer, asked for once, whole; a second worker that waits for dead runs leaves it to its owner."""
    session, spoken = alice.session(), words(3 * LEASE)
    script = model.script([text("begin "), gate("hold"), *spoken, gate("more"), text("end")])
    accepted = alice.say(session, script)
    start_worker()
    start_worker()
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    with database_away():
        model.open_gate("hold")
        model.wait_gate("more")
    model.open_gate("more")
    turn = wait_for_state(accepted, "done", "error")
    assert (turn.state, turn.takeovers) == ("done", 0)
    assert full(session)[-1] == ("assistant", f"begin {said(spoken)}end")
    assert len(model.requests_of(script)) == 1


@pytest.mark.usefixtures("on_a_server")
@pytest.mark.rule("A78")
def test_a_provider_is_paused_during_an_outage_and_its_time_limit_too(
    alice: World,
    agents: Callable[..., AgentSpec],
    start_worker: Callable[[], Worker],
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_module, "UNSENT_BYTES", 512)
    agents(limits=Limits(connect=5, first_output=30, between_outputs=10, run=60))
    session, spoken = alice.session(), words(11.5)
    accepted = alice.say(session, model.script([text("begin "), gate("hold"), text("x" * 600), *spoken, text("end")]))
    worker = start_worker()
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    with database_away():
        model.open_gate("hold")
        wait_for(lambda: worker._live.writer is not None and worker._live.writer._room, "the run is held back")
        (request,) = model.requests
        wait_for(lambda: request.state == "done", "the model has said everything")
        assert worker._live.writer is not None
        assert sum(worker._live.writer._unsent.values()) < 2048
    turn = wait_for_state(accepted, "done", "error")
    assert (turn.state, turn.error) == ("done", "")
    assert full(session)[-1] == ("assistant", f"begin {'x' * 600}{said(spoken)}end")


@pytest.mark.usefixtures("on_a_server")
@pytest.mark.rule("A78")
def test_work_between_two_model_calls_is_repeated_after_an_outage(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    """A tool ends while the database is away: its result is stored later, and the tool runs once."""
    tools.forget()
    session = alice.session(tools=[{"name": "block", "trust": True}])
    script = model.script([call("block", {"n": 1}, id="b")], [text("done")])
    accepted = alice.say(session, script)
    worker = start_worker()
    assert tools.entered.wait(60)
    with database_away():
        tools.release.set()
        wait_for(lambda: worker._live.writer is not None and worker._live.writer._unsent, "the result waits to be stored")
    turn = wait_for_state(accepted, "done", "error")
    assert (turn.state, turn.takeovers) == ("done", 0)
    assert full(session)[-1] == ("assistant", "done")
    assert tools.runs == [("block", 1)]


@pytest.mark.usefixtures("on_a_server")
def test_an_outage_that_is_too_long_closes_the_providers_call_and_ends_the_turn(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any
) -> None:
    settings.AGENTHOST_DATABASE_OUTAGE_SECONDS = 1.0
    session = alice.session()
    script = model.script([text("begin "), gate("never")])
    accepted = alice.say(session, script)
    start_worker()
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    (request,) = model.requests_of(script)
    with database_away():
        assert model.wait_ended(request) == "closed"
    turn = wait_for_state(accepted, "done", "error")
    assert (turn.state, turn.error) == ("error", "interrupted")
    assert full(session)[-1] == ("assistant", "begin ")


@pytest.mark.usefixtures("on_a_server")
def test_a_worker_notices_at_its_first_renewal_that_a_run_was_taken_over(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any
) -> None:
    """Nothing else tells it: it does not sweep, and its run says nothing that could be refused."""
    settings.AGENTHOST_SWEEP_SECONDS = 3600.0
    session = alice.session()
    script = model.script([text("begin "), gate("never")])
    accepted = alice.say(session, script)
    start_worker().wake()
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    (request,) = model.requests_of(script)
    lease_is_over(accepted)
    Turn.objects.filter(pk=accepted.turn_id).update(worker="another", fence=turn_of(accepted).fence + 1)
    assert model.wait_ended(request) == "closed"
    turns.stop(accepted.turn_id, turns.Stop(cause="client", reason="end_turn"))


def test_a_worker_that_was_suspended_keeps_its_runs(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its timer for outages is over when it wakes, and the database was there all the time."""
    settings.AGENTHOST_DATABASE_OUTAGE_SECONDS = 3.0
    session = alice.session()
    accepted = alice.say(session, model.script([text("begin "), gate("hold"), text("end")]))
    worker = start_worker()
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    asleep = threading.Event()
    worker._loop.call_soon_threadsafe(asleep.wait, 60)
    wait_for(lambda: caplog.text.count("leases_not_renewed") >= 2, "the loop is blocked for longer than an outage may last")
    asleep.set()
    model.open_gate("hold")
    assert wait_for_state(accepted, "done", "error").state == "done"
    assert full(session)[-1] == ("assistant", "begin end")


# --- who takes over ---


def _sweeper_beside_a_run_that_is_over(alice: World) -> Sweeper:
    accepted = alice.say(alice.session(), "x")
    assert claim_one("dead") is not None
    lease_is_over(accepted)
    return Sweeper("w", _in_contact_since=float("-inf"))


def test_a_sweeper_waits_for_one_lease_after_it_lost_contact(alice: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It saw no error: its statement waited in a frozen server, and the database's clock tells."""
    sweeper = _sweeper_beside_a_run_that_is_over(alice)
    sweeper._seen_at = live_workers.database_clock() - timedelta(seconds=20)
    assert sweeper.take_next() is None
    assert Turn.objects.filter(worker="dead").exists()
    sweeper._in_contact_since = float("-inf")
    assert sweeper.take_next() is not None


def test_a_sweeper_that_never_lost_contact_takes_over(alice: World) -> None:
    sweeper = _sweeper_beside_a_run_that_is_over(alice)
    sweeper._seen_at = live_workers.database_clock()
    assert sweeper.take_next() is not None


def test_a_delayed_take_over_statement_takes_nothing_over(alice: World) -> None:
    """The statement was sent before an outage and executed after it, before the owner's renewal."""
    _sweeper_beside_a_run_that_is_over(alice)
    assert turns.take_over("w", until=live_workers.database_clock() - timedelta(seconds=1)) is None
    assert turns.take_over("w", until=live_workers.database_clock() + timedelta(seconds=60)) is not None


def test_clients_have_time_to_renew_their_presence_after_an_outage(alice: World) -> None:
    sweeper = Sweeper("w", _in_contact_since=float("-inf"))
    assert sweeper.take_next() is None
    assert sweeper.settled_until(15.0) is not None
    sweeper._seen_at = live_workers.database_clock() - timedelta(seconds=20)
    assert sweeper.take_next() is None
    assert sweeper.settled_until(15.0) is None


def test_a_delayed_query_for_vanished_clients_finds_none(alice: World) -> None:
    """Neither those whose connections were silent, nor those whose grace seems to be over."""
    session = alice.session()
    SessionClient.objects.create(session=session, tenant_id=session.tenant_id, client="c1", joined_at=timezone.now())
    past, future = (live_workers.database_clock() + timedelta(seconds=seconds) for seconds in (-1, 60))
    assert connections_of_clients.leave_vanished(past) == 0
    assert connections_of_clients.leave_vanished(future) == 1
    SessionClient.objects.update(left_at="2020-01-01T00:00:00Z")
    connections_of_clients.end_grace_periods(past)
    assert SessionClient.objects.exists()
    connections_of_clients.end_grace_periods(future)
    assert not SessionClient.objects.exists()


# --- calls that are made again ---


def test_a_steering_message_is_returned_again_if_the_commits_answer_was_lost(alice: World) -> None:
    session = alice.session()
    accepted = alice.say(session, "hello")
    claimed = claim_one("w")
    assert claimed is not None
    PendingMessage.objects.create(
        session=session,
        tenant_id=session.tenant_id,
        kind=PendingKind.STEERING,
        message_id="m",
        message=exact_json.dumps({"text": "to the left"}),
        created_at=timezone.now(),
    )
    place = StepRef(session.tenant_id, session.pk, accepted.turn_id, 1, 0)
    given = [turns.take_steering(claimed, place, 2, accepted.public_id, ()) for _ in range(2)]
    assert given == ["to the left", "to the left"]
    assert [role for role, _ in full(session)] == ["user", "user"]


@pytest.mark.parametrize("error", [OperationalError, NotReady])
async def test_a_call_is_repeated_until_the_database_answers(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "_FIRST_PAUSE", 0.0)
    failures = [error(), error()]

    async def ask() -> str:
        if failures:
            raise failures.pop()
        return "answer"

    assert await outage.outlast(ask) == "answer"


async def test_a_call_that_the_database_refuses_is_not_repeated() -> None:
    asked = []

    async def ask() -> None:
        asked.append(1)
        raise DataError

    with pytest.raises(DataError):
        await outage.outlast(ask)
    assert asked == [1]


async def test_a_call_that_fails_for_longer_than_an_outage_may_last_fails(settings: Any) -> None:
    settings.AGENTHOST_DATABASE_OUTAGE_SECONDS = 0.0

    async def ask() -> None:
        await asyncio.sleep(0)
        raise OperationalError

    with pytest.raises(OperationalError):
        await outage.outlast(ask)


def test_a_standby_that_is_not_promoted_yet_counts_as_an_outage() -> None:
    """Django has no class of its own for this refusal."""
    error = InternalError()
    assert not database.is_away(error)
    error.__cause__ = psycopg.errors.ReadOnlySqlTransaction()
    assert database.is_away(error)
