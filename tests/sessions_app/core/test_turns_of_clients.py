"""Turns as clients that watch a session start them, steer them, answer their calls and queue the next."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from agents_app import exact_json, registry
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec
from agents_app.tools import questions
from sessions_app.core import (
    access,
    broadcast,
    call_options,
    clients,
    connections,
    creation,
    forms,
    history,
    inbox,
    session_changes,
    sessions,
    state,
    summaries,
    turns,
)
from sessions_app.core.caller import Caller
from sessions_app.core.errors import InvalidInput, NotPossible, TurnAlreadyRunning
from sessions_app.core.inbox import UserMessage
from sessions_app.core.turns import ClientResult, Decision, Outcome, Permission
from sessions_app.core.user_messages import content_of
from sessions_app.models import PendingMessage, Session, ToolCall, Turn
from tests.fakes.model_server import ModelServer
from tests.fakes.pictures import PIXEL
from tests.fakes.steps import call, gate, text, usage
from tests.sessions_app.core import tools
from tests.sessions_app.core.conftest import World, wait_for
from tests.sessions_app.core.dispatching import action, events, of_tenant
from tests.sessions_app.core.law import _law_of_states  # noqa: F401 - checked after each test

pytestmark = pytest.mark.django_db(transaction=True)

OPEN_FILE = {"name": "open_file", "title": "Open a file", "description": "Opens a file"}


@pytest.fixture(autouse=True)
def _nobody_goes_unasked(settings: Settings) -> None:
    """No process renews these connections, and a worker's sweep looks at them all the time."""
    settings.AGENTHOST_AHP_PRESENCE_SECONDS = settings.AGENTHOST_AHP_GRACE_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def _fresh_tools() -> Iterator[None]:
    tools.forget()
    yield
    tools.release.set()


def make(world: World, **given: Any) -> Session:
    return creation.create(world.caller, uri=given.pop("uri", "sailor:/one"), agent="sailor", **given)


def start(world: World, session: Session, message: str, turn: str = "t1", **given: Any) -> turns.Accepted:
    said = UserMessage(message)
    return turns.start(world.caller, session, content=message, turn_id=turn, said=said, alone=True, dispatched=action(), **given)


def state_of(session: Session, turn: str) -> str:
    return Turn.objects.values_list("state", flat=True).get(session=session, public_id=turn)


def ends(session: Session, turn: str, *states: str) -> Turn:
    wanted = states or ("done",)

    def reached() -> Turn | None:
        return Turn.objects.filter(session=session, public_id=turn, state__in=wanted).first()

    found: Turn = wait_for(reached, f"turn {turn} in {wanted}")
    return found


def waiting_call(session: Session, name: str, state: str = "pending") -> ToolCall:
    found: ToolCall = wait_for(
        lambda: ToolCall.objects.filter(session=session, name=name, state=state).first(), f"a {state} call of {name}"
    )
    return found


def said(session: Session) -> list[tuple[str, Any]]:
    return [(line.role, exact_json.loads(line.content)) for line in history.read(session, "full")]


def at_once(*calls: Callable[[], Any]) -> list[str]:
    """What becomes of calls that are made at the same moment."""
    barrier, outcomes = threading.Barrier(len(calls)), []

    def run(one: Callable[[], Any]) -> None:
        try:
            barrier.wait(90)
            one()
            outcomes.append("done")
        except (NotPossible, TurnAlreadyRunning) as error:
            outcomes.append(type(error).__name__)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(one,)) for one in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return sorted(outcomes)


# --- start, cancel ---


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
    assert started == {"turn": "my turn/1", "run": 1, "message": {"content": script}}
    summary = summaries.of(alice.caller.tenant, [session.pk])[session.pk]
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
def test_attachments_reach_the_model_and_are_told_as_they_came(alice: World, start_worker: Any, model: ModelServer) -> None:
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
    turns.start(alice.caller, session, content=content, turn_id="t1", said=message, dispatched=action())
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
def test_a_turn_that_lives_is_in_the_way_even_while_it_waits(alice: World, start_worker: Any, model: ModelServer) -> None:
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
def test_a_cancel_names_its_turn_and_is_told_with_its_origin(alice: World, start_worker: Any, model: ModelServer) -> None:
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


