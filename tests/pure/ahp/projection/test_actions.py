"""Each kind of event is one action of AHP 0.1 that fits its schema, or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.ahp.tenant.switchboard import agents_redefined
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection import actions
from sessions_app.ahp.versions.v0_1.wire.envelopes import envelope_faults
from sessions_app.core.base.caller import EVERYTHING, Sight
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log.journal.rows import text_of
from sessions_app.core.log.journal.types import Event

URI = "echo:/one"
CALL = {"turn": "t", "call": "c"}
ENTRY = {
    "id": "me",
    "name": "Bridge",
    "tools": [{"name": "signal", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}],
    "customizations": [{"uri": "file:///x", "displayName": "X"}],
}
CUSTOMIZATION = {"customization": {"uri": "file:///x", "displayName": "X"}, "enabled": True, "client": "me", "status": "loaded"}
OUTCOME = {"success": False, "message": "Dropped", "content": [], "structured": {"a": 1}, "error": {"message": "wet"}}
FORM = {"id": "f", "message": "Which?", "questions": [{"id": "q", "kind": "text", "message": "Name?"}]}
EDIT = {
    "uri": "file:///a.py",
    "before": {"content": "1" * 64, "size": 9},
    "after": {"content": "2" * 64, "size": 12},
    "added": 2,
    "removed": 1,
}
ANSWER = {"state": "submitted", "value": {"kind": "text", "value": "Bree"}}

TERMINALS: list[tuple[Kind, dict[str, Any], dict[str, Any]]] = [
    (Kind.TERMINAL_DATA, {"delta": "a"}, {"type": "terminal/data", "data": "a"}),
    (Kind.TERMINAL_INPUT, {"data": "\0"}, {"type": "terminal/input", "data": "\0"}),
    (Kind.TERMINAL_RESIZED, {"cols": 3, "rows": 4}, {"type": "terminal/resized", "cols": 3, "rows": 4}),
    (
        Kind.TERMINAL_CLAIMED,
        {"claim": {"client": "c"}, "agent": "", "line": 1},
        {"type": "terminal/claimed", "claim": {"kind": "client", "clientId": "c"}},
    ),
    (
        Kind.TERMINAL_CLAIMED,
        {"claim": {"session": "echo:/s", "turn": "t", "call": "c"}, "agent": "echo", "line": 1},
        {"type": "terminal/claimed", "claim": {"kind": "session", "session": "echo:/s", "turnId": "t", "toolCallId": "c"}},
    ),
    (Kind.TERMINAL_TITLE_CHANGED, {"title": "t"}, {"type": "terminal/titleChanged", "title": "t"}),
    (Kind.TERMINAL_CWD_CHANGED, {"cwd": "file:///a"}, {"type": "terminal/cwdChanged", "cwd": "file:///a"}),
    (Kind.TERMINAL_CLEARED, {}, {"type": "terminal/cleared"}),
    (Kind.TERMINAL_COMMANDS_AVAILABLE, {}, {"type": "terminal/commandDetectionAvailable"}),
    (
        Kind.TERMINAL_COMMAND_STARTED,
        {"command": "c", "line": "ls", "at": 5},
        {"type": "terminal/commandExecuted", "commandId": "c", "commandLine": "ls", "timestamp": 5},
    ),
    (Kind.TERMINAL_COMMAND_ENDED, {"command": "c"}, {"type": "terminal/commandFinished", "commandId": "c"}),
    (
        Kind.TERMINAL_COMMAND_ENDED,
        {"command": "c", "code": 0, "ms": 7},
        {"type": "terminal/commandFinished", "commandId": "c", "exitCode": 0, "durationMs": 7},
    ),
    (Kind.TERMINAL_EXITED, {}, {"type": "terminal/exited"}),
    (Kind.TERMINAL_EXITED, {"code": 0}, {"type": "terminal/exited", "exitCode": 0}),
]
EVENTS: list[tuple[Kind, dict[str, Any], str]] = [
    (Kind.TITLE_CHANGED, {"title": "Log"}, "titleChanged"),
    (Kind.READ_CHANGED, {"read": True}, "isReadChanged"),
    (Kind.ARCHIVED_CHANGED, {"archived": False}, "isArchivedChanged"),
    (Kind.MODEL_CHANGED, {"model": "m"}, "modelChanged"),
    (Kind.MODEL_CHANGED, {"model": "m", "config": {"a": "b"}}, "modelChanged"),
    (Kind.SETTINGS_CHANGED, {"options": {"tone": "dry"}, "approval": "auto", "replace": True}, "configChanged"),
    (Kind.SETTINGS_CHANGED, {"options": {}, "approval": None, "replace": False}, "configChanged"),
    (Kind.SERVER_TOOLS_CHANGED, {"tools": [{"name": "t", "description": "d", "parameters": {}}]}, "serverToolsChanged"),
    (Kind.CUSTOMIZATIONS_CHANGED, {"customizations": [CUSTOMIZATION]}, "customizationsChanged"),
    (Kind.CUSTOMIZATION_TOGGLED, {"uri": "file:///x", "enabled": False}, "customizationToggled"),
    (Kind.ACTIVITY_CHANGED, {"activity": "Running"}, "activityChanged"),
    (Kind.ACTIVITY_CHANGED, {"activity": None}, "activityChanged"),
    (Kind.DIFFS_CHANGED, {"diffs": [EDIT, {**EDIT, "before": None}, {**EDIT, "after": None}]}, "diffsChanged"),
    (Kind.DIFFS_CHANGED, {"diffs": []}, "diffsChanged"),
    (Kind.HISTORY_CUT, {"turn": "t", "found": True}, "truncated"),
    (Kind.HISTORY_CUT, {"turn": None, "found": True}, "truncated"),
    (Kind.CLIENT_JOINED, {"client": ENTRY}, "activeClientChanged"),
    (Kind.CLIENT_LEFT, {"client": "me", "cause": "gone"}, "activeClientChanged"),
    (Kind.CLIENT_TOOLS_CHANGED, {"client": "me", "tools": ENTRY["tools"]}, "activeClientToolsChanged"),
    (Kind.MESSAGE_PENDING, {"kind": "queued", "id": "m", "message": {"text": "later"}}, "pendingMessageSet"),
    (Kind.MESSAGE_NOT_PENDING, {"kind": "steering", "id": "m", "taken": True}, "pendingMessageRemoved"),
    (Kind.MESSAGES_REORDERED, {"order": ["b", "a"]}, "queuedMessagesReordered"),
    (Kind.TURN_STARTED, {"turn": "t", "run": 1, "message": None}, "turnStarted"),
    (Kind.TURN_STARTED, {"turn": "t", "run": 1, "message": {"content": "hi"}, "queued": "m"}, "turnStarted"),
    (
        Kind.TURN_STARTED,
        {
            "turn": "t",
            "run": 1,
            "message": {
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "url": "data:image/png;base64,AAAA"},
                    {"type": "image", "url": "https://example.org/x.png"},
                ]
            },
        },
        "turnStarted",
    ),
    (Kind.TURN_ENDED, {"turn": "t", "run": 1, "in_run": True, "reason": "max_tokens"}, "turnComplete"),
    (Kind.TURN_FAILED, {"turn": "t", "run": 1, "in_run": True, "error": "interrupted"}, "error"),
    (Kind.TURN_FAILED, {"turn": "t", "run": 1, "in_run": True, "error": "of a later release"}, "error"),
    (Kind.TURN_CANCELLED, {"turn": "t", "run": 1, "in_run": True, "reason": "end_turn", "cause": "client"}, "turnCancelled"),
    (Kind.TEXT_OPENED, {"turn": "t", "step": 1, "part": "1.0"}, "responsePart"),
    (Kind.THINKING_OPENED, {"turn": "t", "step": 1, "part": "1.1", "late": True}, "responsePart"),
    (Kind.TEXT_DELTA, {"turn": "t", "step": 1, "part": "1.0", "delta": "é"}, "delta"),
    (Kind.THINKING_DELTA, {"turn": "t", "step": 1, "part": "1.1", "delta": "hm"}, "reasoning"),
    (
        Kind.STEP_DONE,
        {"turn": "t", "step": 1, "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0}},
        "usage",
    ),
    (Kind.CALL_OPENED, {**CALL, "step": 1, "part": "1.2", "name": "tide", "title": "Tide", "client": "me"}, "toolCallStart"),
    (Kind.CALL_ARGUMENTS, {**CALL, "delta": '{"a"'}, "toolCallDelta"),
    (
        Kind.CALL_READY,
        {**CALL, "step": 1, "name": "tide", "input": {}, "arguments": "{ }", "runner": "server", "asks": True, "why": ""},
        "toolCallReady",
    ),
    (
        Kind.CALL_READY,
        {**CALL, "step": 1, "name": "w", "input": {}, "arguments": "{}", "runner": "server", "asks": True, "edits": [EDIT]},
        "toolCallReady",
    ),
    (
        Kind.CALL_READY,
        {**CALL, "step": 1, "name": "tide", "input": {}, "runner": "client", "asks": False},
        "toolCallReady",
    ),
    (Kind.CALL_GRANTED, {**CALL, "by": "key:ah_x", "option": "allow-once", "input": ""}, "toolCallConfirmed"),
    (
        Kind.CALL_DENIED,
        {**CALL, "reason": "no", "content": "", "shown": True, "how": "skipped", "suggestion": {"text": "try"}},
        "toolCallConfirmed",
    ),
    (Kind.CALL_FINISHED, {**CALL, "content": "ok", "failed": False, "by": "server", "shown": True}, "toolCallComplete"),
    (
        Kind.CALL_FINISHED,
        {**CALL, "content": "ok", "failed": True, "by": "server", "shown": True, "edits": [EDIT]},
        "toolCallComplete",
    ),
    (
        Kind.CALL_FINISHED,
        {**CALL, "content": [{"type": "text", "text": "x"}], "failed": True, "by": "server", "shown": True, "reviewed": True},
        "toolCallComplete",
    ),
    (
        Kind.CALL_FINISHED,
        {**CALL, "content": "x", "failed": True, "by": "client", "shown": False, "outcome": OUTCOME},
        "toolCallComplete",
    ),
    (Kind.CALL_CONTENT_CHANGED, {**CALL, "content": [{"type": "text", "text": "half"}]}, "toolCallContentChanged"),
    (Kind.CALL_RESULT_CONFIRMED, {**CALL, "approved": False, "content": "", "shown": True}, "toolCallResultConfirmed"),
    (Kind.FORM_OPENED, {**CALL, "form": FORM}, "inputRequested"),
    (Kind.FORM_ANSWER_CHANGED, {"turn": "t", "form": "f", "question": "q", "answer": ANSWER}, "inputAnswerChanged"),
    (Kind.FORM_ANSWER_CHANGED, {"turn": "t", "form": "f", "question": "q", "answer": None}, "inputAnswerChanged"),
    (Kind.FORM_CLOSED, {"turn": "t", "form": "f", "response": "accept", "answers": {"q": ANSWER}}, "inputCompleted"),
]

SILENT: list[tuple[Kind, dict[str, Any]]] = [
    (Kind.FILES_CHANGED, {"watch": "watch_a"}),
    (Kind.NEW_FAMILIES_FROM, {}),
    (Kind.CHAT_READ_CHANGED, {"read": True}),
    (Kind.DRAFT_CHANGED, {"draft": None}),
    (Kind.READ_CLEARED, {"cause": "turn"}),
    (Kind.CHAT_ARCHIVED_CHANGED, {"archived": True}),
    (Kind.ATTENTION_OPENED, {"kind": "form", "turn": "t", "form": FORM}),
    (Kind.ATTENTION_CLOSED, {"kind": "form", "turn": "t", "of": "f"}),
    (Kind.CONVERSATION_CHANGED, {"changed": ["title"], "title": "Log"}),
    (Kind.CALL_DENIED, {**CALL, "reason": "cancelled", "content": "", "shown": True, "closing": True}),
    (Kind.TURN_CANCELLED, {"turn": "t", "run": 1, "in_run": True, "reason": "error", "cause": "cut"}),
    (Kind.TURN_RESUMED, {"turn": "t", "run": 2}),
    (Kind.TURN_REOPENED, {"turn": "t", "attempt": 2}),
    (Kind.RUN_STARTED, {"turn": "t", "run": 1, "takeover": 0}),
    (Kind.RUN_PAUSED, {"turn": "t", "run": 1}),
    (Kind.RUN_RELEASED, {"turn": "t", "run": 1}),
    (Kind.STEP_STARTED, {"turn": "t", "step": 1}),
    (Kind.TEXT_DONE, {"turn": "t", "step": 1, "text": "x"}),
    (Kind.THINKING_DONE, {"turn": "t", "step": 1, "thinking": "x"}),
    (Kind.CALL_RUNNING, CALL),
    (Kind.TERMINAL_CREATED, {"terminal": "term_1", "uri": "term:/1"}),
    (Kind.TERMINAL_DISPOSED, {"terminal": "term_1"}),
    (Kind.CALL_STORED, CALL),
    (Kind.TURN_STEERED, {"turn": "t", "step": 2, "id": "m", "content": "x"}),
    (Kind.SESSION_CREATED, {"session": "s", "agent": "echo", "uri": URI}),
    (Kind.SESSION_DELETED, {"session": "s", "uri": URI}),
]


def _event(kind: str, payload: dict[str, Any], session: int = 7) -> Event:
    return Event(12, session, kind, exact_json.dumps(payload))


@pytest.mark.rule("R37", "R66", "R68", "R87", "R370")
@pytest.mark.parametrize(("kind", "payload", "word"), EVENTS, ids=lambda value: str(value)[:40])
def test_an_event_is_one_action_that_fits(kind: Kind, payload: dict[str, Any], word: str) -> None:
    text = actions.envelope_of(_event(kind, payload), URI)
    assert text is not None
    envelope = exact_json.loads(text)
    assert envelope_faults(envelope) == []
    assert (envelope["serverSeq"], envelope["action"]["type"]) == (12, f"session/{word}")
    assert envelope["action"]["session"] == URI
    assert "origin" not in envelope


@pytest.mark.parametrize(("kind", "payload"), SILENT, ids=lambda value: str(value)[:40])
def test_events_without_an_action_in_this_version_have_no_envelope(kind: Kind, payload: dict[str, Any]) -> None:
    assert actions.envelope_of(_event(kind, payload), URI) is None


@pytest.mark.rule("V147")
def test_only_a_reopened_turn_needs_a_new_snapshot() -> None:
    payloads = [(kind, payload) for kind, payload, _ in EVENTS] + SILENT
    assert {kind for kind, payload in payloads if actions.breaks(_event(kind, payload))} == {Kind.TURN_REOPENED}


ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Lone surrogates included, which a client may send in an id."""


