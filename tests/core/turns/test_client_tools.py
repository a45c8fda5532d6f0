"""The active client's tools, its grace and its return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

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
    state_of,
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
    sent = replace(action(), came={"type": "session/x", "odd": None})
    turns.confirm(alice.caller, session, "t1", row.call_id, Decision(approved=False), dispatched=sent)
    ends(session, "t1")
    # Refused just as it came, whatever of it would have been kept.
    assert [each["origin"]["said"] for each in of_tenant(alice.caller.tenant, "dispatch_refused")] == [sent.came]
    assert said(session)[-2] == ("tool", "Tool execution failed: the client does not know this tool")


@pytest.mark.rule("R188")
@pytest.mark.rule("R190")
def test_a_clients_calls_fail_when_its_grace_period_is_over(
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
    connections.disconnected(alice.caller, "c1", "w1")
    assert clients.active(session.pk) is not None
    connections.disconnected(alice.caller, "c1", "w2")
    assert clients.active(session.pk) is None
    assert ("client_left", {"client": "c1", "cause": "gone"}) in events(session)
    connections.end_grace_periods()
    assert state_of(session, "t1") == "waiting"
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    ends(session, "t1")
    assert said(session)[-2] == ("tool", connections.GONE)
    assert "open_file" not in model.requests_of(script)[1].tool_names
    connections.connected(alice.caller, "c2", "w3", resumed=False)
    clients.join(alice.caller, session, clients.Entry("c2", None, []), dispatched=action(client="c2"))


@pytest.mark.rule("R189")
def test_a_client_that_returns_in_its_grace_period_completes_its_call(
    alice: World, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    life = connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    start(alice, session, model.script([call("open_file")], [text("ok")]))
    row = waiting_call(session, "open_file")
    connections.disconnected(alice.caller, "c1", "w1")
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


def test_a_resumed_connection_keeps_the_clients_life_and_a_new_handshake_starts_another(alice: World) -> None:
    first = connections.connected(alice.caller, "c1", "w1", resumed=False)
    assert connections.connected(alice.caller, "c1", "w2", resumed=True) == first
    second = connections.connected(alice.caller, "c1", "w3", resumed=False)
    assert second != first
    for connection_id in ("w1", "w2", "w3"):
        connections.disconnected(alice.caller, "c1", connection_id)
    assert connections.connected(alice.caller, "c1", "w4", resumed=True) not in (first, second)


def test_a_client_whose_process_died_has_left(alice: World) -> None:
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, []))
    assert connections.leave_vanished() == 0
    assert connections.renew(["w1", "w9"]) == {"w9"}
    from sessions_app.models import ClientPresence

    ClientPresence.objects.update(seen_at="2020-01-01T00:00:00Z")
    assert connections.leave_vanished() == 1
    assert clients.active(session.pk) is None