# --- confirmations ---


@pytest.mark.rule("R164")
@pytest.mark.rule("R166")
def test_a_call_runs_with_the_input_that_a_person_has_edited(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    ends(session, "t1", "waiting")
    confirm = Decision(approved=True, option=call_options.ONCE, input='{"n": 41}')
    for wrong in (replace(confirm, option="nonsense"), replace(confirm, option=call_options.DENY)):
        with pytest.raises(NotPossible):
            turns.confirm(alice.caller, session, "t1", row.call_id, wrong, dispatched=action())
    turns.confirm(alice.caller, session, "t1", row.call_id, confirm, dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 41)]
    granted = [payload for kind, payload in events(session) if kind == "call_granted"]
    assert [(each["option"], each["input"]) for each in granted] == [(call_options.ONCE, '{"n": 41}')]
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.input, part.why, part.option) == ("done", '{"n": 41}', "user-action", call_options.ONCE)
    with pytest.raises(NotPossible):
        turns.confirm(alice.caller, session, "t1", row.call_id, confirm, dispatched=action())


def test_an_edited_input_that_is_no_object_fails_the_call(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=True, input="[1"), dispatched=action())
    ends(session, "t1")
    assert tools.runs == []
    assert said(session)[-2] == ("tool", "Tool execution failed: the arguments are not a JSON object")


@pytest.mark.rule("R165")
def test_a_denied_call_tells_the_model_why_and_what_instead(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    denial = Decision(approved=False, how="skipped", reason="too small", suggestion={"text": "use 5"})
    turns.confirm(alice.caller, session, "t1", row.call_id, denial, dispatched=action())
    ends(session, "t1")
    assert said(session)[-2] == ("tool", "Tool call denied: too small The user suggests: use 5")
    (denied,) = [payload for kind, payload in events(session) if kind == "call_denied"]
    assert (denied["how"], denied["suggestion"], "closing" in denied) == ("skipped", {"text": "use 5"}, False)
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.how, part.reason, part.suggestion) == ("ended", "skipped", "too small", {"text": "use 5"})


@pytest.mark.rule("R166")
@pytest.mark.rule("R389")
def test_a_tool_that_was_allowed_in_this_session_asks_no_more(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [call("add_one", {"n": 2})], [text("ok")]))
    row = waiting_call(session, "add_one")
    allow = Decision(approved=True, option=call_options.SESSION)
    turns.confirm(alice.caller, session, "t1", row.call_id, allow, dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 1), ("add_one", 2)]
    assert {"name": "add_one", "trust": True} in (sessions.facts(access.session(alice.caller, session.public_id)).tool_refs or [])
    whys = [payload["why"] for kind, payload in events(session) if kind == "call_ready"]
    assert whys == ["", "setting"]


@pytest.mark.rule("R389")
def test_with_approval_set_to_auto_no_tool_asks(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [call("add_one", {"n": 2})], [text("ok")]))
    row = waiting_call(session, "add_one")
    session_changes.change_settings(alice.caller, session, options={}, approval="auto", dispatched=action())
    turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=True), dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 1), ("add_one", 2)]


@pytest.mark.rule("R91")
def test_of_two_clients_that_confirm_one_call_the_first_is_heard(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")

    def confirm(client: str) -> Callable[[], None]:
        word = Decision(approved=True)
        return lambda: turns.confirm(alice.caller, session, "t1", row.call_id, word, dispatched=action(client=client))

    assert at_once(confirm("c1"), confirm("c2")) == ["NotPossible", "done"]
    ends(session, "t1")
    assert tools.runs == [("add_one", 1)]


@pytest.mark.rule("R387")
def test_a_confirmation_can_be_answered_from_either_protocol_once(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one")
    ends(session, "t1", "waiting")
    assert [line["name"] for line in said(session)[-1][1]] == ["add_one"]
    alice.answer(session, Permission(0, row.call_id, granted=True))
    with pytest.raises(NotPossible):
        turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=False), dispatched=action())
    ends(session, "t1")
    assert tools.runs == [("add_one", 1)]


