"""What is deleted is gone: from every answer at once, from every table soon after."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from sessions_app.core.base import maintenance
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.base.session_locks import Lock, SessionLocks
from sessions_app.core.log import journal
from sessions_app.core.sessions import deleting
from sessions_app.core.tenancy import access
from sessions_app.core.turns import Accepted
from sessions_app.core.worker import housekeeping, retention
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Message, Session, SessionTail, Tenant, Turn, WorkerPresence
from tests.core import tools
from tests.core.conftest import World, kinds, locked, wait_for, wait_for_state
from tests.core.turns.test_turns import READ_LOG
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text, thinking

WORD = "heliotrope"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def tables_with(word: str) -> list[str]:
    """Every table that has this word in any column of any row."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            name = connection.ops.quote_name(table)
            cursor.execute(f"select * from {name}")
            values = [value for row in cursor.fetchall() for value in row]
            if any(word in str(bytes(value) if isinstance(value, memoryview) else value) for value in values):
                found.append(table)
    return found


def _long_ago(session: Session) -> None:
    Session.with_deleted.filter(pk=session.pk).update(deleted_at=timezone.now() - timedelta(hours=1))


@pytest.mark.rule("A32", "A92")
@pytest.mark.parametrize("state", ["queued", "speaking", "in a tool", "waiting", "done"])
def test_a_session_deleted_in_any_state_leaves_no_content(
    alice: World,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    caplog: pytest.LogCaptureFixture,
    state: str,
) -> None:
    tools.forget()
    session = alice.session(
        tools=[{"name": "block", "trust": True}],
        client_tools=[{**READ_LOG, "description": WORD}],
        options={"tone": WORD, "key": WORD},
        seed=[{"role": "user", "content": WORD}, {"role": "assistant", "content": WORD}],
    )
    if state != "queued":
        start_worker()
    step = {
        "queued": [text(WORD)],
        "speaking": [thinking(WORD), text(WORD), gate("never")],
        "in a tool": [text(WORD), call("block", {"n": 1}, id=WORD)],
        "waiting": [text(WORD), call("read_log", {WORD: WORD}, id=WORD)],
        "done": [thinking(WORD), text(WORD)],
    }[state]
    accepted = alice.say(session, model.script(step))
    _reach(state, session, accepted)
    assert tables_with(WORD) != []
    with caplog.at_level(logging.DEBUG):
        deleting.delete(alice.caller, session)
        with pytest.raises(SessionNotFound):
            access.session(alice.caller, session.public_id)
        assert Turn.objects.get(pk=accepted.turn_id).state == ("done" if state == "done" else "cancelled")
        assert ("turn_cancelled" in kinds(session)) == (state != "done")
        housekeeping.run()
        assert tables_with(WORD) != [], "streams that were open still read the end"
        _long_ago(session)
        tools.release.set()
        housekeeping.run()
    assert tables_with(WORD) == []
    assert not Session.with_deleted.filter(pk=session.pk).exists()
    assert not SessionTail.objects.filter(session_id=session.pk).exists()
    assert WORD not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def _reach(state: str, session: Session, accepted: Accepted) -> None:
    match state:
        case "speaking":
            wait_for(lambda: "text_delta" in kinds(session), "the first words")
        case "in a tool":
            assert tools.entered.wait(90)
        case "waiting" | "done":
            wait_for_state(accepted, state)


def test_removing_one_session_leaves_the_next_alone(alice: World, model: ModelServer) -> None:
    gone, stays = alice.session(seed=[{"role": "user", "content": WORD}]), alice.session()
    accepted = alice.say(stays, "still here")
    deleting.delete(alice.caller, gone)
    _long_ago(gone)
    housekeeping.run()
    housekeeping.run()
    assert access.session(alice.caller, stays.public_id) == stays
    assert Turn.objects.get(pk=accepted.turn_id).state == "queued"
    assert kinds(stays) == ["session_created", "turn_started", "title_changed"]


