"""Reopening a failed turn against everything that may happen at the same moment, and after a worker's death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.base.errors import DispatchedBefore, TurnAlreadyRunning
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.sessions import state
from sessions_app.core.turns import Claimed
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Form, Session, Turn, TurnAttempt
from tests.core import tools
from tests.core.conftest import World, claim_one, insert_call, kinds, lease_is_over, locked, turn_of, wait_for, wait_for_state
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - runs after each test
from tests.core.reopening import GOES_ON, failed, reopen
from tests.core.threads import at_once, errors_of, in_thread
from tests.core.turns.test_turns import full
from tests.fakes.model_server import ModelServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]

Start = Callable[[], Worker]


@pytest.fixture
def stopped(alice: World, start_worker: Start, model: ModelServer) -> tuple[Session, Turn]:
    """A failed turn, and no worker any more."""
    worker = start_worker()
    session, turn, _ = failed(alice, model)
    worker.stop(grace=0.2)
    return session, turn


@pytest.mark.rule("V98", "V146")
def test_of_two_clients_that_resume_at_once_one_wins(alice: World, stopped: tuple[Session, Turn]) -> None:
    session, turn = stopped
    both = [partial(turns.reopen, alice.caller, session, turn.public_id, dispatched=action(client=name)) for name in ("a", "b")]
    assert errors_of(at_once(*both)) == ["TurnAlreadyRunning", "done"]
    assert kinds(session).count("turn_reopened") == 1
    assert (TurnAttempt.objects.count(), Turn.objects.get(pk=turn.pk).run) == (1, 2)


def waiting_for_locks() -> int:
    with connection.cursor() as cursor:
        # A transaction would see the connections as they were when it first looked.
        cursor.execute("select pg_stat_clear_snapshot()")
        cursor.execute("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
        return int(cursor.fetchone()[0])


@pytest.mark.rule("V98")
@pytest.mark.parametrize("first", ["reopen", "start"])
def test_of_a_resumption_and_a_new_turn_at_once_the_first_wins(
    alice: World, stopped: tuple[Session, Turn], on_postgres: bool, first: str
) -> None:
    """Both wait for the session's lock, in the order in which they came."""
    if not on_postgres:
        pytest.skip("SQLite has one writer: nothing can come in between")
    session, turn = stopped
    outcomes: dict[str, Any] = {}

    def try_(name: str, act: Callable[[], object]) -> None:
        try:
            outcomes[name] = act()
        except TurnAlreadyRunning as error:
            outcomes[name] = error

    acts = {
        "reopen": partial(try_, "reopen", partial(turns.reopen, alice.caller, session, turn.public_id)),
        "start": partial(try_, "start", partial(turns.start, alice.caller, session, content="new", only_if_idle=True)),
    }
    second = next(name for name in acts if name != first)
    with locked(lambda: Session.objects.select_for_update().get(pk=session.pk)):
        threads = [in_thread(acts[first])]
        wait_for(lambda: waiting_for_locks() == 1, "the first waits")
        threads.append(in_thread(acts[second]))
        wait_for(lambda: waiting_for_locks() == 2, "the second waits behind it")
    for thread in threads:
        thread.join(90)
    assert isinstance(outcomes[first], turns.Accepted)
    assert isinstance(outcomes[second], TurnAlreadyRunning)
    live = Turn.objects.get(session=session, state="queued")
    assert (live.pk == turn.pk) is (first == "reopen")


def test_an_action_sent_again_over_another_connection_reopens_nothing(alice: World, stopped: tuple[Session, Turn]) -> None:
    session, turn = stopped
    sent = action("chat/turnResume")
    turns.reopen(alice.caller, session, turn.public_id, dispatched=sent)
    with pytest.raises(DispatchedBefore):
        turns.reopen(alice.caller, session, turn.public_id, dispatched=replace(sent, connection="w2"))
    assert turns.cancel(alice.caller, session).cancelled
    with pytest.raises(DispatchedBefore):
        turns.reopen(alice.caller, session, turn.public_id, dispatched=replace(sent, connection="w3"))
    assert kinds(session).count("turn_reopened") == 1


def test_a_failed_run_that_comes_late_can_store_nothing(alice: World, stopped: tuple[Session, Turn]) -> None:
    session, turn = stopped
    reopen(alice, session, turn)
    late = Happening(Kind.TEXT_DELTA, {"turn": turn.public_id, "step": 2, "part": "2.1", "delta": "late"}, "2.1")
    with pytest.raises(journal.StaleFence), journal.transaction() as tx:
        tx.append(NewEvent(session.tenant_id, session.pk, late, fence=turn.fence))
    assert turns.stop(turn.pk, turns.Stop(cause="internal", reason="error"), fence=turn.fence) is None
    turns.provider_closed(Claimed(turn.pk, turn.tenant_id, session.pk, turn.fence))
    row = Turn.objects.get(pk=turn.pk)
    assert (row.state, row.provider_closed_at) == ("queued", None)