def confirming(agents: Callable[..., AgentSpec]) -> AgentSpec:
    spec = agents()
    return agents(tools=tuple(replace(tool, confirm_result=tool.name == "add_one") for tool in spec.tools))


@pytest.mark.rule("R167")
@pytest.mark.parametrize("approved", [True, False])
def test_a_result_waits_for_a_person_where_the_agent_asks_for_it(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer, approved: bool
) -> None:
    confirming(agents)
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one", "review")
    ends(session, "t1", "waiting")
    shown = state.read(alice.caller, session)
    assert shown.summary.state == "waiting"
    assert shown.live is not None
    part = shown.live.parts[0].call
    assert part is not None
    assert (part.status, part.content) == ("reviewing", "2")
    assert [payload.get("reviewed") for kind, payload in events(session) if kind == "call_finished"] == [True]
    turns.confirm_result(alice.caller, session, "t1", row.call_id, approved=approved, dispatched=action())
    ends(session, "t1")
    assert said(session)[-2] == ("tool", "2" if approved else history.WITHHELD)
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.how) == (("done", "") if approved else ("ended", "result-denied"))
    with pytest.raises(NotPossible):
        turns.confirm_result(alice.caller, session, "t1", row.call_id, approved=approved, dispatched=action())


@pytest.mark.rule("R387")
def test_a_result_that_waits_is_released_by_a_permission_over_aap(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer
) -> None:
    confirming(agents)
    start_worker()
    session = alice.session(tools=[{"name": "add_one", "trust": True}])
    accepted = alice.say(session, model.script([call("add_one", {"n": 1})], [text("ok")]))
    row = waiting_call(session, "add_one", "review")
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "waiting", "the turn to wait")
    with pytest.raises(InvalidInput):
        alice.answer(session, ClientResult(0, row.call_id, "3"))
    alice.answer(session, Permission(0, row.call_id, granted=True))
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "done", "the turn's end")
    assert [line for line in said(session) if line[0] == "tool"] == [("tool", "2")]


# --- client tools ---


@pytest.mark.rule("R183")
@pytest.mark.rule("R184")
def test_the_active_clients_tool_is_called_and_answered_by_it_alone(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    script = model.script([call("open_file", {"path": "a"})], [text("ok")])
    start(alice, session, script)
    row = waiting_call(session, "open_file")
    assert (row.client, row.title, row.runner) == ("c1", "Open a file", "client")
    assert "open_file" in model.requests_of(script)[0].tool_names
    (ready,) = [payload for kind, payload in events(session) if kind == "call_ready"]
    assert (ready["client"], ready["why"], ready["title"]) == ("c1", "not-needed", "Open a file")
    (opened,) = [payload for kind, payload in events(session) if kind == "call_opened"]
    assert (opened["client"], opened["title"]) == ("c1", "Open a file")
    outcome = Outcome(success=True, message="Opened", content=[{"type": "text", "text": "inside"}, PICTURE])
    with pytest.raises(NotPossible):
        turns.complete(alice.caller, session, "t1", row.call_id, outcome, dispatched=action(client="c2"))
    with pytest.raises(NotPossible):
        turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=True), dispatched=action())
    shown = [{"type": "text", "text": "opening…"}]
    turns.show_content(alice.caller, session, "t1", row.call_id, shown, dispatched=action())
    live = state.read(alice.caller, session).live
    assert live is not None
    part = live.parts[0].call
    assert part is not None
    assert (part.status, part.shown, part.client) == ("running", shown, "c1")
    turns.complete(alice.caller, session, "t1", row.call_id, outcome, dispatched=action())
    ends(session, "t1")
    assert said(session)[-2] == ("tool", [{"type": "text", "text": "inside"}, TOLD])
    part = state.read(alice.caller, session).turns[0].parts[0].call
    assert part is not None
    assert (part.status, part.outcome) == ("done", outcome.document())


