"""The declarations of AHP 0.1 at work: what commands, actions and answers may look like."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire import commands, envelopes, errors, notifications, state, terminals
from sessions_app.ahp.versions.v0_1.wire.enumerations import SessionStatus
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.base.shapes import Shape
from tests.faces.ahp.generated import JSON, fitting, spoiled

SESSION = "echo:/1"


def complaint(shape: Shape[Any], value: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        shape.read(value)
    return caught.value.describe("params")


def params(method: str) -> Shape[Any]:
    return commands.COMMANDS[method].params


# --- commands ---


@pytest.mark.rule("R41")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "params.protocolVersions is required; params.clientId is required"),
        ({"protocolVersions": "0.1.0", "clientId": "c"}, "params.protocolVersions must be an array"),
        ({"protocolVersions": [1], "clientId": "c"}, "params.protocolVersions[0] must be a string"),
        ({"protocolVersions": [], "clientId": ""}, "params.clientId must not be empty"),
        ({"protocolVersions": [], "clientId": None}, "params.clientId must not be null"),
        (
            {"protocolVersions": [], "clientId": "c", "initialSubscriptions": [None]},
            "params.initialSubscriptions[0] must be a string",
        ),
        ({"protocolVersions": [], "clientId": "c", "locale": 7}, "params.locale must be a string"),
        ([], "params must be an object"),
        (None, "params must be an object"),
    ],
)
def test_a_handshake_with_a_fault_is_told_where_it_is(value: object, words: str) -> None:
    assert complaint(params("initialize"), value) == words


@pytest.mark.rule("R41")
def test_a_handshake_may_be_short() -> None:
    value = {"protocolVersions": [], "clientId": "c"}
    assert params("initialize").read(value) is value


@pytest.mark.rule("R288")
@pytest.mark.parametrize(
    "value",
    [
        {"clientId": "c", "lastSeenServerSeq": "1", "subscriptions": []},
        {"clientId": "c", "lastSeenServerSeq": 1.5, "subscriptions": []},
        {"clientId": "c", "lastSeenServerSeq": 1},
        {"clientId": "", "lastSeenServerSeq": 1, "subscriptions": []},
        {"clientId": "c", "lastSeenServerSeq": 1, "subscriptions": [{}]},
    ],
)
def test_a_reconnect_with_a_fault_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        params("reconnect").read(value)


@pytest.mark.rule("R27", "R52")
def test_only_a_ping_may_come_without_params() -> None:
    assert [method for method, command in commands.COMMANDS.items() if command.bare] == ["ping"]
    assert params("ping").read({"anything": 1}) == {"anything": 1}
    assert complaint(params("ping"), []) == "params must be an object"


def test_a_new_session_may_say_everything_at_once() -> None:
    value = {
        "session": SESSION,
        "provider": "echo",
        "model": {"id": "large", "config": {"effort": "high"}},
        "workingDirectory": "file:///a",
        "fork": {"session": "echo:/0", "turnId": "t"},
        "config": {"depth": 3, "exact": None},
        "activeClient": {
            "clientId": "c",
            "tools": [{"name": "look", "inputSchema": {"type": "object", "required": [], "$defs": {}, "properties": {"a": {}}}}],
        },
    }
    assert params("createSession").read(value) is value


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"session": 1}, "params.session must be a string"),
        ({"model": "large"}, "params.model must be an object"),
        ({"model": {"id": "m", "config": {"a": 1}}}, "params.model.config.a must be a string"),
        ({"fork": {"session": "s"}}, "params.fork.turnId is required"),
        ({"config": []}, "params.config must be an object"),
        ({"activeClient": {"clientId": "c"}}, "params.activeClient.tools is required"),
        ({"activeClient": {"clientId": "c", "tools": [{}]}}, "params.activeClient.tools[0].name is required"),
        (
            {"activeClient": {"clientId": "c", "tools": [{"name": "n", "inputSchema": {"type": "array"}}]}},
            "params.activeClient.tools[0].inputSchema.type must be object",
        ),
    ],
)
def test_a_new_session_with_a_fault_is_told_where_it_is(members: dict[str, Any], words: str) -> None:
    assert complaint(params("createSession"), {"session": SESSION, **members}) == words


@pytest.mark.rule("R118")
@pytest.mark.parametrize("filter_", [{}, {"archived": True}, None])
def test_a_list_takes_any_filter_that_is_an_object(filter_: object) -> None:
    params("listSessions").read({"filter": filter_})
    assert complaint(params("listSessions"), {"filter": []}) == "params.filter must be an object"


@pytest.mark.rule("R80")
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"clientSeq": 1},
        {"clientSeq": "1", "action": {"type": "session/ready"}},
        {"clientSeq": True, "action": {"type": "session/ready"}},
        {"clientSeq": None, "action": {"type": "session/ready"}},
        {"clientSeq": 1, "action": "session/ready"},
        {"clientSeq": 1, "action": {}},
        {"clientSeq": 1, "action": {"type": 1}},
    ],
)
def test_a_dispatch_without_number_or_typed_action_is_none(value: object) -> None:
    with pytest.raises(InvalidInput):
        commands.NOTICES["dispatchAction"].read(value)


@pytest.mark.rule("R80", "R81")
def test_a_dispatch_is_read_before_its_action_is_judged() -> None:
    value = {"clientSeq": 0.5, "action": {"type": "session/titleChanged", "title": 5}}
    assert commands.NOTICES["dispatchAction"].read(value) is value


# --- actions ---


@pytest.mark.rule("R85", "R86", "R370")
def test_there_are_53_types_of_action_and_clients_may_send_26() -> None:
    assert len(envelopes.TYPES) == 53
    assert len(envelopes.FROM_CLIENTS) == 26
    assert set(envelopes.TYPES) > envelopes.FROM_CLIENTS


@pytest.mark.rule("R81")
@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"type": "session/invented", "session": SESSION}, "params.type is not a value that this version knows"),
        ({"type": ["session/ready"], "session": SESSION}, "params.type is not a value that this version knows"),
        ({"session": SESSION}, "params.type is required"),
        ({"type": "session/titleChanged", "session": SESSION, "title": 5}, "params.title must be a string"),
        ({"type": "session/titleChanged", "session": SESSION}, "params.title is required"),
        ({"type": "session/isReadChanged", "session": SESSION, "isRead": 1}, "params.isRead must be true or false"),
        ({"type": "session/truncated", "session": SESSION, "turnId": 1}, "params.turnId must be a string"),
        (
            {"type": "session/turnStarted", "session": SESSION, "turnId": "t", "userMessage": {}},
            "params.userMessage.text is required",
        ),
        (
            {
                "type": "session/turnStarted",
                "session": SESSION,
                "turnId": "t",
                "userMessage": {"text": "", "attachments": [{"type": "odd", "label": ""}]},
            },
            "params.userMessage.attachments[0].type must be one of simple, embeddedResource, resource",
        ),
        ({"type": "session/activeClientChanged", "session": SESSION}, "params.activeClient is required"),
        (
            {"type": "session/pendingMessageSet", "session": SESSION, "kind": "odd", "id": "1", "userMessage": {"text": ""}},
            "params.kind must be one of steering, queued",
        ),
        (
            {
                "type": "session/inputAnswerChanged",
                "session": SESSION,
                "requestId": "r",
                "questionId": "q",
                "answer": {"state": "draft"},
            },
            "params.answer.value is required",
        ),
        (
            {
                "type": "session/inputAnswerChanged",
                "session": SESSION,
                "requestId": "r",
                "questionId": "q",
                "answer": {"state": "submitted", "value": {"kind": "selected", "value": ["a"]}},
            },
            "params.answer.value.value must be a string",
        ),
        ({"type": "terminal/resized", "terminal": "t:/1", "cols": "80", "rows": 24}, "params.cols must be an integer"),
    ],
)
def test_an_action_with_a_fault_is_told_where_it_is(action: dict[str, Any], words: str) -> None:
    assert complaint(envelopes.ACTION, action) == words


CONFIRMED = {"type": "session/toolCallConfirmed", "session": SESSION, "turnId": "t", "toolCallId": "c"}


@pytest.mark.parametrize(
    "action",
    [
        {**CONFIRMED, "approved": True, "confirmed": "user-action"},
        {**CONFIRMED, "approved": True, "confirmed": "setting", "editedToolInput": "", "selectedOptionId": "o"},
        {
            **CONFIRMED,
            "approved": False,
            "reason": "denied",
            "reasonMessage": {"markdown": "*no*"},
            "userSuggestion": {"text": "ask"},
        },
        {**CONFIRMED, "approved": False, "reason": "skipped", "reasonMessage": "no"},
        {"type": "session/activeClientChanged", "session": SESSION, "activeClient": None},
        {"type": "session/truncated", "session": SESSION},
        {"type": "session/metaChanged", "session": SESSION},
        {"type": "session/activityChanged", "session": SESSION},
    ],
)
def test_an_action_that_fits_is_read_as_it_is(action: dict[str, Any]) -> None:
    assert envelopes.ACTION.read(action) is action


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, "params.approved is required"),
        ({"approved": 1}, "params.approved must be one of true, false"),
        ({"approved": True}, "params.confirmed is required"),
        ({"approved": False}, "params.reason is required"),
        ({"approved": False, "reason": "result-denied"}, "params.reason must be one of denied, skipped"),
    ],
)
def test_a_confirmation_is_judged_by_what_it_decides(members: dict[str, Any], words: str) -> None:
    assert complaint(envelopes.ACTION, {**CONFIRMED, **members}) == words


@pytest.mark.rule("R81")
@pytest.mark.parametrize(
    ("action", "uri"),
    [
        ({"type": "root/configChanged", "session": SESSION}, state.ROOT),
        ({"type": "root/invented"}, state.ROOT),
        ({"type": "session/titleChanged", "session": SESSION}, SESSION),
        ({"type": "session/invented", "session": SESSION}, SESSION),
        ({"type": "session/titleChanged"}, None),
        ({"type": "session/titleChanged", "session": 5}, None),
        ({"type": "session/titleChanged", "terminal": "t:/1"}, None),
        ({"type": "terminal/input", "terminal": "t:/1"}, "t:/1"),
        ({"type": "invented", "session": SESSION}, SESSION),
        ({"type": "invented/more", "terminal": "t:/1"}, "t:/1"),
        ({"type": "invented", "session": 5}, None),
        ({"type": "invented"}, state.ROOT),
        ({}, state.ROOT),
    ],
)
def test_an_action_is_about_the_resource_it_names(action: dict[str, Any], uri: str | None) -> None:
    assert envelopes.resource(action) == uri


# --- what the host sends ---


@pytest.mark.rule("R66", "R68")
def test_an_envelope_needs_a_number_and_may_have_an_origin() -> None:
    action = {"type": "session/ready", "session": SESSION}
    assert envelopes.envelope_faults({"action": action, "serverSeq": 3}) == []
    assert envelopes.envelope_faults({"action": action, "serverSeq": 3, "origin": {"clientId": "c", "clientSeq": 1.5}}) == []
    assert envelopes.envelope_faults({"action": action}) != []
    assert envelopes.envelope_faults({"envelope": {"action": action, "serverSeq": 3}}) != []
    assert envelopes.envelope_faults({"action": {**action, "odd": 1}, "serverSeq": 3}) != []


@pytest.mark.rule("R83")
def test_a_rejection_carries_the_action_as_it_came_and_says_why() -> None:
    rejected = {
        "action": {"type": "odd", "x": None},
        "serverSeq": 3,
        "origin": {"clientId": "c", "clientSeq": 1},
        "rejectionReason": "Because.",
    }
    assert envelopes.envelope_faults(rejected) == []
    assert envelopes.envelope_faults({**rejected, "rejectionReason": ""}) != []
    assert envelopes.envelope_faults({name: value for name, value in rejected.items() if name != "origin"}) != []


@pytest.mark.rule("R260", "R261")
def test_the_four_notifications_are_wrapped() -> None:
    summary = {"resource": SESSION, "provider": "echo", "title": "", "status": 1, "createdAt": 1, "modifiedAt": 1}
    for notification in (
        {"type": "notify/sessionAdded", "summary": summary},
        {"type": "notify/sessionRemoved", "session": SESSION},
        {"type": "notify/sessionSummaryChanged", "session": SESSION, "changes": {"title": "new", "activity": ""}},
        {"type": "notify/authRequired", "resource": "https://a", "reason": "expired"},
    ):
        assert notifications.NOTIFICATION.faults({"notification": notification}) == []
        assert notifications.NOTIFICATION.faults(notification) != []


@pytest.mark.rule("R262")
@pytest.mark.parametrize("member", ["resource", "provider", "createdAt"])
def test_what_a_session_is_called_by_is_no_change_of_its_summary(member: str) -> None:
    changed = {
        "type": "notify/sessionSummaryChanged",
        "session": SESSION,
        "changes": {member: 1 if member == "createdAt" else "a"},
    }
    [fault] = notifications.NOTIFICATION.faults({"notification": changed})
    assert fault.path == ("notification", "changes", member)


@pytest.mark.rule("R61")
def test_a_snapshot_is_nested_and_of_any_of_the_three_states() -> None:
    result = commands.COMMANDS["subscribe"].result
    states: list[dict[str, Any]] = [
        {"agents": []},
        {
            "summary": {"resource": SESSION, "provider": "echo", "title": "", "status": 1, "createdAt": 1, "modifiedAt": 1},
            "lifecycle": "ready",
            "turns": [],
        },
        {"title": "sh", "content": [], "claim": {"kind": "client", "clientId": "c"}},
    ]
    for held in states:
        snapshot = {"resource": SESSION, "state": held, "fromSeq": 1}
        assert result.faults({"snapshot": snapshot}) == []
        assert result.faults(snapshot) != []
    assert result.faults({"snapshot": {"resource": SESSION, "state": {"odd": 1}, "fromSeq": 1}}) != []


@pytest.mark.rule("R281", "R283")
def test_a_reconnect_is_answered_by_a_replay_or_by_snapshots() -> None:
    result = commands.COMMANDS["reconnect"].result
    assert result.faults({"type": "replay", "actions": [], "missing": []}) == []
    assert result.faults({"type": "snapshot", "snapshots": []}) == []
    assert result.faults({"type": "snapshot", "actions": [], "missing": []}) != []


@pytest.mark.parametrize(
    ("method", "result"),
    [("ping", None), ("createSession", None), ("disposeSession", None), ("createTerminal", None), ("disposeTerminal", None)]
    + [
        (method, {})
        for method in ("authenticate", "resourceWrite", "resourceCopy", "resourceDelete", "resourceMove", "resourceRequest")
    ],
)
def test_commands_with_nothing_to_say_answer_null_or_an_empty_object(method: str, result: object) -> None:
    shape = commands.COMMANDS[method].result
    assert shape.faults(result) == []
    assert shape.faults({} if result is None else None) != []


@pytest.mark.rule("R33")
def test_errors_with_data_have_an_object_of_the_right_shape() -> None:
    resource: state.ProtectedResourceMetadata = {"resource": "https://a", "scopes_supported": ["b"]}
    made: list[RPCError] = [
        errors.unsupported_protocol_version(["0.1.0"]),
        errors.auth_required([resource], "A token is needed."),
        errors.permission_denied("Not yours.", {"uri": "file:///a", "read": True}),
    ]
    for error in made:
        assert errors.DATA[errors.Code(error.code)].faults(error.data) == []
    assert made[1].data == {"resources": [resource]}
    assert errors.permission_denied("Not yours.").to_json() == {"code": -32009, "message": "Not yours."}


@pytest.mark.rule("R150")
def test_input_needed_is_in_progress_and_a_bit_more() -> None:
    assert SessionStatus.INPUT_NEEDED == SessionStatus.IN_PROGRESS | 16
    assert int(SessionStatus.ACTIVITY) == 31
    assert not SessionStatus.ACTIVITY & (SessionStatus.READ | SessionStatus.ARCHIVED)


# --- everything that could come ---

ALL: list[Any] = [
    *(command.params for command in commands.COMMANDS.values()),
    *(command.result for command in commands.COMMANDS.values()),
    *commands.NOTICES.values(),
    envelopes.ACTION,
    envelopes.ENVELOPE,
    notifications.NOTIFICATION,
    Shape(state.RootState),
    Shape(state.SessionState),
    Shape(terminals.TerminalState),
]


@settings(deadline=None)
@given(st.sampled_from(ALL).flatmap(lambda shape: st.tuples(st.just(shape), fitting(shape.declared))))
def test_whatever_fits_is_read_and_may_be_sent(case: tuple[Shape[Any], Any]) -> None:
    shape, value = case
    assert shape.faults(value) == []
    assert shape.read(value) == value


@pytest.mark.rule("R27", "R31", "R36")
@settings(deadline=None)
@given(st.sampled_from(ALL).flatmap(lambda shape: st.tuples(st.just(shape), spoiled(shape.declared) | JSON)))
def test_whatever_comes_is_read_or_refused_with_a_reason_and_left_alone(case: tuple[Shape[Any], Any]) -> None:
    shape, value = case
    before = copy.deepcopy(value)
    read, refusal = None, None
    try:
        read = shape.read(value)
    except InvalidInput as caught:
        refusal = caught
    assert value == before
    if refusal is not None:
        assert refusal.describe("params").startswith("params")
        return
    # What was understood needs no second reading, and is free of what the host must not write.
    assert shape.read(read) is read
    assert [fault for fault in shape.faults(read) if "that this version knows" not in fault.detail] == []
