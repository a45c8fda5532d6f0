"""The active client's tools, its grace and its return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.records import clients
from sessions_app.core.sessions import connections, state
from sessions_app.core.turns import Decision, Outcome
from tests.core import tools
from tests.core.client_actions import (
    OPEN_FILE,
    ends,
    make,
    said,
    start,
    waiting_call,
)
from tests.core.conftest import World
from tests.core.dispatching import action, events, of_tenant
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.fakes.model_server import ModelServer
from tests.fakes.pictures import PIXEL
from tests.fakes.steps import call, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]


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
def test_new_tools_of_a_client_are_offered_from_the_next_model_call(alice: World, start_worker: Any, model: ModelServer) -> None:
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
    sent = replace(action(), original={"type": "session/x", "odd": None})
    turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=False), dispatched=sent)
    ends(session, "t1")
    # Refused just as it came, whatever of it would have been kept.
    assert [each["origin"]["said"] for each in of_tenant(alice.caller.tenant, "dispatch_refused")] == [sent.original]
    assert said(session)[-2] == ("tool", "Tool execution failed: the client does not know this tool")
