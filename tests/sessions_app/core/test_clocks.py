"""Times that processes compare are the database's: a web whose clock is wrong hides, keeps and forgets nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from sessions_app.core import clients, connections, housekeeping, idempotency, sessions, turns
from sessions_app.core.idempotency import Once
from sessions_app.core.worker import Worker
from sessions_app.models import DispatchRecord, IdempotencyRecord, Session
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text
from tests.sessions_app.core.conftest import World, claim_one, turn_of, wait_for_state
from tests.sessions_app.core.dispatching import action
from tests.sessions_app.core.test_turns import READ_LOG
from tests.sessions_app.core.turns_of_clients.acting import make

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
    once = Once.of("/sessions", "key-1", {})

    def start() -> turns.Accepted:
        return turns.start(alice.caller, session, content="x", once=once)

    first = start()
    with wrong_clock(by):
        again = start()
        idempotency.forget_old()
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
    assert connections.end_graces() == 0
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    assert connections.end_graces() == 1


def test_a_session_that_was_deleted_by_a_web_whose_clock_is_behind_stays_for_its_readers(
    alice: World, wrong_clock: Wrong
) -> None:
    session = alice.session()
    with wrong_clock(BEHIND):
        sessions.delete(alice.caller, session)
    housekeeping.run()
    assert Session.with_deleted.filter(pk=session.pk).exists()
