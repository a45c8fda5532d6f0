"""Turns as clients start and cancel them, and what is told of them while they run."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sessions_app.core import turns
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import DispatchedBefore, InvalidInput, NotPossible, TurnAlreadyRunning
from sessions_app.core.base.user_messages import content_of
from sessions_app.core.log import broadcast
from sessions_app.core.records import session_changes
from sessions_app.core.sessions import entries, inbox, state
from sessions_app.core.sessions.inbox import UserMessage
from sessions_app.models import Turn
from tests.core import tools
from tests.core.client_actions import (
    ends,
    make,
    said,
    start,
    state_of,
    waiting_call,
)
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.core.on_loop import on_loop
from tests.fakes.model_server import ModelServer
from tests.fakes.pictures import PIXEL
from tests.fakes.steps import call, gate, text, usage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]


@pytest.mark.rule("R140")
def test_a_turn_has_the_clients_id_and_gives_the_session_its_title(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    session_changes.mark_read(alice.caller, session, read=True, dispatched=action())
    script = model.script([text("Aye.")])
    start(alice, session, script, "my turn/1")
    turn = ends(session, "my turn/1")
    assert turn.said is None
    (started,) = [payload for kind, payload in events(session) if kind == "turn_started"]
    message = {"content": script}
    assert started == {"turn": "my turn/1", "run": 1, "started_at": turn.began, "message": message, "model": "openai-chat:test"}
    summary = entries.of(alice.caller.tenant, [session.pk])[session.pk]
    assert (summary.title, summary.read, summary.state) == (script, False, "idle")
    with pytest.raises(NotPossible):
        start(alice, session, "again", "my turn/1")
    with pytest.raises(NotPossible):
        start(alice, session, "again", "")


@pytest.mark.rule("R153")
def test_a_title_that_a_client_has_set_stays(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    session_changes.rename(alice.caller, session, "Mine", dispatched=action())
    start(alice, session, model.script([text("ok")]))
    ends(session, "t1")
    assert [payload["title"] for kind, payload in events(session) if kind == "title_changed"] == ["Mine"]


@pytest.mark.rule("R382")
def test_two_sessions_may_use_the_same_turn_id(alice: World, bob: World) -> None:
    for session, world in ((make(alice), alice), (make(alice, uri="sailor:/two"), alice), (make(bob), bob)):
        start(world, session, "hello")
    assert Turn.objects.filter(public_id="t1").count() == 3


@pytest.mark.rule("R154")
def test_attachments_reach_the_model_and_are_shown_as_they_were_sent(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    script = model.script([text("ok")])
    notes = base64.b64encode(b"one\ntwo\nthree").decode()
    selection = {"range": {"start": {"line": 1, "character": 1}, "end": {"line": 2, "character": 2}}}
    attachments: list[dict[str, Any]] = [
        {"type": "simple", "label": "L", "modelRepresentation": "words", "_meta": {"z": 1}},
        {"type": "embeddedResource", "label": "notes", "data": notes, "contentType": "text/plain", "selection": selection},
        {"type": "embeddedResource", "label": "pic", "data": PIXEL.rpartition(",")[2], "contentType": "image/png"},
        {"type": "embeddedResource", "label": "bin", "data": "AAAA", "contentType": "application/zip"},
        {"type": "resource", "label": "page", "uri": "https://x.test/p"},
    ]
    message = UserMessage(script, attachments)
    content = content_of(message, ("data",))
    turns.start(alice.caller, session, content=content, turn_id="t1", as_written=message, dispatched=action())
    ends(session, "t1")
    assert content == [
        {"type": "text", "text": script},
        {"type": "text", "text": "words"},
        {"type": "text", "text": "Attachment notes (lines 2 to 3):\nwo\nth"},
        {"type": "image", "url": PIXEL},
        {"type": "text", "text": "[Attachment bin: application/zip, 3 bytes that cannot be shown here]"},
        {"type": "text", "text": "[Attachment page: https://x.test/p]"},
    ]
    assert said(session)[0] == ("user", content)
    shown = state.read(alice.caller, session).turns[0]
    assert (shown.text, shown.attachments) == (script, attachments)
    with pytest.raises(InvalidInput):
        content_of(UserMessage("  "), ())
    with pytest.raises(InvalidInput):
        content_of(UserMessage("x", [{**attachments[2], "data": "%"}]), ())
    with pytest.raises(InvalidInput) as caught:
        content_of(UserMessage("x", [{**attachments[2], "data": "AAAA"}]), ("data",))
    assert [fault.path for fault in caught.value.faults] == [("userMessage", "attachments", 0, "data")]
    # No model could see it, and none is said to.
    drawing = {**attachments[2], "contentType": "image/svg+xml", "data": "PHN2Zy8+"}
    assert content_of(UserMessage("", [drawing]), ("data",)) == [
        {"type": "text", "text": "[Attachment pic: image/svg+xml, 6 bytes that cannot be shown here]"}
    ]


@pytest.mark.rule("R90")
def test_a_live_turn_prevents_a_new_one_even_while_it_waits(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("never")]))
    waiting_call(session, "add_one")
    ends(session, "t1", "waiting")
    with pytest.raises(TurnAlreadyRunning):
        start(alice, session, "me too", "t2")
    # Over AAP a new message ends it (R387).
    alice.say(session, model.script([text("new")]))
    wait_for(lambda: Turn.objects.filter(session=session, state="done").exists(), "the new turn's end")
    assert state_of(session, "t1") == "cancelled"
    closed = [payload for kind, payload in events(session) if kind == "call_denied"]
    assert [each["closing"] for each in closed] == [True]


@pytest.mark.rule("R146")
def test_a_cancel_stops_its_turn_and_its_event_has_the_origin(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([text("Half"), gate("hold"), text("never")]))
    model.wait_gate("hold")
    with pytest.raises(NotPossible):
        turns.cancel_turn(alice.caller, session, "other", dispatched=action())
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    assert state_of(session, "t1") == "cancelled"
    with pytest.raises(NotPossible):
        turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    model.open_gate("hold")


@pytest.mark.rule("R144")
def test_the_state_has_the_sum_of_the_turns_tokens(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("add_one", {"n": 1}), usage(10, 2)], [text("ok"), usage(20, 3, 5)]))
    ends(session, "t1")
    assert state.read(alice.caller, session).turns[0].usage == (30, 5, 5)


@pytest.mark.rule("R152")
def test_the_activity_is_published_and_cleared(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("block", {"n": 1})], [text("never")]))
    assert tools.entered.wait(60)
    wait_for(lambda: entries.of(alice.caller.tenant, [session.pk])[session.pk].activity, "an activity")
    assert entries.of(alice.caller.tenant, [session.pk])[session.pk].activity == "Running block"
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    told = [payload["activity"] for kind, payload in events(session) if kind == "activity_changed"]
    assert told == ["Running block", None]


def test_concurrent_tools_leave_no_activity_behind(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice, approval="auto")
    both = [call("block", {"n": 1}), *(call("add_one", {"n": number}) for number in range(6))]
    start(alice, session, model.script(both, [text("ok")]))
    assert tools.entered.wait(60)
    # Looks at its calls while they end.
    for number in range(20):
        session_changes.rename(alice.caller, session, f"title {number}", dispatched=action())
        row = Turn.objects.get(session=session)
        broadcast.notify_worker(row.worker, {"turn": row.pk, "what": "answered"})
    tools.release.set()
    ends(session, "t1")
    told = [payload["activity"] for kind, payload in events(session) if kind == "activity_changed"]
    assert told[-1] is None
    assert len(told) == 14


def test_a_session_that_belongs_to_another_tenant_takes_no_action(alice: World, bob: World) -> None:
    session = make(alice)
    from sessions_app.core.base.errors import SessionNotFound

    def refused(act: Callable[[Caller], Any]) -> None:
        with pytest.raises(SessionNotFound):
            act(bob.caller)

    refused(lambda caller: inbox.put(caller, session, "queued", "m", UserMessage("x"), dispatched=action()))
    refused(lambda caller: state.read(caller, session))
    refused(lambda caller: session_changes.rename(caller, session, "x", dispatched=action()))
    refused(lambda caller: turns.cancel_turn(caller, session, "t", dispatched=action()))
    assert [kind for kind, _ in events(session)] == ["session_created"]


def test_an_action_sent_again_starts_no_turn_on_a_loop(alice: World) -> None:
    first, second = alice.session(), alice.session()
    sent = [action("session/turnStarted") for _ in range(2)]
    start = partial(turns.start, alice.caller, first, content="hello", only_if_idle=True)
    on_loop(alice.caller.tenant, partial(start, turn_id="t1", dispatched=sent[0]))
    # Also over the same connection it is no repetition, but another action.
    (again, twice) = on_loop(
        alice.caller.tenant,
        partial(start, turn_id="t1", dispatched=replace(sent[0], connection="w2")),
        partial(start, turn_id="t1", dispatched=sent[0]),
    )
    assert isinstance(again, DispatchedBefore)
    assert isinstance(twice, TurnAlreadyRunning)
    start = partial(turns.start, alice.caller, second, content="hello", turn_id="t2")
    both = on_loop(alice.caller.tenant, *[partial(start, dispatched=replace(sent[1], connection=name)) for name in ("w1", "w2")])
    assert sorted(type(each).__name__ for each in both) == ["Accepted", "DispatchedBefore"]
    assert sorted(Turn.objects.values_list("public_id", flat=True)) == ["t1", "t2"]