def test_a_failing_step_does_not_stop_the_others(
    alice: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever it is, in every round."""
    names = [name for name, _ in housekeeping._STEPS]
    done: list[str] = []

    def fail() -> None:
        raise ValueError(WORD)

    for broken in range(len(names)):
        steps = [(name, fail if n == broken else partial(done.append, name)) for n, name in enumerate(names)]
        monkeypatch.setattr(housekeeping, "_STEPS", steps)
        done.clear()
        housekeeping.run()
        assert done == [name for n, name in enumerate(names) if n != broken]
    assert caplog.text.count("housekeeping_failed") == len(names)
    assert WORD not in caplog.text


def test_a_deleted_session_that_cannot_be_removed_delays_no_other_and_no_retention(
    alice: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound, idle = (alice.session() for _ in range(3))
    Tenant.objects.update(session_retention_days=1)
    for session in (broken, sound):
        deleting.delete(alice.caller, session)
        _long_ago(session)
    Session.with_deleted.filter(pk=broken.pk).update(deleted_at=LONG_AGO)
    Session.objects.filter(pk=idle.pk).update(modified_at=LONG_AGO)
    original = journal.forget_session

    def forget(session: int) -> None:
        if session == broken.pk:
            raise ValueError(WORD)
        original(session)

    monkeypatch.setattr(journal, "forget_session", forget)
    monkeypatch.setattr(housekeeping, "_SESSIONS_A_RUN", 1)
    for _ in range(2):
        housekeeping.run()
    assert set(Session.with_deleted.values_list("pk", flat=True)) == {broken.pk, idle.pk}
    assert not Session.objects.exists(), "the idle one is deleted"
    assert caplog.text.count(f"row={broken.pk}") == 2, "once a round"
    assert WORD not in caplog.text


@pytest.mark.parametrize("table", ["session", "turn", "message"])
def test_a_locked_row_of_a_deleted_session_delays_no_other_session(
    alice: World, bob: World, on_postgres: bool, table: str
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    held, free = (world.session(seed=[{"role": "user", "content": WORD}]) for world in (alice, bob))
    for world, session in ((alice, held), (bob, free)):
        world.say(session, "x")
        deleting.delete(world.caller, session)
        _long_ago(session)
    Session.with_deleted.filter(pk=held.pk).update(deleted_at=LONG_AGO)
    rows: dict[str, QuerySet[Any]] = {
        "session": Session.with_deleted.filter(pk=held.pk),
        "turn": Turn.objects.filter(session_id=held.pk),
        "message": Message.objects.filter(session_id=held.pk),
    }
    with locked(lambda: list(rows[table].select_for_update())):
        housekeeping.run()
        assert set(Session.with_deleted.values_list("pk", flat=True)) == {held.pk}
    housekeeping.run()
    assert not Session.with_deleted.exists()


def test_a_locked_session_does_not_delay_the_retention_of_others(
    alice: World, on_postgres: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    monkeypatch.setattr(retention, "BATCH", 1)
    Tenant.objects.update(session_retention_days=1)
    held, free = alice.session(), alice.session()
    Session.objects.filter(pk=held.pk).update(modified_at=LONG_AGO)
    Session.objects.filter(pk=free.pk).update(modified_at=LONG_AGO + timedelta(days=1))
    with locked(lambda: list(Session.objects.filter(pk=held.pk).select_for_update())):
        assert retention.enforce(60) == 1
        assert list(Session.objects.values_list("pk", flat=True)) == [held.pk]
    assert retention.enforce(60) == 1


def test_locked_rows_are_skipped_by_batch_deletes(alice: World, on_postgres: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    monkeypatch.setattr(maintenance, "_DELETE_BATCH", 2)
    for number in range(5):
        WorkerPresence.objects.create(worker=f"w{number}", host="h", pid=1, started_at=LONG_AGO, seen_at=LONG_AGO)
    with locked(lambda: list(WorkerPresence.objects.filter(worker="w0").select_for_update())):
        housekeeping.run()
        assert list(WorkerPresence.objects.values_list("worker", flat=True)) == ["w0"]
    housekeeping.run()
    assert not WorkerPresence.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only Postgres has several processes")
def test_a_round_waits_for_that_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    other = SessionLocks(60.0)

    def first() -> None:
        steps.append("first")
        # Between two steps this process loses its lock.
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()"
                " and database = (select oid from pg_database where datname = current_database())"
            )
        wait_for(lambda: other.hold(Lock.HOUSEKEEPING), "the lock")

    monkeypatch.setattr(housekeeping, "_STEPS", [("first", first), ("second", lambda: steps.append("second"))])
    try:
        run_round()
        assert steps == ["first"]
        run_round()
        assert steps == ["first"]
    finally:
        other.close()
    monkeypatch.setattr(housekeeping, "_STEPS", [("last", lambda: steps.append("last"))])
    wait_for(lambda: run_round() and "last" in steps, "a round")


def run_round() -> bool:
    housekeeping.start()
    wait_for(lambda: not housekeeping._database._running.locked(), "the end of the round")
    return True