PICTURE = {"type": "embeddedResource", "contentType": "image/png", "data": PIXEL.rpartition(",")[2]}
TOLD = {"type": "image", "url": PIXEL}
PHOTO = {"type": "resource", "uri": "https://x.test/a.png", "contentType": "image/png"}
WORDS = {"type": "text", "text": "see"}


@pytest.mark.rule("R172")
@pytest.mark.parametrize(
    ("given", "images", "told"),
    [
        ([WORDS], ("data",), "see"),
        ([WORDS, PICTURE], ("data",), [WORDS, TOLD]),
        ([PICTURE], ("data",), [TOLD]),
        ([{**PICTURE, "contentType": "image/PNG; x=y"}], ("data",), [TOLD]),
        ([WORDS, PICTURE], ("http",), "see"),
        ([WORDS, {**PICTURE, "contentType": "application/zip"}], ("data",), "see"),
        ([WORDS, PHOTO], ("http",), [WORDS, {"type": "image", "url": "https://x.test/a.png"}]),
        ([WORDS, PHOTO], ("data",), "see"),
        ([WORDS, {**PHOTO, "uri": "http://x.test/a.png"}], ("http",), "see"),
        ([WORDS, {**PHOTO, "contentType": "text/html"}], ("http",), "see"),
        ([WORDS, WORDS], (), [WORDS, WORDS]),
    ],
)
def test_a_model_gets_the_images_of_a_clients_tool_that_it_takes(
    given: list[dict[str, Any]], images: tuple[str, ...], told: Any
) -> None:
    assert Outcome(success=True, message="m", content=given).for_model(images) == told


