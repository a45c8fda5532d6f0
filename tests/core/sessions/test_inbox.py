"""Messages that wait for a turn of their own, or for a place in the running one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents_app import registry
from agents_app.spec import AgentSpec, OptionSpec
from sessions_app.core import turns
from sessions_app.core.base.errors import NotPossible, TurnAlreadyRunning
from sessions_app.core.records import clients, session_changes
from sessions_app.core.sessions import connections, inbox, state
from sessions_app.models import PendingMessage, Turn
from tests.core import tools
from tests.core.client_actions import (
    ends,
    make,
    put,
    said,
    start,
    state_of,
)
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.core.threads import at_once, errors_of
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]


@pytest.mark.rule("R212")
def test_the_first_queued_message_starts_when_the_turn_ends(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("one"), gate("hold")]))
    model.wait_gate("hold")
    put(alice, session, model.script([text("two")]), "m1")
    put(alice, session, model.script([text("three")]), "m2")
    inbox.reorder(alice.caller, session, ["m2", "unknown", "m2"], dispatched=action())
    assert [each["id"] for each in state.read(alice.caller, session).queued] == ["m2", "m1"]
    model.open_gate("hold")
    wait_for(lambda: Turn.objects.filter(session=session, state="done").count() == 3, "three turns")
    assert [content for role, content in said(session) if role == "assistant"] == ["one", "three", "two"]
    told = [(kind, payload.get("id") or payload.get("queued")) for kind, payload in events(session)]
    order = [each for each in told if each[0] in ("turn_ended", "message_not_pending", "turn_started")]
    assert order == [
        ("turn_started", None),
        ("turn_ended", None),
        ("message_not_pending", "m2"),
        ("turn_started", "m2"),
        ("turn_ended", None),
        ("message_not_pending", "m1"),
        ("turn_started", "m1"),
        ("turn_ended", None),
    ]


@pytest.mark.rule("R154", "R212")
@pytest.mark.parametrize("kind", ["queued", "steering"])
def test_the_model_gets_the_files_that_were_attached_to_a_pending_message(
    alice: World, start_worker: Any, model: ModelServer, kind: Any
) -> None:
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("block", {"n": 1})], [text("one")]))
    assert tools.entered.wait(60)
    attached = [{"type": "resource", "label": "a.txt", "uri": "file:///w/a.txt"}]
    message = inbox.UserMessage("look", attached)
    files = {"file:///w/a.txt": b"the content\n", "file:///w/unnamed": b"not attached"}
    inbox.put(alice.caller, session, kind, "m", message, files=files, dispatched=action())
    tools.release.set()
    # The scripted model repeats what it gets.
    wait_for(lambda: "the content" in str(said(session)[-1:]) and said(session)[-1][0] == "assistant", "the answer")
    shown = [content for role, content in said(session) if role == "user"][-1]
    assert shown == [{"type": "text", "text": message.text}, {"type": "text", "text": "Attachment a.txt:\nthe content\n"}]
    assert not PendingMessage.objects.filter(session=session).exists()


@pytest.mark.rule("R143")
def test_a_turns_end_with_a_follower_comes_after_all_its_deltas(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice)
    clients.join(alice.caller, session, clients.Entry("c1", None, []), dispatched=action())
    for number in range(10):
        start(alice, session, model.script([text(*(f"{number}.{word} " for word in range(40)))]), f"t{number}")
        ends(session, f"t{number}")
    seen: list[str] = []
    for kind, payload in events(session):
        if kind == "text_opened":
            seen.append("")
        elif kind == "text_delta":
            assert seen, "said before it was opened"
            seen[-1] += payload["delta"]
        elif kind == "text_done":
            assert seen[-1] == payload["text"]
    assert len(seen) == 10


@pytest.mark.rule("R213")
def test_a_message_queued_while_nothing_runs_starts_at_once(alice: World) -> None:
    session = make(alice)
    put(alice, session, "hello")
    told = [kind for kind, _ in events(session)][1:]
    assert told == ["message_pending", "message_not_pending", "turn_started", "title_changed"]
    assert not PendingMessage.objects.exists()


@pytest.mark.rule("R212")
def test_the_queue_is_paused_after_a_cancel_until_a_client_acts(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("one"), gate("hold")]))
    model.wait_gate("hold")
    for name in ("m1", "m2"):
        put(alice, session, model.script([text(name)]), name)
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    model.open_gate("hold")
    assert [each["id"] for each in state.read(alice.caller, session).queued] == ["m1", "m2"]
    inbox.remove(alice.caller, session, "queued", "m1", dispatched=action())
    wait_for(lambda: Turn.objects.filter(session=session, state="done").count() == 1, "the queued turn")
    assert [content for role, content in said(session) if role == "assistant"][-1] == "m2"
    with pytest.raises(NotPossible):
        inbox.remove(alice.caller, session, "queued", "m2", dispatched=action())


@pytest.mark.rule("R212")
def test_the_queue_continues_after_a_turn_that_was_started_over_aap(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("one"), gate("hold")]))
    model.wait_gate("hold")
    put(alice, session, model.script([text("queued")]))
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    model.open_gate("hold")
    alice.say(session, model.script([text("over aap")]))
    wait_for(lambda: Turn.objects.filter(session=session, state="done").count() == 2, "both turns")
    assert [content for role, content in said(session) if role == "assistant"][-2:] == ["over aap", "queued"]


@pytest.mark.rule("R215")
def test_a_cancel_and_a_removal_never_let_a_removed_message_run(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("one"), gate("hold")]))
    model.wait_gate("hold")
    put(alice, session, "never run")
    outcomes = at_once(
        lambda: turns.cancel_turn(alice.caller, session, "t1", dispatched=action()),
        lambda: inbox.remove(alice.caller, session, "queued", "m1", dispatched=action()),
    )
    assert errors_of(outcomes) == ["done", "done"]
    model.open_gate("hold")
    assert state_of(session, "t1") == "cancelled"
    assert not Turn.objects.filter(session=session).exclude(public_id="t1").exists()


@pytest.mark.rule("R212")
@pytest.mark.parametrize("attempt", range(4))
def test_a_cancel_at_the_end_of_a_turn_comes_before_it_or_too_late(
    alice: World, start_worker: Any, model: ModelServer, attempt: int
) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text(f"one {attempt}"), gate("hold")]))
    model.wait_gate("hold")
    put(alice, session, model.script([text("queued")]))
    outcomes = at_once(
        lambda: model.open_gate("hold"),
        lambda: turns.cancel_turn(alice.caller, session, "t1", dispatched=action()),
    )
    ended = ends(session, "t1", "done", "cancelled")
    if ended.state == "done":
        assert errors_of(outcomes) == ["NotPossible", "done"]
        wait_for(lambda: Turn.objects.filter(session=session, state="done").count() == 2, "the queued turn")
    else:
        assert errors_of(outcomes) == ["done", "done"]
        assert [each["id"] for each in state.read(alice.caller, session).queued] == ["m1"]
        assert Turn.objects.filter(session=session).count() == 1


@pytest.mark.rule("R148")
def test_a_clients_turn_and_the_queues_next_turn_are_never_live_together(
    alice: World, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("one"), gate("hold")]))
    model.wait_gate("hold")
    put(alice, session, model.script([text("queued")]))
    model.open_gate("hold")
    mine = model.script([text("mine")])

    def try_until_free() -> bool:
        try:
            start(alice, session, mine, "t2")
        except TurnAlreadyRunning:
            return False
        return True

    wait_for(try_until_free, "the session to be free")
    ends(session, "t2")
    assert [content for role, content in said(session) if role == "assistant"] == ["one", "queued", "mine"]


@pytest.mark.rule("R211")
def test_a_steering_message_is_added_between_two_model_calls(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("block", {"n": 1})], [text("never asked")]))
    assert tools.entered.wait(60)
    right = model.script([text("as you wish")])
    put(alice, session, "left", "s1", "steering")
    put(alice, session, right, "s2", "steering")
    tools.release.set()
    ends(session, "t1")
    assert [role for role, _ in said(session)] == ["user", "assistant", "tool", "user", "assistant"]
    assert said(session)[3:] == [("user", right), ("assistant", "as you wish")]
    assert [message["role"] for message in model.requests_of(right)[0].messages][-2:] == ["tool", "user"]
    told = [(kind, payload["id"]) for kind, payload in events(session) if kind in ("message_not_pending", "turn_steered")]
    assert told == [("message_not_pending", "s2"), ("turn_steered", "s2")]


@pytest.mark.rule("R211")
def test_a_steering_message_that_comes_too_late_waits_for_the_next_turn(
    alice: World, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("one"), gate("hold")]))
    model.wait_gate("hold")
    put(alice, session, "later", "s1", "steering")
    model.open_gate("hold")
    ends(session, "t1")
    steering = state.read(alice.caller, session).steering
    assert steering is not None
    assert (steering["id"], steering["message"]) == ("s1", {"text": "later"})
    script = model.script([text("two")])
    start(alice, session, script, "t2")
    ends(session, "t2")
    assert said(session)[-2] == ("user", "later")


@pytest.mark.rule("R222")
def test_a_model_change_during_a_turn_takes_effect_at_its_end(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer
) -> None:
    options = (OptionSpec("select", "model", default="small", options=("small", "large")), OptionSpec("secret", "key"))
    spec = agents(options=options)
    with registry.use([replace(spec, model="openai-chat:{model}")]):
        start_worker()
        session = make(alice)
        first, second = model.script([text("one"), gate("hold")]), model.script([text("two")])
        start(alice, session, first)
        model.wait_gate("hold")
        put(alice, session, second)
        session_changes.change_model(alice.caller, session, "large", dispatched=action())
        session_changes.change_model(alice.caller, session, "small", dispatched=action())
        session_changes.change_model(alice.caller, session, "large", dispatched=action())
        assert not [kind for kind, _ in events(session) if kind == "model_changed"]
        model.open_gate("hold")
        wait_for(lambda: Turn.objects.filter(session=session, state="done").count() == 2, "both turns")
        told = [kind for kind, _ in events(session) if kind in ("turn_ended", "model_changed", "message_not_pending")]
        assert told == ["turn_ended", *["model_changed"] * 3, "message_not_pending", "turn_ended"]
        assert model.requests_of(second)[0].body["model"] == "large"
