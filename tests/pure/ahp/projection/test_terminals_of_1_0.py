"""Terminals in AHP 0.9 and 1.0: their events, claims in every spelling, entries of the root's list, states."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_1.projection import actions as actions_of_0_1
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import terminals
from sessions_app.ahp.versions.v0_9.projection.actions import PROTOCOL, Projection
from sessions_app.ahp.versions.v0_9.spelling import chat_uri
from sessions_app.ahp.versions.v0_9.wire import envelopes as v0_9
from sessions_app.ahp.versions.v0_9.wire.terminals import TerminalState
from sessions_app.ahp.versions.v1_0.wire import envelopes as v1_0
from sessions_app.core.base.caller import EVERYTHING, Sight
from sessions_app.core.base.events import Kind
from sessions_app.core.base.shapes import Shape
from sessions_app.core.log.journal.types import Event
from sessions_app.core.terminals.screen import Screen
from sessions_app.core.terminals.state import TerminalView
from sessions_app.core.terminals.types import Claim
from tests.pure.ahp.projection import test_actions as v0_1

URI = "term:/1"
CHANNEL = Channel(9, URI, "terminal")
ID = f"sess_{'a' * 20}"
FACES = {"0.9": Face("0.9"), "1.0": Face("1"), "by provider": Face("1", dialect="by provider")}
each_face = pytest.mark.parametrize("face", FACES.values(), ids=FACES.keys())

# The core's URI of a session, the family of its URI, and how the session is spelled for each face.
CLAIMS = [
    ("echo:/s", "0.1", f"ahp-session:/{ID}", f"echo:/{ID}"),
    (f"echo:/{ID}", "", f"ahp-session:/{ID}", f"echo:/{ID}"),
    ("ahp-session:/mine", "1", "ahp-session:/mine", f"echo:/{ID}"),
    ("echo:/mine", "1", "echo:/mine", "echo:/mine"),
]


def sent(face: Face, kind: Kind, payload: dict[str, Any]) -> dict[str, Any]:
    [(channel, text)] = Projection(face).envelopes(Event(12, 9, kind, exact_json.dumps(payload)), [CHANNEL])
    assert channel is CHANNEL
    envelope: dict[str, Any] = exact_json.loads(text)
    assert (v0_9 if face.family == "0.9" else v1_0).envelope_faults(envelope) == []
    return envelope


@pytest.mark.rule("V54", "V230", "V400")
@each_face
@pytest.mark.parametrize(("kind", "payload", "action"), v0_1.TERMINALS, ids=lambda value: str(value)[:40])
def test_an_event_is_the_action_of_0_1_without_the_terminals_uri(
    face: Face, kind: Kind, payload: dict[str, Any], action: dict[str, Any]
) -> None:
    envelope = sent(face, kind, payload)
    if "session" in action.get("claim", {}):
        # A claim that an earlier release has stored.
        action = {**action, "claim": {**action["claim"], "chat": chat_uri(action["claim"]["session"])}}
    assert envelope == {"channel": URI, "action": action, "serverSeq": 12}
    # Of a session's and a chat's channel it is none.
    others = [Channel(9, "ahp-session:/a", "session", session="ahp-session:/a"), Channel(9, "c:/a", "chat", session="s:/a")]
    assert list(Projection(face).envelopes(Event(12, 9, kind, exact_json.dumps(payload)), others)) == []


@pytest.mark.rule("V232", "V313", "V46")
@pytest.mark.parametrize(("uri", "family", "spelled", "by_provider"), CLAIMS)
def test_a_claim_names_session_and_chat_as_the_face_spells_them(uri: str, family: str, spelled: str, by_provider: str) -> None:
    claim = Claim(session=uri, turn="t", call="c", id=ID, agent="echo", family=family).document()
    for face in FACES.values():
        session = by_provider if face.by_provider else spelled
        shown = {"kind": "session", "session": session, "turnId": "t", "toolCallId": "c", "chat": chat_uri(session)}
        assert terminals.claim_of(claim, face) == shown
        # Also in the echo of a client of these versions, whatever URIs it sent.
        said = {"type": "terminal/claimed", "claim": {"kind": "session", "session": "alias:/a", "chat": "alias:/b"}}
        origin = {"client": "me", "seq": 3, "protocol": PROTOCOL, "said": said, "channel": URI}
        payload = {"claim": claim, "agent": "echo", "line": 1, "session": 7, "origin": origin}
        echo = sent(face, Kind.TERMINAL_CLAIMED, payload)
        assert (echo["action"]["claim"], echo["origin"]) == (shown, {"clientId": "me", "clientSeq": 3})
        unsubscribed = Projection(face).echo(Event(12, 9, Kind.TERMINAL_CLAIMED, exact_json.dumps(payload)))
        assert exact_json.loads(str(unsubscribed)) == echo


@pytest.mark.rule("V167", "R314")
@each_face
def test_a_result_names_the_terminal_of_its_command_with_how_it_ended_which_0_1_has_no_words_for(face: Face) -> None:
    gone = {"type": "terminal", "resource": "term:/1", "title": "make"}
    ended = {**gone, "result": {"exitCode": 3, "preview": "no rule", "truncated": False}}
    stays = {**gone, "resource": "term:/2"}
    call = {"turn": "t", "call": "c", "content": "ok", "failed": False, "by": "server", "shown": True}
    event = Event(12, 7, Kind.CALL_FINISHED, exact_json.dumps({**call, "terminals": [ended, stays]}))
    chat = Channel(7, "c:/a", "chat", session="s:/a")
    [(_, text)] = Projection(face).envelopes(event, [chat])
    envelope = exact_json.loads(text)
    assert (v0_9 if face.family == "0.9" else v1_0).envelope_faults(envelope) == []
    assert envelope["action"]["result"]["content"] == [{"type": "text", "text": "ok"}, ended, stays]
    older = exact_json.loads(str(actions_of_0_1.envelope_of(event, "s:/a")))
    assert older["action"]["result"]["content"] == [{"type": "text", "text": "ok"}, stays]


@pytest.mark.rule("V93", "V402")
@each_face
def test_other_actions_are_echoed_as_they_were_sent(face: Face) -> None:
    said = {"type": "terminal/input", "data": "ls\n"}
    origin = {"client": "me", "seq": 3, "protocol": PROTOCOL, "said": said, "channel": URI}
    echo = sent(face, Kind.TERMINAL_INPUT, {"data": "ls\n", "origin": origin})
    assert (echo["action"], echo["origin"]) == (said, {"clientId": "me", "clientSeq": 3})
    older = {**origin, "protocol": "ahp/0.1", "said": {"type": "terminal/input", "terminal": URI, "data": "ls\n"}}
    assert sent(face, Kind.TERMINAL_INPUT, {"data": "ls\n", "origin": older})["action"] == {
        "type": "terminal/input",
        "data": "ls\n",
    }


@pytest.mark.rule("V60", "V231")
@each_face
def test_the_roots_list_has_lifecycles_and_no_terminal_that_the_caller_does_not_see(face: Face) -> None:
    mine = {"uri": "term:/a", "title": "A", "claim": {"client": "c"}, "agent": "", "line": 1, "session": None}
    claim = {"session": "echo:/s", "id": ID, "agent": "echo", "family": "0.1"}
    others = [
        {**mine, "uri": "term:/b", "claim": claim, "agent": "echo", "session": 7, "exited": True, "code": 0},
        {**mine, "uri": "term:/c", "exited": True},
        # Of an earlier release.
        {**mine, "uri": "term:/d", "code": 3},
    ]
    event = Event(12, -1, Kind.TERMINALS_CHANGED, exact_json.dumps({"terminals": [mine, *others]}))
    envelope = exact_json.loads(str(Projection(face).root_envelope(event, EVERYTHING)))
    assert (v0_9 if face.family == "0.9" else v1_0).envelope_faults(envelope) == []
    shown = envelope["action"]["terminals"]
    assert [each["lifecycle"] for each in shown] == [
        {"status": "running"},
        {"status": "exited", "exitCode": 0},
        {"status": "exited"},
        {"status": "exited", "exitCode": 3},
    ]
    session = f"echo:/{ID}" if face.by_provider else f"ahp-session:/{ID}"
    assert shown[1]["claim"] == {"kind": "session", "session": session, "chat": chat_uri(session)}
    limited = Projection(face).root_envelope(event, Sight(frozenset({"echo"}), 9))
    assert [each["resource"] for each in exact_json.loads(str(limited))["action"]["terminals"]] == ["term:/b"]


@pytest.mark.rule("V231")
@pytest.mark.parametrize(
    ("code", "has_exited", "lifecycle"),
    [
        (None, False, {"status": "running"}),
        (None, True, {"status": "exited"}),
        (7, True, {"status": "exited", "exitCode": 7}),
    ],
)
def test_a_state_has_its_end_in_its_lifecycle(code: int | None, has_exited: bool, lifecycle: dict[str, Any]) -> None:
    view = TerminalView(5, "t", Claim(client="c"), "", 80, 24, code, Screen(100), has_exited=has_exited)
    state = terminals.state_of(view, Face("1"))
    assert Shape(TerminalState).faults(state) == []
    assert (state["lifecycle"], "exitCode" in state) == (lifecycle, False)
    assert (state["isPty"], state["cols"], state["rows"]) == (True, 80, 24)