@pytest.mark.parametrize("data", ["AAAA", "%", PIXEL.rpartition(",")[2][:-12]])
def test_a_broken_image_of_a_clients_tool_is_refused_at_its_block(data: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Outcome(success=True, message="m", content=[WORDS, {**PICTURE, "data": data}]).for_model(("data",))
    assert [fault.path for fault in caught.value.faults] == [("result", "content", 1, "data")]


@pytest.mark.rule("R190")
def test_without_an_active_client_its_tools_are_not_offered(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    clients.leave(alice.caller, session, "c1", dispatched=action())
    script = model.script([text("ok")])
    start(alice, session, script)
    ends(session, "t1")
    assert "open_file" not in model.requests_of(script)[0].tool_names


@pytest.mark.rule("R181")
def test_new_tools_of_a_client_count_from_the_next_model_call(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice, approval="auto")
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    script = model.script([call("block", {"n": 1})], [text("ok")])
    start(alice, session, script)
    assert tools.entered.wait(60)
    clients.join(alice.caller, session, clients.Entry("c1", None, [OPEN_FILE]), dispatched=action())
    tools.release.set()
    ends(session, "t1")
    first, second = model.requests_of(script)
    assert "open_file" not in first.tool_names
    assert "open_file" in second.tool_names


@pytest.mark.rule("R187")
def test_a_client_that_does_not_know_its_tool_fails_the_call(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    start(alice, session, model.script([call("open_file")], [text("ok")]))
    row = waiting_call(session, "open_file")
    sent = replace(action(), came={"type": "session/x", "odd": None})
    turns.fail_unknown(alice.caller, session, "t1", row.call_id, reason="it runs already", dispatched=sent)
    ends(session, "t1")
    # Refused just as it came, whatever of it would have been kept.
    assert [each["origin"]["said"] for each in of_tenant(alice.caller.tenant, "dispatch_refused")] == [sent.came]
    assert said(session)[-2] == ("tool", "Tool execution failed: the client does not know this tool")


@pytest.mark.rule("R188")
@pytest.mark.rule("R190")
def test_a_clients_calls_fail_when_its_grace_is_over(
    alice: World, start_worker: Any, model: ModelServer, settings: Settings
) -> None:
    start_worker()
    for connection_id in ("w1", "w2"):
        connections.connected(alice.caller, "c1", connection_id, resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    script = model.script([call("open_file")], [text("ok")])
    start(alice, session, script)
    waiting_call(session, "open_file")
    ends(session, "t1", "waiting")
    connections.disconnected(alice.caller.tenant, "c1", "w1")
    assert clients.active(session.pk) is not None
    connections.disconnected(alice.caller.tenant, "c1", "w2")
    assert clients.active(session.pk) is None
    assert ("client_left", {"client": "c1", "cause": "gone"}) in events(session)
    connections.sweep()
    assert state_of(session, "t1") == "waiting"
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    ends(session, "t1")
    assert said(session)[-2] == ("tool", connections.GONE)
    assert "open_file" not in model.requests_of(script)[1].tool_names
    connections.connected(alice.caller, "c2", "w3", resumed=False)
    clients.join(alice.caller, session, clients.Entry("c2", None, []), dispatched=action(client="c2"))


@pytest.mark.rule("R189")
def test_a_client_that_comes_back_in_its_grace_completes_its_call(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    life = connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    start(alice, session, model.script([call("open_file")], [text("ok")]))
    row = waiting_call(session, "open_file")
    connections.disconnected(alice.caller.tenant, "c1", "w1")
    assert connections.connected(alice.caller, "c1", "w2", resumed=True) != ""
    assert life
    clients.join(alice.caller, session, clients.Entry("c1", None, [OPEN_FILE]), dispatched=action(connection="w2"))
    done = Outcome(success=True, message="Done", structured={"a": 1})
    turns.complete(alice.caller, session, "t1", row.call_id, done, dispatched=action(connection="w2"))
    ends(session, "t1")
    assert said(session)[-2] == ("tool", '{"a":1}')


def test_a_client_needs_an_id_that_can_be_stored(alice: World) -> None:
    for wrong in ("", "a\0b", "x" * 257):
        with pytest.raises(InvalidInput):
            connections.connected(alice.caller, wrong, "w1", resumed=False)


def test_a_client_that_comes_back_goes_on_with_its_life_and_a_new_handshake_begins_another(alice: World) -> None:
    first = connections.connected(alice.caller, "c1", "w1", resumed=False)
    assert connections.connected(alice.caller, "c1", "w2", resumed=True) == first
    second = connections.connected(alice.caller, "c1", "w3", resumed=False)
    assert second != first
    for connection_id in ("w1", "w2", "w3"):
        connections.disconnected(alice.caller.tenant, "c1", connection_id)
    assert connections.connected(alice.caller, "c1", "w4", resumed=True) not in (first, second)


def test_a_client_whose_process_died_has_left(alice: World) -> None:
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, []))
    assert connections.sweep() == 0
    assert connections.renew(["w1", "w9"]) == {"w9"}
    from sessions_app.models import ClientPresence

    ClientPresence.objects.update(seen_at="2020-01-01T00:00:00Z")
    assert connections.sweep() == 1
    assert clients.active(session.pk) is None


# --- the inbox ---


def put(world: World, session: Session, message: str, id: str = "m1", kind: Any = "queued") -> None:  # noqa: A002 - AHP's word
    inbox.put(world.caller, session, kind, id, UserMessage(message), dispatched=action())


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


@pytest.mark.rule("R143")
def test_an_end_that_something_follows_comes_after_all_that_was_said(alice: World, start_worker: Any, model: ModelServer) -> None:
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
def test_the_queue_rests_after_a_cancel_until_a_client_acts(alice: World, start_worker: Any, model: ModelServer) -> None:
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
def test_the_queue_goes_on_after_a_turn_that_aap_started(alice: World, start_worker: Any, model: ModelServer) -> None:
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
    at_once(
        lambda: turns.cancel_turn(alice.caller, session, "t1", dispatched=action()),
        lambda: inbox.remove(alice.caller, session, "queued", "m1", dispatched=action()),
    )
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
        assert outcomes == ["NotPossible", "done"]
        wait_for(lambda: Turn.objects.filter(session=session, state="done").count() == 2, "the queued turn")
    else:
        assert outcomes == ["done", "done"]
        assert [each["id"] for each in state.read(alice.caller, session).queued] == ["m1"]
        assert Turn.objects.filter(session=session).count() == 1


@pytest.mark.rule("R148")
def test_a_turn_that_a_client_starts_and_the_queues_next_never_live_together(
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
def test_a_steering_message_goes_in_between_two_model_calls(alice: World, start_worker: Any, model: ModelServer) -> None:
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
def test_a_steering_message_without_a_chance_waits_for_the_next_turn(alice: World, start_worker: Any, model: ModelServer) -> None:
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
def test_another_model_chosen_during_a_turn_counts_from_its_end(
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


# --- forms ---


@pytest.fixture
def asking(agents: Callable[..., AgentSpec]) -> AgentSpec:
    spec = agents()
    return agents(tools=(*spec.tools, ToolSpec("ask_user", questions.SOURCE, parameters=questions.PARAMETERS)))


QUESTIONS: list[dict[str, Any]] = [
    {"id": "name", "kind": "text", "message": "Name?", "required": True, "max": 5, "surplus": 1},
    {
        "id": "size",
        "kind": "single-select",
        "message": "Size?",
        "options": [{"id": "s", "label": "S"}, {"id": "l", "label": "L"}],
    },
]


def text_answer(value: str, state: str = "submitted") -> dict[str, Any]:
    return {"state": state, "value": {"kind": "text", "value": value}}


@pytest.mark.rule("R200")
@pytest.mark.rule("R205")
def test_an_agent_asks_its_user_and_goes_on_with_the_answers(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("ask_user", {"message": "About you", "questions": QUESTIONS})], [text("ok")]))
    waiting_call(session, "ask_user")
    ends(session, "t1", "waiting")
    shown = state.read(alice.caller, session)
    assert shown.summary.state == "waiting"
    (form,) = shown.forms
    assert form.document["questions"][0] == {key: value for key, value in QUESTIONS[0].items() if key != "surplus"}
    assert shown.live is not None
    assert [part.call.status for part in shown.live.parts if part.call is not None] == ["running"]
    name, caller = form.document["id"], alice.caller
    size = {"state": "submitted", "value": {"kind": "selected", "value": "l"}}
    forms.change_answer(caller, session, name, "size", size, dispatched=action())
    for question, wrong in (
        ("none", text_answer("x")),
        ("name", size),
        ("size", {"state": "submitted", "value": {"kind": "selected", "value": "xl"}}),
        ("name", {"state": "submitted"}),
        ("name", text_answer("too long")),
    ):
        with pytest.raises(NotPossible):
            forms.change_answer(caller, session, name, question, wrong, dispatched=action())
    forms.change_answer(caller, session, name, "name", text_answer("a draft that is long", "draft"), dispatched=action())
    assert set(state.read(caller, session).forms[0].answers) == {"size", "name"}
    forms.change_answer(caller, session, name, "name", None, dispatched=action())
    with pytest.raises(NotPossible):
        forms.complete(caller, session, name, "accept", dispatched=action())
    forms.complete(caller, session, name, "accept", {"name": text_answer("Ada")}, dispatched=action())
    with pytest.raises(NotPossible):
        forms.complete(caller, session, name, "cancel", dispatched=action())
    ends(session, "t1")
    assert said(session)[-2] == ("tool", '{"name":"Ada","size":"l"}')
    told = [kind for kind, _ in events(session) if kind.startswith("form_") or kind == "call_finished"]
    assert told == ["form_opened", *["form_answer_changed"] * 3, "form_closed", "call_finished"]


@pytest.mark.rule("R205")
def test_of_two_clients_that_close_a_form_the_first_is_heard(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("ask_user", {"questions": QUESTIONS})], [text("ok")]))
    waiting_call(session, "ask_user")
    name = state.read(alice.caller, session).forms[0].document["id"]

    def close(response: Any) -> Callable[[], None]:
        return lambda: forms.complete(alice.caller, session, name, response, dispatched=action())

    assert at_once(close("decline"), close("cancel")) == ["NotPossible", "done"]
    ends(session, "t1")


@pytest.mark.rule("R206")
def test_a_turns_end_voids_what_it_asked(alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("ask_user", {"questions": QUESTIONS})], [text("ok")]))
    waiting_call(session, "ask_user")
    ends(session, "t1", "waiting")
    name = state.read(alice.caller, session).forms[0].document["id"]
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    assert state.read(alice.caller, session).forms == []
    with pytest.raises(NotPossible):
        forms.complete(alice.caller, session, name, "cancel", dispatched=action())


