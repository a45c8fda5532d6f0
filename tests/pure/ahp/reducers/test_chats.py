"""Reducers of AHP 0.9 and 1.0: chats, and sessions that list them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.ahp.versions.v1_0.reducers import STEPS, reduce
from tests.faces.ahp.generated import JSON

State = dict[str, Any]
START = "2026-05-01T10:00:00.000Z"
MESSAGE = {"text": "Hello", "origin": {"kind": "user"}}


def chat(*, status: int = 1, **members: Any) -> State:
    return {"resource": "ahp-chat:/1", "title": "Talk", "status": status, "modifiedAt": START, "turns": [], **members}


def running(*parts: State, status: int = 8, **members: Any) -> State:
    turn = {"id": "t", "startedAt": START, "message": MESSAGE, "responseParts": list(parts)}
    return chat(status=status, activeTurn=turn, **members)


def call(status: str, call_id: str = "c", **members: Any) -> State:
    held = {"toolCallId": call_id, "toolName": "look", "displayName": "Look", "status": status, "invocationMessage": "Looking"}
    return {"kind": "toolCall", "toolCall": {**held, **members}}


def question(request_id: str = "q", **members: Any) -> State:
    return {"kind": "inputRequest", "request": {"id": request_id, "message": "Which one?"}, **members}


def ended(turn_id: str, *parts: State, state: str = "complete") -> State:
    return {"id": turn_id, "startedAt": START, "duration": 5, "message": MESSAGE, "responseParts": list(parts), "state": state}


def error(**members: Any) -> State:
    return {"kind": "error", "error": {"errorType": "provider", "message": "gone"}, **members}


def act(name: str, **members: Any) -> State:
    return {"type": name, "turnId": "t", "toolCallId": "c", **members}


# --- turns ---------------------------------------------------------------------------------------


@pytest.mark.rule("V500", "V108")
def test_a_turn_starts_unread_and_at_the_time_that_its_sender_gave() -> None:
    before = chat(status=33, queuedMessages=[{"id": "m", "message": MESSAGE}, {"id": "n", "message": MESSAGE}])
    later = "2026-05-01T11:00:00.000Z"
    after = reduce(before, act("chat/turnStarted", startedAt=later, message=MESSAGE, queuedMessageId="m"))
    assert (after["status"], after["modifiedAt"]) == (8, later)
    assert after["activeTurn"] == {"id": "t", "startedAt": later, "message": MESSAGE, "responseParts": []}
    assert [message["id"] for message in after["queuedMessages"]] == ["n"]


@pytest.mark.rule("V55", "V109", "V144", "V502")
@pytest.mark.parametrize(
    ("start", "duration", "end"),
    [
        ("2026-05-01T10:00:00.000Z", 1500, "2026-05-01T10:00:01.500Z"),
        ("2026-05-01T12:30:00+02:30", 1, "2026-05-01T10:00:00.001Z"),
        ("2026-05-01T10:00:00.0009Z", 1.9, "2026-05-01T10:00:00.001Z"),
        ("2026-12-31T23:59:59.999Z", 1, "2027-01-01T00:00:00.000Z"),
        ("2026-05-01T10:00:00.000Z", -5, "2026-05-01T10:00:00.000Z"),
    ],
)
def test_a_turn_ends_its_duration_after_its_start(start: str, duration: float, end: str) -> None:
    before = running()
    before["activeTurn"]["startedAt"] = start
    after = reduce(before, act("chat/turnComplete", duration=duration))
    assert after["modifiedAt"] == end
    assert after["turns"][0]["duration"] == max(0, duration)
    assert "activeTurn" not in after


@pytest.mark.rule("V502")
@pytest.mark.parametrize("start", ["yesterday", "9999-12-31T23:59:59.999Z"])
def test_a_turn_whose_end_is_no_time_stays_open(start: str) -> None:
    before = running()
    before["activeTurn"]["startedAt"] = start
    assert reduce(before, act("chat/turnComplete", duration=10**12)) is before


@pytest.mark.rule("V502", "V145", "V192")
def test_an_error_ends_the_turn_as_its_last_part_and_leaves_the_question_unanswered() -> None:
    before = running(call("auth-required", auth={}), question(), status=24)
    after = reduce(before, act("chat/error", duration=0, part=error()))
    assert after["status"] == 2
    parts = after["turns"][0]["responseParts"]
    assert [part["kind"] for part in parts] == ["toolCall", "inputRequest", "error"]
    assert parts[0]["toolCall"]["reason"] == "skipped"
    assert "response" not in parts[1]
    # Only the turn's end brings an error part.
    assert reduce(before, act("chat/responsePart", part=error())) is before


@pytest.mark.rule("V503", "V146")
def test_only_the_latest_turn_is_resumed_and_only_if_its_last_part_allows_it() -> None:
    resumable = ended("t", error(resumable=True), state="error")
    after = reduce(chat(status=34, turns=[ended("s"), resumable]), act("chat/turnResume"))
    assert (after["status"], after["modifiedAt"]) == (8, START)
    assert after["activeTurn"]["responseParts"] == resumable["responseParts"]
    assert [turn["id"] for turn in after["turns"]] == ["s"]
    for refused in (
        chat(turns=[resumable, ended("s")]),
        chat(turns=[ended("t", error(), state="error")]),
        chat(turns=[ended("t", error(resumable="yes"), state="error")]),
        chat(turns=[ended("t", error(resumable=True))]),
        chat(turns=[resumable], activeTurn={"id": "a"}),
        chat(),
    ):
        assert reduce(refused, act("chat/turnResume")) is refused


@pytest.mark.rule("V510")
def test_truncation_takes_the_open_question_with_its_turn() -> None:
    before = running(question(), status=24, turnsNextCursor="older")
    before["turns"] = [ended("a"), ended("b")]
    kept = reduce(before, {"type": "chat/truncated", "turnId": "a"})
    assert ([turn["id"] for turn in kept["turns"]], kept["status"], kept["turnsNextCursor"]) == (["a"], 1, "older")
    none = reduce(before, {"type": "chat/truncated"})
    assert (none["turns"], none["status"]) == ([], 1)
    assert "turnsNextCursor" not in none
    assert reduce(before, {"type": "chat/truncated", "turnId": "unknown"}) is before


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.rule("V165", "V506")
@pytest.mark.parametrize(
    ("before", "given_", "after"),
    [
        (None, {"kind": "mcp", "customizationId": "m"}, {"kind": "mcp", "customizationId": "m"}),
        (None, {"kind": "client", "clientId": "a"}, None),
        ({"kind": "client", "clientId": "a"}, {"kind": "client", "clientId": "b"}, {"kind": "client", "clientId": "a"}),
        ({"kind": "client", "clientId": "a"}, {"kind": "mcp", "customizationId": "m"}, {"kind": "client", "clientId": "a"}),
        ({"kind": "mcp", "customizationId": "m"}, {"kind": "client", "clientId": "a"}, {"kind": "mcp", "customizationId": "m"}),
    ],
)
def test_a_contributor_is_refined_but_the_executor_stays(before: Any, given_: Any, after: Any) -> None:
    state = running(call("streaming", contributor=before))
    following = reduce(state, act("chat/toolCallReady", invocationMessage="Look", contributor=given_))
    assert following["activeTurn"]["responseParts"][0]["toolCall"].get("contributor") == after


@pytest.mark.rule("V506")
def test_a_call_that_is_made_ready_again_keeps_what_the_action_leaves_out() -> None:
    options = [{"id": "y", "label": "Yes", "kind": "approve"}]
    state = running(call("pending-confirmation", toolInput="old", options=options), status=24)
    after = reduce(state, act("chat/toolCallReady", invocationMessage="Look again", riskAssessment={"kind": "judge"}))
    held = after["activeTurn"]["responseParts"][0]["toolCall"]
    assert (held["toolInput"], held["options"], held["riskAssessment"]) == ("old", options, {"kind": "judge"})
    assert (held["status"], after["status"]) == ("pending-confirmation", 24)


@pytest.mark.rule("V161", "V164", "V507")
def test_an_edited_input_replaces_a_text_but_not_a_reference() -> None:
    for before, after in (("old", ""), ({"uri": "content:/1"}, {"uri": "content:/1"})):
        state = running(call("pending-confirmation", toolInput=before, intention="look", editable=True), status=24)
        confirmed = act("chat/toolCallConfirmed", approved=True, confirmed="user-action", editedToolInput="")
        held = reduce(state, confirmed)["activeTurn"]["responseParts"][0]["toolCall"]
        assert (held["toolInput"], held["intention"], held["status"]) == (after, "look", "running")
        assert "editable" not in held


@pytest.mark.rule("V103", "V505", "V508")
def test_a_call_waits_for_a_sign_in_and_continues() -> None:
    state = reduce(running(), act("chat/toolCallStart", toolName="look", displayName="L", contributor={"kind": "mcp"}))
    state = reduce(state, act("chat/toolCallDelta", content='{"a"'))
    state = reduce(state, act("chat/toolCallDelta", invocationMessage="Looking"))
    held = state["activeTurn"]["responseParts"][0]["toolCall"]
    assert (held["partialInput"], held["invocationMessage"]) == ('{"a"', "Looking")
    state = reduce(state, act("chat/toolCallReady", invocationMessage="Look", confirmed="not-needed"))
    waiting = reduce(state, act("chat/toolCallAuthRequired", auth={"reason": "expired"}))
    assert (waiting["status"], waiting["activeTurn"]["responseParts"][0]["toolCall"]["status"]) == (24, "auth-required")
    assert reduce(waiting, act("chat/toolCallAuthResolved")) == state


@pytest.mark.rule("V501", "V512")
def test_text_grows_its_own_part_and_pending_messages_keep_their_order() -> None:
    state = running({"kind": "reasoning", "id": "1", "content": ""}, {"kind": "markdown", "id": "2", "content": "a"})
    assert reduce(state, act("chat/delta", partId="1", content="x")) is state
    after = reduce(state, act("chat/delta", partId="2", content="b"))
    assert after["activeTurn"]["responseParts"][1]["content"] == "ab"
    for message_id in ("m", "n"):
        message = {"kind": "queued", "id": message_id, "message": MESSAGE}
        after = reduce(after, {"type": "chat/pendingMessageSet", **message})
    after = reduce(after, {"type": "chat/queuedMessagesReordered", "order": ["n", "unknown"]})
    assert [message["id"] for message in after["queuedMessages"]] == ["n", "m"]
    drafted = reduce(after, {"type": "chat/draftChanged", "draft": MESSAGE})
    assert drafted["draft"] == MESSAGE
    assert reduce(drafted, {"type": "chat/draftChanged"}) == after


@pytest.mark.rule("V504", "V513")
def test_lists_that_become_empty_stay_and_flags_are_the_chats_own() -> None:
    state = reduce(chat(workingDirectories=["a"]), {"type": "chat/workingDirectoryRemoved", "directory": "a"})
    assert state["workingDirectories"] == []
    state = reduce(state, {"type": "chat/backgroundWorkSet", "work": {"id": "1"}})
    state = reduce(state, {"type": "chat/backgroundWorkRemoved", "id": "1"})
    assert state["backgroundWork"] == []
    state = reduce(reduce(state, act("chat/isReadChanged", isRead=True)), act("chat/isArchivedChanged", isArchived=True))
    assert state["status"] == 97


@pytest.mark.rule("V168", "V507")
def test_a_call_that_waits_for_a_sign_in_ends_only_without_success() -> None:
    state = running(call("auth-required", confirmed="user-action", content=[1]), status=24)
    success = act("chat/toolCallComplete", result={"success": True, "pastTenseMessage": "Looked"})
    assert reduce(state, success) is state
    failure = act("chat/toolCallComplete", result={"success": False, "pastTenseMessage": "No"}, requiresResultConfirmation=True)
    after = reduce(state, failure)
    held = after["activeTurn"]["responseParts"][0]["toolCall"]
    assert (held["status"], held["confirmed"], held["content"], after["status"]) == ("completed", "user-action", [1], 8)


@pytest.mark.rule("V160", "V509")
def test_the_meta_of_an_action_replaces_the_calls_and_an_unknown_call_still_clears_an_error() -> None:
    state = running(call("running", _meta={"old": 1}))
    after = reduce(state, act("chat/toolCallContentChanged", content=[], _meta={"new": 2}))
    assert after["activeTurn"]["responseParts"][0]["toolCall"]["_meta"] == {"new": 2}
    failed = chat(status=2)
    assert reduce(failed, act("chat/toolCallConfirmed", approved=True, confirmed="user-action"))["status"] == 1


# --- questions -----------------------------------------------------------------------------------


@pytest.mark.rule("V190", "V191", "V193", "V511")
def test_a_question_stays_in_its_place_with_the_answers_and_the_response() -> None:
    markdown = {"kind": "markdown", "id": "1", "content": ""}
    state = reduce(running(markdown, status=40), {"type": "chat/inputRequested", "request": question()["request"]})
    assert state["status"] == 24
    state = reduce(state, act("chat/responsePart", part={"kind": "markdown", "id": "2", "content": ""}))
    answer = {"type": "chat/inputAnswerChanged", "requestId": "q", "questionId": "1"}
    state = reduce(state, {**answer, "answer": {"state": "draft"}})
    again = {**question()["request"], "message": "Which of these?"}
    state = reduce(state, {"type": "chat/inputRequested", "request": again})
    assert state["activeTurn"]["responseParts"][1]["request"] == {**again, "answers": {"1": {"state": "draft"}}}
    completed = {"type": "chat/inputCompleted", "requestId": "q", "response": "accept", "answers": {"2": {"state": "skipped"}}}
    state = reduce(state, completed)
    part = state["activeTurn"]["responseParts"][1]
    assert (part["response"], set(part["request"]["answers"]), state["status"]) == ("accept", {"1", "2"}, 8)
    assert reduce(state, completed) is state, "it is answered"
    assert len(reduce(state, {"type": "chat/inputRequested", "request": again})["activeTurn"]["responseParts"]) == 4
    assert reduce(chat(), {"type": "chat/inputRequested", "request": again}) == chat()


# --- sessions ------------------------------------------------------------------------------------


@pytest.mark.rule("V206", "V525")
def test_work_of_a_client_asks_nobody() -> None:
    state: State = {"status": 40, "chats": [], "title": ""}
    for kind, status in (("toolClientExecution", 40), ("toolConfirmation", 56)):
        state = reduce(state, {"type": "session/inputNeededSet", "request": {"id": kind, "kind": kind}})
        assert state["status"] == status
    state = reduce(state, {"type": "session/inputNeededRemoved", "id": "toolConfirmation"})
    assert (state["status"], len(state["inputNeeded"])) == (40, 1)
    state = reduce(state, {"type": "session/inputNeededRemoved", "id": "toolClientExecution"})
    assert "inputNeeded" not in state


@pytest.mark.rule("V521")
def test_a_change_of_a_chat_never_changes_its_uri() -> None:
    state: State = {"status": 1, "chats": [{"resource": "a", "title": "A", "activity": "x"}], "defaultChat": "a"}
    changes = {"resource": "b", "title": "B", "activity": None}
    after = reduce(state, {"type": "session/chatUpdated", "chat": "a", "changes": changes})
    assert after["chats"] == [{"resource": "a", "title": "B"}]
    assert reduce(after, {"type": "session/chatRemoved", "chat": "a"}) == {"status": 1, "chats": []}


@pytest.mark.rule("V231")
def test_a_terminals_end_is_in_its_lifecycle() -> None:
    state: State = {"content": [], "lifecycle": {"status": "running"}}
    assert reduce(state, {"type": "terminal/exited", "exitCode": 0})["lifecycle"] == {"status": "exited", "exitCode": 0}


@pytest.mark.rule("V520", "V522", "V523")
def test_members_of_a_session_are_replaced_and_clients_are_known_by_their_id() -> None:
    state: State = {"status": 40, "title": "", "lifecycle": "creating", "serverTools": []}
    ready = reduce(state, {"type": "session/ready"})
    assert ready == {**state, "lifecycle": "ready"}
    assert reduce(state, {"type": "session/creationFailed", "error": error()["error"]})["lifecycle"] == "failed"
    assert "serverTools" not in reduce(ready, {"type": "session/serverToolsChanged"})
    for tools in ([], [{"name": "look"}]):
        ready = reduce(ready, {"type": "session/activeClientSet", "activeClient": {"clientId": "a", "tools": tools}})
    assert ready["activeClients"] == [{"clientId": "a", "tools": [{"name": "look"}]}]


@pytest.mark.rule("V524")
@pytest.mark.parametrize(
    ("directory", "replacement", "after"),
    [("b", "x", ["a", "x", "c"]), ("b", "c", ["a", "c"]), ("b", "a", ["a", "c"]), ("b", "b", ["a", "b", "c"])],
)
def test_a_replaced_directory_is_in_the_list_once(directory: str, replacement: str, after: list[str]) -> None:
    state: State = {"workingDirectories": ["a", "b", "c"]}
    action = {"type": "session/workingDirectoryReplaced", "directory": directory, "replacement": replacement}
    assert reduce(state, action)["workingDirectories"] == after
    assert reduce(state, {**action, "directory": "unknown"}) is state


@pytest.mark.rule("V526", "V527")
def test_customizations_are_found_in_their_plugins() -> None:
    server = {"type": "mcpServer", "id": "s", "state": {"kind": "starting", "blocking": True}, "channel": "mcp://s"}
    state: State = {"customizations": [{"type": "plugin", "id": "p", "children": [server, {"type": "skill", "id": "k"}]}]}
    off = [{"kind": "session", "enabled": False}]
    after = reduce(state, {"type": "session/customizationToggled", "id": "k", "enablement": off})
    assert after["customizations"][0]["children"][1]["enabled"] is False
    after = reduce(after, {"type": "session/mcpServerBackgroundRequested", "id": "s"})
    assert after["customizations"][0]["children"][0]["state"] == {"kind": "starting", "blocking": False}
    after = reduce(after, {"type": "session/mcpServerStopRequested", "id": "s"})
    assert "channel" not in after["customizations"][0]["children"][0]
    assert reduce(after, {"type": "session/mcpServerStopRequested", "id": "k"}) is after
    after = reduce(after, {"type": "session/customizationRemoved", "id": "s"})
    assert len(after["customizations"][0]["children"]) == 1


@pytest.mark.rule("V531")
def test_ids_match_only_in_type_and_value() -> None:
    state: State = {"status": 1, "activeClients": [{"clientId": 1}]}
    assert reduce(state, {"type": "session/activeClientRemoved", "clientId": True}) is state
    assert reduce(state, {"type": "session/activeClientRemoved", "clientId": "1"}) is state
    assert reduce(state, {"type": "session/activeClientRemoved", "clientId": 1})["activeClients"] == []


# --- all of them ---------------------------------------------------------------------------------

NAMES = sorted(name for steps in STEPS.values() for name in steps)
MEMBERS = [
    "turnId",
    "toolCallId",
    "partId",
    "part",
    "content",
    "startedAt",
    "message",
    "duration",
    "result",
    "auth",
    "request",
    "requestId",
    "questionId",
    "answer",
    "response",
    "answers",
    "kind",
    "id",
    "order",
    "turns",
    "summary",
    "chat",
    "chats",
    "changes",
    "activeClient",
    "clientId",
    "directory",
    "replacement",
    "customization",
    "enablement",
    "state",
    "file",
    "files",
    "reviewed",
    "operations",
    "status",
    "annotation",
    "annotationId",
    "entry",
    "entryId",
    "work",
    "tools",
    "title",
    "isRead",
    "config",
    "lifecycle",
]
IDS = st.sampled_from(["t", "c", "q", "1"])
SOMETHING = JSON | IDS | st.dictionaries(st.sampled_from(MEMBERS), JSON | IDS, max_size=4)
ACTIONS = st.builds(
    lambda name, members: {"type": name, **members},
    st.sampled_from([*NAMES, "chat/invented", ""]),
    st.dictionaries(st.sampled_from(MEMBERS), SOMETHING, max_size=5),
)
STATES = st.sampled_from(
    [
        running(call("running"), question(), {"kind": "markdown", "id": "1", "content": ""}, status=24),
        running(call("pending-confirmation", "t", options=[{"id": "1"}]), status=24),
        chat(turns=[ended("t", error(resumable=True), state="error")], queuedMessages=[{"id": "1", "message": MESSAGE}]),
        {"status": 1, "title": "", "chats": [{"resource": "1"}], "customizations": [{"type": "plugin", "id": "1"}]},
        {"status": "ready", "files": [{"id": "1"}], "annotations": [{"id": "1", "entries": []}], "content": []},
        {},
    ]
)


@pytest.mark.rule("V530")
@settings(deadline=None)
@given(STATES, st.lists(ACTIONS | JSON, max_size=4))
def test_a_reducer_never_raises_and_never_changes_its_arguments(state: Any, actions: list[Any]) -> None:
    for action in actions:
        before, sent = copy.deepcopy(state), copy.deepcopy(action)
        following = reduce(state, action)
        assert (state, action) == (before, sent)
        assert reduce(before, sent) == following, "the same gives the same"
        exact_json.dumps(following)
        state = following