@given(st.sampled_from([Kind.TEXT_DELTA, Kind.THINKING_DELTA]), ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_a_delta_has_its_text_exactly(kind: Kind, turn: str, part: str, delta: str, uri: str) -> None:
    stored = text_of(Happening(kind, {"turn": turn, "step": 1, "part": part, "delta": delta}))
    word = "session/delta" if kind is Kind.TEXT_DELTA else "session/reasoning"
    action = {"type": word, "session": uri, "turnId": turn, "partId": part, "content": delta}
    assert actions.envelope_of(Event(12, 7, kind, stored), uri) == jsonrpc.encode({"action": action, "serverSeq": 12})


def test_unknown_kinds_of_events_are_ignored() -> None:
    assert actions.envelope_of(_event("of_tomorrow", {}), URI) is None


def test_every_kind_of_event_has_a_case_here() -> None:
    here = {kind for kind, _, _ in EVENTS} | {kind for kind, _, _ in TERMINALS} | {kind for kind, _ in SILENT}
    of_tenant = {Kind.ACTIVE_SESSIONS_CHANGED, Kind.AGENTS_CHANGED, Kind.DISPATCH_REFUSED, Kind.TERMINALS_CHANGED}
    assert here | of_tenant == set(Kind)


@pytest.mark.rule("R172", "R155", "R339")
def test_an_edit_refers_to_the_contents_below_its_sessions_uri() -> None:
    text = actions.envelope_of(_event(Kind.DIFFS_CHANGED, {"diffs": [EDIT]}), URI)
    assert text is not None
    [shown] = exact_json.loads(text)["action"]["diffs"]
    assert shown == {
        "before": {"uri": "file:///a.py", "content": {"uri": f"{URI}/content/{'1' * 64}", "sizeHint": 9}},
        "after": {"uri": "file:///a.py", "content": {"uri": f"{URI}/content/{'2' * 64}", "sizeHint": 12}},
        "diff": {"added": 2, "removed": 1},
    }
    finished = {**CALL, "content": "ok", "failed": False, "by": "server", "shown": True, "edits": [EDIT]}
    text = actions.envelope_of(_event(Kind.CALL_FINISHED, finished), URI)
    assert text is not None
    blocks = exact_json.loads(text)["action"]["result"]["content"]
    assert blocks == [{"type": "text", "text": "ok"}, {"type": "fileEdit", **shown}]


@pytest.mark.rule("R172", "R314")
def test_a_result_refers_to_a_terminal_that_goes_on() -> None:
    terminal = {"type": "terminal", "resource": "term:/1", "title": "make"}
    finished = {**CALL, "content": "ok", "failed": False, "by": "server", "shown": True, "terminals": [terminal]}
    text = actions.envelope_of(_event(Kind.CALL_FINISHED, finished), URI)
    assert text is not None
    assert exact_json.loads(text)["action"]["result"]["content"] == [{"type": "text", "text": "ok"}, terminal]


@pytest.mark.rule("R82", "R83", "R68")
def test_an_echo_has_the_action_as_sent_and_its_origin() -> None:
    said = {"type": "session/titleChanged", "session": URI, "title": "Log", "unknown": [1]}
    origin = {"client": "me", "seq": 4, "protocol": actions.PROTOCOL, "said": said}
    text = actions.envelope_of(_event(Kind.TITLE_CHANGED, {"title": "Log", "origin": origin}), URI)
    assert text is not None
    envelope = exact_json.loads(text)
    assert envelope == {"action": said, "serverSeq": 12, "origin": {"clientId": "me", "clientSeq": 4}}


def test_an_action_dispatched_in_another_version_is_encoded_in_this_one() -> None:
    origin = {"client": "me", "seq": 4, "protocol": "ahp/1.0", "said": {"kind": "rename"}}
    text = actions.envelope_of(_event(Kind.TITLE_CHANGED, {"title": "Log", "origin": origin}), URI)
    assert text is not None
    assert exact_json.loads(text)["action"] == {"type": "session/titleChanged", "session": URI, "title": "Log"}


@pytest.mark.rule("R83")
def test_a_rejection_has_the_action_as_it_was_sent_and_the_reason() -> None:
    said = {"type": "session/dance", "session": URI}
    origin = {"client": "me", "seq": 4, "protocol": actions.PROTOCOL, "said": said}
    event = _event(Kind.DISPATCH_REFUSED, {"connection": "conn_1", "reason": "no", "origin": origin}, session=-1)
    text = actions.rejection(event)
    assert text is not None
    envelope = exact_json.loads(text)
    assert envelope["origin"] == {"clientId": "me", "clientSeq": 4}
    assert envelope_faults(envelope) == []
    assert envelope["rejectionReason"] == "no"


@pytest.mark.rule("R71")
def test_the_root_gets_the_number_of_sessions() -> None:
    text = actions.root_envelope(_event(Kind.ACTIVE_SESSIONS_CHANGED, {"count": 3}, session=-1), EVERYTHING)
    assert text is not None
    envelope = exact_json.loads(text)
    assert envelope["action"] == {"type": "root/activeSessionsChanged", "activeSessions": 3}
    assert envelope_faults(envelope) == []


@pytest.mark.parametrize(("kind", "payload", "action"), TERMINALS, ids=lambda value: str(value)[:40])
def test_events_of_terminals(kind: Kind, payload: dict[str, Any], action: dict[str, Any]) -> None:
    text = actions.envelope_of(_event(kind, payload), "term:/1")
    assert text is not None
    envelope = exact_json.loads(text)
    assert envelope == {"action": {**action, "terminal": "term:/1"}, "serverSeq": 12}
    assert envelope_faults(envelope) == []


@pytest.mark.rule("R9", "R71")
@pytest.mark.parametrize(
    ("sight", "seen"),
    [
        (EVERYTHING, "abc"),
        (Sight(frozenset({"echo"}), 9), "b"),
        (Sight(frozenset({"echo"}), 1), "abc"),
        (Sight(frozenset(), 2), "c"),
        (Sight(frozenset({"echo"}), 1, session=7), "b"),
        (Sight(None, 1, session=8), ""),
    ],
)
def test_the_root_gets_the_terminals_that_a_caller_sees(sight: Sight, seen: str) -> None:
    mine = {"uri": "term:/a", "title": "A", "claim": {"client": "c"}, "agent": "", "line": 1, "session": None}
    of_session = {**mine, "uri": "term:/b", "claim": {"session": "echo:/s"}, "agent": "echo", "session": 7, "code": 3}
    of_other = {**of_session, "uri": "term:/c", "agent": "pilot", "line": 1 if sight.line == 1 else 2, "session": 9}
    event = _event(Kind.TERMINALS_CHANGED, {"terminals": [mine, of_session, of_other]}, session=-1)
    text = actions.root_envelope(event, sight)
    assert text is not None
    envelope = exact_json.loads(text)
    assert envelope_faults(envelope) == []
    shown = {each["resource"]: each for each in envelope["action"]["terminals"]}
    assert set(shown) == {f"term:/{name}" for name in seen}
    if "b" in seen:
        assert shown["term:/b"]["exitCode"] == 3


@pytest.mark.rule("R71", "R74")
def test_the_root_gets_the_agents_that_a_key_may_use() -> None:
    card = {"name": "a", "title": "A", "description": "", "models": ["m"], "context_tokens": 9, "images": True}
    payload = {"agents": [card, {**card, "name": "b", "context_tokens": None}], "changed": ["b"]}
    event = _event(Kind.AGENTS_CHANGED, payload, session=-1)
    text, less = actions.root_envelope(event, EVERYTHING), actions.root_envelope(event, Sight(frozenset({"b"})))
    assert text is not None
    assert less is not None
    model = {"id": "m", "provider": "a", "name": "m", "maxContextWindow": 9, "supportsVision": True}
    first = {"provider": "a", "displayName": "A", "description": "", "models": [model]}
    assert exact_json.loads(text)["action"]["agents"][0] == first
    assert [each["provider"] for each in exact_json.loads(less)["action"]["agents"]] == ["b"]
    assert envelope_faults(exact_json.loads(text)) == []
    assert agents_redefined(event) == {"b"}


@pytest.mark.rule("R9", "R71")
@pytest.mark.parametrize(
    ("reshown", "key_agents", "hears"),
    [(["b"], None, True), (["b"], {"b"}, True), (["b"], {"a"}, False), ([], {"a"}, False), (["a", "b"], {"a"}, True)],
)
def test_a_limited_key_gets_changes_of_its_agents_only(reshown: list[str], key_agents: set[str] | None, hears: bool) -> None:
    card = {"name": "a", "title": "A", "description": "", "models": ["m"], "context_tokens": 9, "images": True}
    payload = {"agents": [card, {**card, "name": "b"}], "changed": ["b"], "reshown": reshown}
    sight = Sight(None if key_agents is None else frozenset(key_agents))
    text = actions.root_envelope(_event(Kind.AGENTS_CHANGED, payload, session=-1), sight)
    assert (text is not None) is hears


@pytest.mark.rule("R162", "R155")
def test_a_call_that_asks_shows_the_contents_before_and_after_its_edit() -> None:
    ready = {**CALL, "step": 1, "name": "w", "input": {}, "arguments": "{}", "runner": "server", "asks": True, "edits": [EDIT]}
    action = actions.action_of(_event(Kind.CALL_READY, ready), URI)
    assert action is not None
    [item] = action["edits"]["items"]
    for side, digit in (("before", "1"), ("after", "2")):
        assert item[side]["content"]["uri"] == f"{URI}/content/{digit * 64}"
    assert "edits" not in (actions.action_of(_event(Kind.CALL_READY, {**ready, "edits": []}), URI) or {})