@pytest.mark.rule("R387")
def test_over_aap_a_question_to_the_user_is_a_call_that_takes_a_result(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "ask_user"}])
    accepted = alice.say(session, model.script([call("ask_user", {"questions": QUESTIONS})], [text("ok")]))
    row = waiting_call(session, "ask_user")
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "waiting", "the turn to wait")
    with pytest.raises(InvalidInput):
        alice.answer(session, Permission(0, row.call_id, granted=True))
    alice.answer(session, ClientResult(0, row.call_id, "Ada, large"))
    wait_for(lambda: Turn.objects.get(pk=accepted.turn_id).state == "done", "the turn's end")
    closed = [payload for kind, payload in events(session) if kind == "form_closed"]
    assert [(each["response"], each["answers"]) for each in closed] == [("accept", {})]


def test_questions_that_make_no_form_are_told_to_the_model(
    alice: World, asking: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice)
    start(
        alice,
        session,
        model.script([call("ask_user", {"questions": [{"id": "a", "kind": "song", "message": "?"}]})], [text("ok")]),
    )
    ends(session, "t1")
    assert said(session)[-2][1].startswith("Tool execution failed: question a: kind must be one of text, number")
    assert state.read(alice.caller, session).forms == []


# --- usage, activity ---


@pytest.mark.rule("R144")
def test_the_state_has_the_sum_of_the_turns_tokens(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("add_one", {"n": 1}), usage(10, 2)], [text("ok"), usage(20, 3, 5)]))
    ends(session, "t1")
    assert state.read(alice.caller, session).turns[0].usage == (30, 5, 5)