# --- the death of workers ---


def speak(claimed: Claimed, turn: Turn, step: int, words: str) -> None:
    """What a run has streamed before its worker dies."""
    part = f"{step}.0"
    with journal.transaction() as tx:
        for happening in (
            Happening(Kind.STEP_STARTED, {"turn": turn.public_id, "step": step}),
            Happening(Kind.TEXT_OPENED, {"turn": turn.public_id, "step": step, "part": part}),
            Happening(Kind.TEXT_DELTA, {"turn": turn.public_id, "step": step, "part": part, "delta": words}, part),
        ):
            tx.append(NewEvent(claimed.tenant, claimed.session, happening, fence=claimed.fence))


def die(accepted: turns.Accepted, words: str, step: int) -> Claimed:
    claimed = claim_one("dead")
    assert claimed is not None
    assert claimed.turn_id == accepted.turn_id
    speak(claimed, turn_of(accepted), step, words)
    lease_is_over(accepted)
    assert isinstance(turns.take_over("other"), turns.Ended)
    return claimed


def test_a_run_whose_worker_died_in_mid_stream_can_go_on(alice: World, start_worker: Start, model: ModelServer) -> None:
    session = alice.session()
    accepted = alice.say(session, model.script(GOES_ON))
    die(accepted, "Half of", 1)
    turn = turn_of(accepted)
    assert (turn.error, turn.resumable, turn.step) == ("interrupted", True, 0)
    again = reopen(alice, session, turn)
    # The parts of the next step get other ids than those that clients have seen.
    assert turn_of(again).step == 1
    die(again, "Another", 2)
    last = reopen(alice, session, turn)
    start_worker()
    assert wait_for_state(last, "done").step == 3
    assert [text for _, text in full(session)[1:]] == ["Half of", "Another", "Two."]
    (shown,) = state.read(alice.caller, session).turns
    assert [(part.id, part.text) for part in shown.parts] == [("1.0", "Half of"), ("2.0", "Another"), ("3.0", "Two.")]
    requests = [each for each in model.requests if each.script == full(session)[0][1]]
    assert [[line["role"] for line in each.messages] for each in requests] == [["system", "user"]]


def test_the_text_of_the_failed_run_does_not_end_one_that_is_taken_over_before_it_speaks(
    alice: World, model: ModelServer
) -> None:
    session = alice.session()
    accepted = alice.say(session, model.script(GOES_ON))
    die(accepted, "Half of", 1)
    again = reopen(alice, session, turn_of(accepted))
    assert claim_one("dies at once") is not None
    lease_is_over(again)
    assert isinstance(turns.take_over("other"), turns.Claimed)
    (live,) = [state.read(alice.caller, session).live]
    assert live is not None
    assert [part.text for part in live.parts] == ["Half of"], "once"
    done = [payload["step"] for _, payload in events(session, "step_done")]
    assert done == [1]


def test_three_deaths_without_a_word_can_be_resumed_and_tools_do_not_run_twice(
    alice: World, start_worker: Start, model: ModelServer
) -> None:
    worker = start_worker()
    session, turn, _ = failed(alice, model)
    worker.stop(grace=0.2)
    accepted = reopen(alice, session, turn)
    assert claim_one("one") is not None
    for name in ("two", "three"):
        lease_is_over(accepted)
        assert isinstance(turns.take_over(name), turns.Claimed)
    lease_is_over(accepted)
    assert isinstance(turns.take_over("four"), turns.Ended)
    ended = turn_of(accepted)
    assert (ended.error, ended.takeovers, ended.resumable) == ("interrupted", 2, True)
    last = reopen(alice, session, ended)
    assert turn_of(last).takeovers == 0
    start_worker()
    wait_for_state(last, "done")
    assert tools.runs == [("add_one", 1)]


def test_a_turn_that_left_a_question_unanswered_is_not_resumable(alice: World) -> None:
    """Its question can be answered no more, and the live turn would seem to wait for an answer (V192, V503)."""
    session = alice.session()
    accepted = alice.say(session, "x")
    assert claim_one("dead") is not None
    insert_call(session, accepted, "c", "ask_user", runner="client")
    document: dict[str, Any] = {"id": "f1", "questions": []}
    values = {"tenant_id": session.tenant_id, "session": session, "turn_id": accepted.turn_id, "call_id": "c", "form_id": "f1"}
    with journal.transaction() as tx:
        Form.objects.create(**values, document=exact_json.dumps(document), created_at=turn_of(accepted).created_at)
        opened = Happening(Kind.FORM_OPENED, {"turn": accepted.public_id, "call": "c", "form": document})
        tx.append(NewEvent(session.tenant_id, session.pk, opened))
    assert turns.stop(accepted.turn_id, turns.Stop(cause="limit", reason="error")) is not None
    assert not turn_of(accepted).resumable
