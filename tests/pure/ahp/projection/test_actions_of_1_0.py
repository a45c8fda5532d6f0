"""Each kind of event is at most one action of AHP 0.9 and of 1.0, on the session's or its chat's channel."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection.actions import PROTOCOL, Projection
from sessions_app.ahp.versions.v0_9.spelling import chat_uri
from sessions_app.ahp.versions.v0_9.wire import envelopes as v0_9
from sessions_app.ahp.versions.v1_0.wire import envelopes as v1_0
from sessions_app.core.base.caller import EVERYTHING
from sessions_app.core.base.events import Kind
from sessions_app.core.log.journal.types import Event
from tests.pure.ahp.projection import test_actions as v0_1

URI = "ahp-session:/one"
CHANNELS = [Channel(7, URI, "session", session=URI), Channel(7, chat_uri(URI), "chat", session=URI)]
TIMES = {"started_at": "2026-01-01T00:00:00.000Z", "duration_ms": 1500}
TURNS = {Kind.TURN_STARTED, Kind.TURN_ENDED, Kind.TURN_FAILED, Kind.TURN_CANCELLED}
CALL = {"id": "c", "name": "tide", "title": "Tide", "client": "me", "status": "running", "input": "{}", "why": "not-needed"}
OF_SESSIONS = {
    "titleChanged": "titleChanged",
    "isReadChanged": "isReadChanged",
    "isArchivedChanged": "isArchivedChanged",
    "configChanged": "configChanged",
    "serverToolsChanged": "serverToolsChanged",
    "customizationsChanged": "customizationsChanged",
    "customizationToggled": "customizationToggled",
}
"""The names of actions of 0.1 that are of the session in 0.9; all others are of its chat."""
RENAMED = {Kind.CLIENT_JOINED: "session/activeClientSet", Kind.CLIENT_LEFT: "session/activeClientRemoved"}
NOT_HERE = {Kind.MODEL_CHANGED, Kind.DIFFS_CHANGED, Kind.CLIENT_TOOLS_CHANGED}


def _of_0_1() -> list[tuple[Kind, dict[str, Any], str]]:
    """The cases of 0.1, each with its action here."""
    found = []
    for kind, payload, word in v0_1.EVENTS:
        if kind not in NOT_HERE:
            name = RENAMED.get(kind) or (f"session/{word}" if word in OF_SESSIONS else f"chat/{word}")
            found.append((kind, {**payload, **TIMES} if kind in TURNS else payload, name))
    return found


EVENTS: list[tuple[Kind, dict[str, Any], str]] = [
    *_of_0_1(),
    (Kind.CLIENT_TOOLS_CHANGED, {"client": "me", "tools": [], "entry": v0_1.ENTRY}, "session/activeClientSet"),
    (Kind.READ_CLEARED, {"cause": "turn"}, "session/isReadChanged"),
    (Kind.TURN_REOPENED, {"turn": "t", "attempt": 2}, "chat/turnResume"),
    (Kind.DRAFT_CHANGED, {"draft": None}, "chat/draftChanged"),
    (Kind.DRAFT_CHANGED, {"draft": {"text": "so far", "model": {"id": "m"}}}, "chat/draftChanged"),
    (Kind.ATTENTION_OPENED, {"kind": "execution", "turn": "t", "call": CALL}, "session/inputNeededSet"),
    (
        Kind.ATTENTION_OPENED,
        {"kind": "confirmation", "turn": "t", "call": {**CALL, "client": None, "status": "asking", "preview": [v0_1.EDIT]}},
        "session/inputNeededSet",
    ),
    (
        Kind.ATTENTION_OPENED,
        {"kind": "confirmation", "turn": "t", "call": {**CALL, "status": "reviewing", "outcome": v0_1.OUTCOME}},
        "session/inputNeededSet",
    ),
    (Kind.ATTENTION_OPENED, {"kind": "form", "turn": "t", "form": v0_1.FORM}, "session/inputNeededSet"),
    (Kind.ATTENTION_CLOSED, {"kind": "form", "turn": "t", "of": "f"}, "session/inputNeededRemoved"),
    (Kind.CONVERSATION_CHANGED, {"changed": ["title"], "title": "Log"}, "session/chatUpdated"),
    (Kind.CONVERSATION_CHANGED, {"changed": ["activity"], "activity": None}, "session/chatUpdated"),
    (
        Kind.CONVERSATION_CHANGED,
        {
            "changed": ["modified_at", "state"],
            "state": "waiting",
            "read": True,
            "archived": True,
            "modified_at": "2026-01-01T00:00:00.000Z",
        },
        "session/chatUpdated",
    ),
]
FLAGS: list[tuple[Kind, dict[str, Any], str]] = [
    (Kind.CHAT_READ_CHANGED, {"read": True}, "chat/isReadChanged"),
    (Kind.CHAT_ARCHIVED_CHANGED, {"archived": False}, "chat/isArchivedChanged"),
    (
        Kind.CONVERSATION_CHANGED,
        {"changed": ["flags"], "state": "working", "read": True, "archived": False},
        "session/chatUpdated",
    ),
]
_SHOWN = {kind for kind, _, _ in EVENTS + FLAGS}
SILENT = [
    *((kind, payload) for kind, payload in v0_1.SILENT if kind not in _SHOWN),
    (Kind.CALL_DENIED, {**v0_1.CALL, "reason": "cancelled", "content": "", "shown": True, "closing": True}),
    (Kind.TURN_CANCELLED, {"turn": "t", "run": 1, "in_run": True, "reason": "error", "cause": "cut"}),
    (Kind.MODEL_CHANGED, {"model": "m"}),
    (Kind.DIFFS_CHANGED, {"diffs": []}),
    (Kind.CLIENT_TOOLS_CHANGED, {"client": "me", "tools": []}),
    (Kind.CLIENT_LEFT, {"client": None, "cause": "released"}),
]


def sent(face: Face, kind: Kind, payload: dict[str, Any]) -> list[tuple[Channel, dict[str, Any]]]:
    event = Event(12, 7, kind, exact_json.dumps(payload))
    return [(channel, exact_json.loads(text)) for channel, text in Projection(face).envelopes(event, CHANNELS)]


@pytest.mark.rule("V53", "V54", "V400", "V401")
@pytest.mark.parametrize(("kind", "payload", "word"), EVENTS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("face", [Face("0.9"), Face("1")], ids=["0.9", "1.0"])
def test_an_event_is_one_action_that_fits(face: Face, kind: Kind, payload: dict[str, Any], word: str) -> None:
    ((channel, envelope),) = sent(face, kind, payload)
    faults = v0_9.envelope_faults if face.family == "0.9" else v1_0.envelope_faults
    assert faults(envelope) == []
    assert (envelope["serverSeq"], envelope["action"]["type"]) == (12, word)
    assert (envelope["channel"], channel.kind) == (channel.uri, word.partition("/")[0])
    assert "origin" not in envelope


@pytest.mark.rule("V107", "V305", "V330")
@pytest.mark.parametrize(("kind", "payload", "word"), FLAGS, ids=lambda value: str(value)[:40])
def test_flags_of_a_chat_are_sent_in_1_0_only(kind: Kind, payload: dict[str, Any], word: str) -> None:
    ((_, envelope),) = sent(Face("1"), kind, payload)
    assert v1_0.envelope_faults(envelope) == []
    assert envelope["action"]["type"] == word
    assert sent(Face("0.9"), kind, payload) == []


@pytest.mark.rule("V107")
def test_a_chats_status_has_its_flags_in_1_0_only() -> None:
    kind, payload, _ = FLAGS[2]
    changed = {**payload, "changed": ["state"], "archived": True}
    statuses = [sent(Face(family), kind, changed)[0][1]["action"]["changes"]["status"] for family in ("0.9", "1")]
    assert statuses == [8, 8 + 32 + 64]


@pytest.mark.parametrize(("kind", "payload"), SILENT, ids=lambda value: str(value)[:40])
def test_other_events_have_no_envelope(kind: Kind, payload: dict[str, Any]) -> None:
    assert sent(Face("1"), kind, payload) == []


def test_every_kind_of_event_has_a_case_here() -> None:
    here = {kind for kind, _, _ in EVENTS + FLAGS + v0_1.TERMINALS} | {kind for kind, _ in SILENT}
    of_tenant = {Kind.ACTIVE_SESSIONS_CHANGED, Kind.AGENTS_CHANGED, Kind.DISPATCH_REFUSED, Kind.TERMINALS_CHANGED}
    assert here | of_tenant == set(Kind)


def _origin(protocol: str, said: dict[str, Any], channel: str = URI) -> dict[str, Any]:
    return {"client": "me", "seq": 3, "protocol": protocol, "said": said, "channel": channel}


@pytest.mark.rule("V53", "V402")
@pytest.mark.parametrize("face", [Face("0.9"), Face("1")], ids=["0.9", "1.0"])
def test_an_action_of_either_version_is_echoed_as_it_was_sent_and_one_of_0_1_in_words_of_its_own(face: Face) -> None:
    said = {"type": "session/titleChanged", "title": "Log"}
    ((_, echo),) = sent(face, Kind.TITLE_CHANGED, {"title": "Log", "origin": _origin(PROTOCOL, {**said, "more": 1})})
    assert (echo["action"], echo["origin"]) == ({**said, "more": 1}, {"clientId": "me", "clientSeq": 3})
    older = _origin("ahp/0.1", {"type": "session/titleChanged", "session": "echo:/one", "title": "Log"})
    ((_, echo),) = sent(face, Kind.TITLE_CHANGED, {"title": "Log", "origin": older})
    assert (echo["action"], echo["origin"]) == (said, {"clientId": "me", "clientSeq": 3})


@pytest.mark.rule("V410")
def test_an_archiving_has_its_origin_on_the_channel_on_which_it_was_dispatched() -> None:
    said = {"type": "chat/isArchivedChanged", "isArchived": True}
    payload = {"archived": True, "origin": _origin(PROTOCOL, said, CHANNELS[1].uri)}
    ((_, of_session),) = sent(Face("1"), Kind.ARCHIVED_CHANGED, payload)
    assert of_session["action"] == {"type": "session/isArchivedChanged", "isArchived": True}
    assert "origin" not in of_session
    ((_, of_chat),) = sent(Face("1"), Kind.CHAT_ARCHIVED_CHANGED, payload)
    assert (of_chat["action"], of_chat["origin"]["clientSeq"]) == (said, 3)


@pytest.mark.rule("V94")
def test_a_refused_action_comes_back_on_the_channel_as_it_was_sent() -> None:
    said = {"type": "chat/turnResume", "turnId": "t"}
    payload = {"connection": "w", "reason": "no", "origin": _origin(PROTOCOL, said, "ahp-chat:/one")}
    text = Projection(Face("0.9")).rejection(Event(12, -1, Kind.DISPATCH_REFUSED, exact_json.dumps(payload)))
    assert text is not None
    envelope = exact_json.loads(text)
    assert v0_9.envelope_faults(envelope) == []
    assert (envelope["channel"], envelope["action"], envelope["rejectionReason"]) == ("ahp-chat:/one", said, "no")
    older = {**payload, "origin": _origin("ahp/0.1", said)}
    assert Projection(Face("1")).rejection(Event(12, -1, Kind.DISPATCH_REFUSED, exact_json.dumps(older))) is None


@pytest.mark.rule("V60", "V325")
def test_the_roots_actions_say_that_no_agent_needs_a_sign_in() -> None:
    card = {"name": "echo", "title": "Echo", "description": "d", "models": ["m"], "context_tokens": None, "images": False}
    event = Event(12, -1, Kind.AGENTS_CHANGED, exact_json.dumps({"agents": [card], "changed": [], "reshown": []}))
    text = Projection(Face("0.9")).root_envelope(event, EVERYTHING)
    assert text is not None
    envelope = exact_json.loads(text)
    assert v0_9.envelope_faults(envelope) == []
    assert envelope["channel"] == "ahp-root://"
    assert envelope["action"]["agents"][0]["protectedResources"] == []
    count = Projection(Face("1")).root_envelope(Event(13, -1, Kind.ACTIVE_SESSIONS_CHANGED, '{"count":4}'), EVERYTHING)
    assert exact_json.loads(str(count))["action"] == {"type": "root/activeSessionsChanged", "activeSessions": 4}


@pytest.mark.rule("V207", "V315")
def test_an_echo_for_a_sender_that_is_not_subscribed_is_on_the_channel_that_it_used() -> None:
    said = {"type": "chat/draftChanged"}
    projection, chat = Projection(Face("0.9")), f"ahp-chat:/sess_{'a' * 20}"
    drafted = Event(12, 7, Kind.DRAFT_CHANGED, exact_json.dumps({"draft": None, "origin": _origin(PROTOCOL, said, chat)}))
    echo = exact_json.loads(str(projection.echo(drafted)))
    assert v0_9.envelope_faults(echo) == []
    assert (echo["channel"], echo["action"], echo["origin"]) == (chat, said, {"clientId": "me", "clientSeq": 3})
    title = {"type": "session/titleChanged", "title": "Log"}
    of_session = _origin(PROTOCOL, title, URI)
    for origin in (of_session, {**_origin(PROTOCOL, title, chat), "echo_channel": URI}):
        renamed = Event(12, 7, Kind.TITLE_CHANGED, exact_json.dumps({"title": "Log", "origin": origin}))
        assert exact_json.loads(str(projection.echo(renamed)))["channel"] == URI
    older = Event(12, 7, Kind.DRAFT_CHANGED, exact_json.dumps({"draft": None, "origin": _origin("ahp/0.1", said, chat)}))
    assert projection.echo(older) is None