@pytest.mark.rule("R152")
def test_what_goes_on_is_told_and_cleared(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice, approval="auto")
    start(alice, session, model.script([call("block", {"n": 1})], [text("never")]))
    assert tools.entered.wait(60)
    wait_for(lambda: summaries.of(alice.caller.tenant, [session.pk])[session.pk].activity, "an activity")
    assert summaries.of(alice.caller.tenant, [session.pk])[session.pk].activity == "Running block"
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    told = [payload["activity"] for kind, payload in events(session) if kind == "activity_changed"]
    assert told == ["Running block", None]


def test_several_tools_that_run_beside_each_other_leave_no_activity_behind(
    alice: World, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make(alice, approval="auto")
    both = [call("block", {"n": 1}), *(call("add_one", {"n": number}) for number in range(6))]
    start(alice, session, model.script(both, [text("ok")]))
    assert tools.entered.wait(60)
    # Looks at its calls while they end.
    for number in range(20):
        session_changes.rename(alice.caller, session, f"title {number}", dispatched=action())
        row = Turn.objects.get(session=session)
        broadcast.tell_worker(row.worker, {"turn": row.pk, "what": "answered"})
    tools.release.set()
    ends(session, "t1")
    told = [payload["activity"] for kind, payload in events(session) if kind == "activity_changed"]
    assert told[-1] is None
    assert len(told) == 14


def test_a_session_that_belongs_to_another_tenant_takes_no_action(alice: World, bob: World) -> None:
    session = make(alice)
    from sessions_app.core.errors import SessionNotFound

    def refused(act: Callable[[Caller], Any]) -> None:
        with pytest.raises(SessionNotFound):
            act(bob.caller)

    refused(lambda caller: inbox.put(caller, session, "queued", "m", UserMessage("x"), dispatched=action()))
    refused(lambda caller: state.read(caller, session))
    refused(lambda caller: session_changes.rename(caller, session, "x", dispatched=action()))
    refused(lambda caller: turns.cancel_turn(caller, session, "t", dispatched=action()))
    assert [kind for kind, _ in events(session)] == ["session_created"]
