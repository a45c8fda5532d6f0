"""The state of a session: what a client sees of calls, pending messages and turns before it follows the events."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.core import turns
from sessions_app.core.base import byte_budget
from sessions_app.core.base.errors import SessionNotFound, TurnUnknown
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import session_changes
from sessions_app.core.sessions import deleting, state
from tests.core.client_actions import SEED, ends, make, put, start
from tests.core.conftest import World, claim_one, lease_is_over, wait_for
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("lasting_presence")]


def test_pending_messages_are_shown_by_kind_in_their_order(alice: World) -> None:
    session = make(alice)
    start(alice, session, "ahoy")
    for name, kind in (("m1", "queued"), ("m2", "queued"), ("s1", "steering")):
        put(alice, session, f"message {name}", name, kind)
    found = state.read(alice.caller, session)
    assert [(each["id"], each["message"]["text"]) for each in found.queued] == [("m1", "message m1"), ("m2", "message m2")]
    assert found.steering is not None
    assert found.steering["id"] == "s1"


def test_the_state_names_the_last_event_that_it_includes(alice: World) -> None:
    session = make(alice)
    before = state.read(alice.caller, session)
    session_changes.rename(alice.caller, session, "Another title", dispatched=action())
    after = state.read(alice.caller, session)
    *_, last = journal.read_session(session.tenant_id, session.pk, before.seq, limit=10).events
    assert (after.seq, after.summary.title) == (last.seq, "Another title")


def test_a_state_without_turns_has_all_else_however_long_the_history(
    alice: World, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_budget, "LEAST_RESERVED", 0)
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("one")]))
    ends(session, "t1")
    start(alice, session, model.script([call("add_one", {"n": 1})]), "t2")
    ends(session, "t2", "waiting")
    shown = state.read(alice.caller, session, 0)
    assert (shown.turns, shown.live, shown.summary.state) == ([], None, "waiting")
    assert [entry["kind"] for entry in shown.attention] == ["confirmation"]


def test_a_deleted_session_has_no_state_and_no_turns(alice: World) -> None:
    session = make(alice)
    deleting.delete(alice.caller, session)
    with pytest.raises(SessionNotFound):
        state.read(alice.caller, session)
    with pytest.raises(SessionNotFound):
        state.page(alice.caller, session, None, 10)


@pytest.mark.parametrize("before", ["unknown", "", "\0", "t1\0"])
def test_turns_before_one_that_the_session_never_had_are_unknown(alice: World, before: str) -> None:
    session = make(alice)
    start(alice, session, "ahoy")
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    assert [turn.id for turn in state.page(alice.caller, session, None, 10).turns] == ["t1"]
    with pytest.raises(TurnUnknown):
        state.page(alice.caller, session, before, 10)


def test_a_call_that_a_seed_left_open_has_no_result_among_the_seeds_turns(alice: World) -> None:
    calls = [{"type": "tool_use", "toolCallId": "c", "name": "add_one", "input": {"n": 1}}]
    session = alice.session(
        tools=[{"name": "add_one"}],
        seed=[{"role": "user", "content": "add"}, {"role": "assistant", "content": calls}],
        client_tools=[],
    )
    ((turn,)) = state.read(alice.caller, session).turns
    (part,) = turn.parts
    assert part.call is not None
    assert (part.call.status, part.call.how, part.call.input) == ("ended", "skipped", '{"n":1}')
    assert turn.ending == "complete"


@pytest.mark.rule("R119")
def test_turns_are_read_in_pages_from_newest_to_oldest(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = alice.session(seed=SEED)
    for number in (1, 2, 3):
        start(alice, session, model.script([text(f"answer {number}")]), f"t{number}")
        ends(session, f"t{number}")

    def page(before: str | None, limit: int) -> tuple[list[str], bool]:
        found = state.page(alice.caller, session, before, limit)
        return [turn.id for turn in found.turns], found.older

    assert page(None, 2) == (["t2", "t3"], True)
    assert page("t2", 2) == (["seed-6", "t1"], True)
    assert page("seed-6", 2) == (["seed-2"], False)
    assert page("seed-2", 2) == ([], False)
    assert page(None, 5) == (["seed-2", "seed-6", "t1", "t2", "t3"], False)
    shown = state.read(alice.caller, session, turns=3)
    assert ([turn.id for turn in shown.turns], shown.older) == (["t1", "t2", "t3"], True)
    with pytest.raises(TurnUnknown):
        page("nonsense", 2)


@pytest.mark.rule("R65")
def test_the_state_has_the_text_of_the_open_step_and_its_position(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("Half ", "an answer"), call("add_one", {"n": 1}), gate("hold")]))
    model.wait_gate("hold")

    def has_said_all() -> Any:
        shown = state.read(alice.caller, session)
        parts = [] if shown.live is None else shown.live.parts
        return shown if len(parts) == 2 and parts[1].call is not None and parts[1].call.input == '{"n": 1}' else None

    shown = wait_for(has_said_all, "all of it to be stored")
    assert shown.live is not None
    assert (shown.live.parts[0].text, shown.live.usage, shown.summary.state) == ("Half an answer", None, "working")
    view = shown.live.parts[1].call
    assert (view.status, view.name) == ("streaming", "add_one")
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    model.open_gate("hold")
    after = state.read(alice.caller, session)
    assert after.seq > shown.seq
    ended = after.turns[0].parts[1].call
    assert ended is not None
    assert (ended.status, ended.how, ended.has_input) == ("ended", "skipped", False)
    assert after.turns[0].parts[0].text == "Half an answer"


@pytest.mark.rule("R149")
def test_parts_of_a_dead_run_stay_before_those_of_the_next_run(alice: World, start_worker: Any, model: ModelServer) -> None:
    session = make(alice)
    accepted = start(alice, session, model.script([text("said by the second")]))
    claimed = claim_one("the first")
    assert claimed is not None
    begun = [
        Happening(Kind.STEP_STARTED, {"turn": "t1", "step": 1}),
        Happening(Kind.TEXT_OPENED, {"turn": "t1", "step": 1, "part": "1.0"}),
        Happening(Kind.CALL_OPENED, {"turn": "t1", "step": 1, "part": "1.1", "call": "c1", "name": "add_one"}),
        Happening(Kind.CALL_ARGUMENTS, {"turn": "t1", "call": "c1", "delta": '{"n"'}),
    ]
    with journal.transaction() as tx:
        for happening in begun:
            tx.append(NewEvent(session.tenant_id, session.pk, happening, fence=claimed.fence))
    lease_is_over(accepted)
    before = state.read(alice.caller, session).live
    assert before is not None
    taken = turns.take_over("the second")
    assert isinstance(taken, turns.Claimed)
    after = state.read(alice.caller, session).live
    assert after is not None
    assert [(part.id, part.kind) for part in after.parts] == [("1.0", "text"), ("1.1", "call")]
    view = after.parts[1].call
    assert view is not None
    assert (view.status, view.input) == ("streaming", '{"n"')
    assert (before.usage, after.usage) == (None, (0, 0, 0))
    lease_is_over(accepted)
    start_worker()
    ends(session, "t1")
    parts = state.read(alice.caller, session).turns[0].parts
    assert [(part.id, part.kind, part.text) for part in parts] == [
        ("1.0", "text", ""),
        ("1.1", "call", ""),
        ("2.0", "text", "said by the second"),
    ]
    assert [payload["step"] for _, payload in events(session, "step_done")] == [1, 2]
