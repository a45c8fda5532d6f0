"""Runs as clients see them: the events of their steps, the ids of their calls, their deadlines."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agents_app import exact_json
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.records import clients, conversation, conversation_facts, stored_messages
from sessions_app.core.sessions import connections
from sessions_app.core.worker.runner import Run
from sessions_app.core.worker.worker import Worker
from sessions_app.models import CallState, Session, ToolCall
from tests.core import tools
from tests.core.client_actions import OPEN_FILE, ends, make, start, waiting_call
from tests.core.conftest import World, turn_of, wait_for, wait_for_state
from tests.core.dispatching import events
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, drop, gate, text, thinking, usage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]

BEFORE_THE_RUN = ("session_created", "turn_started", "title_changed", "run_started")
ADD_ONE: list[dict[str, Any]] = [{"name": "add_one", "trust": True}]


def call_ids(session: Session) -> list[str]:
    return list(ToolCall.objects.filter(session=session).order_by("step", "ordinal").values_list("call_id", flat=True))


def test_every_step_has_its_parts_calls_results_and_tokens_in_stream_order(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=ADD_ONE)
    first = [thinking("Count."), text("Adding"), call("add_one", {"n": 1}, id="c1"), usage(10, 4)]
    accepted = alice.say(session, model.script(first, [text("Two."), usage(20, 2)]))
    wait_for_state(accepted, "done")
    seen = [
        (kind, payload.get("step"))
        for kind, payload in events(session)
        if kind not in BEFORE_THE_RUN and not kind.endswith(("_delta", "_arguments"))
    ]
    assert seen == [
        ("step_started", 1),
        ("thinking_opened", 1),
        ("text_opened", 1),
        ("call_opened", 1),
        ("thinking_done", 1),
        ("text_done", 1),
        ("call_ready", 1),
        ("step_done", 1),
        ("call_running", None),
        ("activity_changed", None),
        ("call_finished", None),
        ("activity_changed", None),
        ("step_started", 2),
        ("text_opened", 2),
        ("text_done", 2),
        ("step_done", 2),
        ("turn_ended", None),
    ]
    # A step's usage is the turn's so far.
    usages = [payload["usage"] for _, payload in events(session, "step_done")]
    assert [(each["input_tokens"], each["output_tokens"]) for each in usages] == [(10, 4), (30, 6)]
    assert [payload["activity"] for _, payload in events(session, "activity_changed")] == ["Running add_one", None]
    assert [part["kind"] for part in exact_json.loads(turn_of(accepted).parts)] == ["thinking", "text", "call", "text"]


def test_when_two_tools_end_together_the_last_word_is_that_none_runs(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if what follows from the first one's end has to be read, and that takes longer than for the second."""
    read, first = conversation_facts.following_in_run, threading.Lock()

    def slow_for_the_first(session: int, happenings: Sequence[Happening]) -> list[Happening]:
        if any(each.kind is Kind.CALL_FINISHED for each in happenings) and first.acquire(blocking=False):
            until = time.monotonic() + 0.5
            while time.monotonic() < until and not ToolCall.objects.filter(session=session, state=CallState.DONE).exists():
                time.sleep(0.01)
        return read(session, happenings)

    monkeypatch.setattr(conversation, "needs_rows", lambda _: True)
    monkeypatch.setattr(conversation_facts, "following_in_run", slow_for_the_first)
    start_worker()
    session = alice.session(tools=[{"name": "block", "trust": True}])
    both = [call("block", {"n": 1}, id="one", index=0), call("block", {"n": 2}, id="two", index=1)]
    accepted = alice.say(session, model.script(both, [text("ok")]))
    wait_for(lambda: len(events(session, "call_running")) == 2, "both calls run")
    tools.release.set()
    wait_for_state(accepted, "done")
    assert [payload["activity"] for _, payload in events(session, "activity_changed")][-1] is None


