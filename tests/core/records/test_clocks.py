"""Times that processes compare are the database's: a web whose clock is wrong hides, keeps and forgets nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents_app.spec import AgentSpec, ToolSpec
from agents_app.tools import questions
from sessions_app.core import turns
from sessions_app.core.records import clients, idempotency, live_workers, session_changes
from sessions_app.core.records.idempotency import IdempotencyKey
from sessions_app.core.sessions import connections, deleting, forms, truncating
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker
from sessions_app.models import DispatchRecord, Form, IdempotencyRecord, Session, Turn
from tests.core.client_actions import make
from tests.core.conftest import World, claim_one, turn_of, wait_for, wait_for_state
from tests.core.dispatching import action
from tests.core.turns.test_turns import READ_LOG
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text

AHEAD, BEHIND = timedelta(hours=3), -timedelta(hours=3)

Wrong = Callable[[timedelta], Any]


@pytest.fixture
def wrong_clock(monkeypatch: pytest.MonkeyPatch) -> Wrong:
    """Within the block this process's clock is off by so much, as a web's may be."""
    right: Callable[[], datetime] = timezone.now

    @contextmanager
    def wrong(by: timedelta) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(timezone, "now", lambda: right() + by)
            yield

    return wrong


@pytest.mark.rule("A78")
@pytest.mark.parametrize("by", [AHEAD, BEHIND])
def test_turns_of_a_web_whose_clock_is_wrong_are_found_by_the_sweep(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, wrong_clock: Wrong, settings: Any, by: timedelta
) -> None:
    settings.AGENTHOST_QUEUE_GRACE_SECONDS = 0.01
    session = alice.session(client_tools=[READ_LOG])
    with wrong_clock(by):
        accepted = alice.say(session, model.script([call("read_log", {}, id="c")], [text("well")]))
    start_worker()
    wait_for_state(accepted, "waiting")
    with wrong_clock(by):
        again = alice.answer(session, turns.ClientResult(0, "c", "read"))
    assert wait_for_state(again, "done").takeovers == 0


@pytest.mark.parametrize("by", [AHEAD, BEHIND])
def test_turns_stay_in_the_order_in_which_they_came(alice: World, wrong_clock: Wrong, by: timedelta) -> None:
    with wrong_clock(by):
        first = alice.say(alice.session(), "x")
    second = alice.say(alice.session(), "y")
    with wrong_clock(-by):
        third = alice.say(alice.session(), "z")
    assert [turns.claim("w").runs[0].turn_id for _ in range(3)] == [each.turn_id for each in (first, second, third)]


def test_a_turn_that_is_given_back_is_found_at_once(alice: World, wrong_clock: Wrong) -> None:
    accepted = alice.say(alice.session(), "x")
    claimed = claim_one("leaving")
    assert claimed is not None
    with wrong_clock(AHEAD):
        turns.give_back([claimed])
    again = claim_one("w")
    assert again is not None
    assert again.turn_id == accepted.turn_id
    assert turn_of(accepted).takeovers == 0


@pytest.mark.rule("A98")
@pytest.mark.parametrize("by", [timedelta(hours=30), -timedelta(hours=30)])
def test_a_request_that_comes_again_through_a_web_whose_clock_is_wrong_is_known(
    alice: World, wrong_clock: Wrong, by: timedelta
) -> None:
    session = alice.session()
    idempotency_key = IdempotencyKey.of("/sessions", "key-1", {})

    def start() -> turns.Accepted:
        return turns.start(alice.caller, session, content="x", idempotency_key=idempotency_key)

    first = start()
    with wrong_clock(by):
        again = start()
        idempotency.delete_old()
    assert (again.turn_id, again.repeated) == (first.turn_id, True)
    assert IdempotencyRecord.objects.count() == 1


@pytest.mark.parametrize("by", [timedelta(days=3), -timedelta(days=3)])
def test_a_workers_clock_that_is_wrong_forgets_no_dispatch(alice: World, wrong_clock: Wrong, by: timedelta) -> None:
    session = make(alice)
    with wrong_clock(by):
        clients.join(alice.caller, session, clients.Entry("c1", None, []), dispatched=action(client="c1"))
    housekeeping.run()
    clients.leave(alice.caller, session, "c1", dispatched=action(client="c1", seq=2))
    with wrong_clock(by):
        housekeeping.run()
    assert DispatchRecord.objects.count() == 2


@pytest.mark.parametrize("by", [AHEAD, BEHIND])
def test_a_grace_period_is_as_long_as_it_should_be(alice: World, wrong_clock: Wrong, settings: Any, by: timedelta) -> None:
    session = make(alice, client=clients.Entry("c1", None, []))
    with wrong_clock(by):
        clients.leave(alice.caller, session, "c1", dispatched=action(client="c1"))
    settings.AGENTHOST_AHP_GRACE_SECONDS = 3600.0
    assert connections.end_grace_periods() == 0
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    assert connections.end_grace_periods() == 1


def test_a_session_that_was_deleted_by_a_web_whose_clock_is_behind_stays_for_its_readers(
    alice: World, wrong_clock: Wrong
) -> None:
    session = alice.session()
    with wrong_clock(BEHIND):
        deleting.delete(alice.caller, session)
    housekeeping.run()
    assert Session.with_deleted.filter(pk=session.pk).exists()


# --- retention ---

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
A_MOMENT = timedelta(minutes=10)


def _old(world: World, **given: Any) -> Session:
    session = world.session(**given)
    Session.objects.filter(pk=session.pk).update(modified_at=LONG_AGO)
    return session


def _made(world: World) -> Session:
    return world.session()


def _renamed(world: World) -> Session:
    session = _old(world)
    session_changes.rename(world.caller, session, "A name", dispatched=action())
    return session


def _set_up(world: World) -> Session:
    session = _old(world)
    session_changes.change_settings(world.caller, session, options={}, approval="auto", dispatched=action())
    return session


def _cut(world: World) -> Session:
    session = _old(world)
    truncating.truncate(world.caller, session, None, dispatched=action())
    return session


def _cancelled(world: World) -> Session:
    session = _old(world)
    world.say(session, "x")
    turns.cancel(world.caller, session)
    return session


def _is_used_now(session: Session) -> None:
    """Whoever keeps sessions for a moment keeps it now, and keeps it no longer than that."""
    now = live_workers.database_clock()
    assert deleting.idle_sessions(session.tenant_id, now - A_MOMENT, 10) == []
    assert deleting.idle_sessions(session.tenant_id, now + A_MOMENT, 10) == [session.pk]


@pytest.mark.parametrize("by", [AHEAD, BEHIND])
@pytest.mark.parametrize("use", [_made, _renamed, _set_up, _cut, _cancelled])
def test_retention_counts_from_the_last_use_whatever_the_clock_of_the_web_was(
    alice: World, wrong_clock: Wrong, use: Callable[[World], Session], by: timedelta
) -> None:
    with wrong_clock(by):
        session = use(alice)
    _is_used_now(session)


@pytest.mark.parametrize("by", [AHEAD, BEHIND])
def test_retention_counts_from_the_end_of_the_last_turn_whatever_the_clock_of_its_worker_was(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, wrong_clock: Wrong, by: timedelta
) -> None:
    session = _old(alice, client_tools=[READ_LOG])
    with wrong_clock(by):
        start_worker()
        replaced = alice.say(session, model.script([call("read_log", {}, id="c")]))
        wait_for_state(replaced, "waiting")
        said = alice.say(session, model.script([text("well")]))
        wait_for_state(said, "done")
    _is_used_now(session)
    # Each by itself: the later of the two would hide the other.
    now = live_workers.database_clock()
    for accepted in (replaced, said):
        row = turn_of(accepted)
        assert row.ended_at is not None
        assert abs(row.ended_at - now) < A_MOMENT > abs(row.created_at - now)
    Turn.objects.filter(session=session).delete()
    _is_used_now(session)


@pytest.mark.parametrize("by", [AHEAD, BEHIND])
def test_an_answer_to_a_question_is_a_use_at_the_databases_time(
    alice: World,
    agents: Callable[..., AgentSpec],
    start_worker: Callable[[], Worker],
    model: ModelServer,
    wrong_clock: Wrong,
    by: timedelta,
) -> None:
    agents(tools=(*agents().tools, ToolSpec("ask_user", questions.SOURCE, parameters=questions.PARAMETERS)))
    start_worker()
    session = alice.session(tools=[{"name": "ask_user"}])
    asked = {"questions": [{"id": "name", "kind": "text", "message": "Name?"}]}
    accepted = alice.say(session, model.script([call("ask_user", asked)], [text("ok")]))
    form: Form = wait_for(lambda: Form.objects.filter(session=session).first(), "a form")
    answer = {"state": "draft", "value": {"kind": "text", "value": "Ada"}}

    def used(do: Callable[[], object]) -> None:
        Session.objects.filter(pk=session.pk).update(modified_at=LONG_AGO)
        with wrong_clock(by):
            do()
        used_at = Session.objects.get(pk=session.pk).modified_at
        assert abs(used_at - live_workers.database_clock()) < A_MOMENT

    used(lambda: forms.change_answer(alice.caller, session, form.form_id, "name", answer, dispatched=action()))
    used(lambda: forms.complete(alice.caller, session, form.form_id, "cancel", dispatched=action()))
    wait_for_state(accepted, "done")