@pytest.mark.parametrize("wanted", ["again", "x" * 257, ""], ids=["used before", "too long", "empty"])
def test_a_call_whose_id_cannot_be_used_gets_a_new_one(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, wanted: str
) -> None:
    start_worker()
    session = alice.session(tools=ADD_ONE)
    script = model.script([call("add_one", {"n": 1}, id="again")], [call("add_one", {"n": 2}, id=wanted)], [text("ok")])
    wait_for_state(alice.say(session, script), "done")
    first, second = call_ids(session)
    assert first == "again"
    assert second.startswith("call_")
    assert tools.runs == [("add_one", 1), ("add_one", 2)]
    results = {line.tool_call_id: line.content for line in stored_messages.read(session, "full") if line.role == "tool"}
    assert results == {first: '"2"', second: '"3"'}


def test_two_calls_of_one_message_with_the_same_id_get_different_ones(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=ADD_ONE)
    both = [call("add_one", {"n": 1}, id="same", index=0), call("add_one", {"n": 2}, id="same", index=1)]
    wait_for_state(alice.say(session, model.script(both, [text("ok")])), "done")
    ids = call_ids(session)
    assert len(set(ids)) == 2
    assert "same" in ids


def test_a_clients_deadline_ends_the_run_that_it_was_set_for(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    for deadline in (1.0, 8.0, 30.0):
        session = alice.session()
        script = model.script([text("so far"), gate("hold")])
        accepted = turns.start(alice.caller, session, content=script, deadline=deadline)
        ended = wait_for_state(accepted, "cancelled", "done", "error")
        if stored_messages.read(session, "full")[-1].role == "assistant":
            break  # A busy machine may need longer to the first words.
    assert (ended.state, ended.stop_reason) == ("cancelled", "error")
    ((_, end),) = events(session, "turn_cancelled")
    assert (end["cause"], end["in_run"]) == ("deadline", True)
    assert stored_messages.read(session, "full")[-1].content == '"so far"'


def test_an_agents_limit_that_is_shorter_than_the_deadline_is_the_reason_of_the_end(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    agents(limits=Limits(run=0.5))
    start_worker()
    accepted = turns.start(alice.caller, alice.session(), content=model.script([text("so far"), gate("hold")]), deadline=50.0)
    ended = wait_for_state(accepted, "cancelled", "done", "error")
    assert (ended.state, ended.error) == ("error", "limit")


def test_the_events_of_a_clients_call_name_its_tool_and_its_owner(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    start(alice, session, model.script([call("open_file", {"path": "a"}, id="c")], [text("ok")]))
    waiting_call(session, "open_file")
    ends(session, "t1", "waiting")
    for kind in ("call_opened", "call_ready"):
        ((_, payload),) = events(session, kind)
        assert (payload["call"], payload["name"], payload["title"], payload["client"]) == ("c", "open_file", "Open a file", "c1")
    assert events(session)[-1][0] == "run_paused"


def test_a_provider_that_fails_after_its_first_words_ends_the_turn_with_facts_for_operators(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    ended = wait_for_state(alice.say(session, model.script([text("half"), drop()])), "error")
    failure = exact_json.loads(ended.failure or "null")
    assert ended.error == "provider_failed"
    assert (failure["provider"], failure["after_output"]) == ("openai-chat", True)
    ((_, payload),) = events(session, "turn_failed")
    assert payload["error"] == "provider_failed"
    assert "failure" not in payload


def test_a_run_that_has_ended_does_not_wait_for_the_garbage_collector(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has a whole conversation; in a circle of references hundreds of them would stay in memory."""
    ends: list[tuple[weakref.ref[Run], threading.Event]] = []
    drive = Run.drive

    async def driven(run: Run) -> None:
        ended = threading.Event()
        ends.append((weakref.ref(run, lambda _: ended.set()), ended))
        await drive(run)

    monkeypatch.setattr(Run, "drive", driven)
    start_worker()
    # Without a turn before it, what the first one imports and remembers could have it too.
    wait_for_state(alice.say(alice.session(), model.script([text("warm")])), "done")
    gc.disable()
    try:
        session = alice.session(tools=ADD_ONE)
        script = model.script([text("a"), call("add_one", {"n": 1}, id="c1")], [thinking("b"), text("c"), usage(1, 1)])
        wait_for_state(alice.say(session, script), "done")
        # A turn may be done a moment before its run has ended, so each run has an end of its own.
        run, ended = ends[-1]
        assert ended.wait(30), "the run is still there"
        assert run() is None
    finally:
        gc.enable()
