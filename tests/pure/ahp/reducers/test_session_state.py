"""A session's state apart from its turns: marks, settings, clients, customizations, questions, messages that wait."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.ahp.versions.v0_1 import reducers as v0_1
from tests.pure.ahp.reducers.scenes import (
    SESSION,
    SESSION_STATE,
    THEN,
    State,
    act,
    after,
    message,
    running,
    session,
    status,
    touched,
)

# --- at birth ---


@pytest.mark.rule("R114")
@pytest.mark.parametrize("lifecycle", ["creating", "ready"])
def test_a_new_session_is_idle_and_has_no_active_turn(lifecycle: Any) -> None:
    state = v0_1.session_state(SESSION, "echo", created_at=THEN, lifecycle=lifecycle)
    assert state == {
        "summary": {"resource": SESSION, "provider": "echo", "title": "", "status": 1, "createdAt": THEN, "modifiedAt": THEN},
        "lifecycle": lifecycle,
        "turns": [],
    }
    assert SESSION_STATE.faults(state) == []


# --- summary ---


@pytest.mark.rule("R430")
def test_a_new_title_or_model_is_a_change_that_counts() -> None:
    model = {"id": "large", "config": {"effort": "high"}}
    for action, name, value in ((act("titleChanged", title=""), "title", ""), (act("modelChanged", model=model), "model", model)):
        state = after(session(), action)
        assert state["summary"][name] == value
        assert touched(state)


@pytest.mark.rule("R430")
def test_a_model_without_configuration_replaces_one_with() -> None:
    state = after(session(), act("modelChanged", model={"id": "a", "config": {}}), act("modelChanged", model={"id": "b"}))
    assert state["summary"]["model"] == {"id": "b"}


@pytest.mark.rule("R431", "R151")
@pytest.mark.parametrize("kind", ["isReadChanged", "isArchivedChanged"])
@pytest.mark.parametrize("before", [1, 2, 8, 24, 1 | 32, 1 | 64, 24 | 32 | 64])
@pytest.mark.parametrize("on", [True, False])
def test_a_mark_is_set_or_cleared_and_nothing_else(kind: str, before: int, on: bool) -> None:
    bit, member = (32, "isRead") if kind == "isReadChanged" else (64, "isArchived")
    state = after(session(status=before), act(kind, **{member: on}))
    assert status(state) == (before | bit if on else before & ~bit)
    assert not touched(state)


@pytest.mark.rule("R432", "R152")
def test_an_activity_is_shown_until_it_is_cleared() -> None:
    state = after(session(), act("activityChanged", activity="Thinking"))
    assert state["summary"]["activity"] == "Thinking"
    assert not touched(state)
    assert after(state, act("activityChanged", activity=""))["summary"]["activity"] == ""
    for clearing in (act("activityChanged"), {**act("activityChanged"), "activity": None}):
        assert "activity" not in after(state, clearing)["summary"]


@pytest.mark.rule("R432")
def test_diffs_metadata_and_tools_are_replaced_whole() -> None:
    before = session(_meta={"a": 1}, serverTools=[{"name": "a"}])
    diff = {"after": {"uri": "u:/", "content": {"uri": "c:/"}}, "diff": {"added": 2}}
    state = after(
        before, act("diffsChanged", diffs=[diff]), act("metaChanged", _meta={"b": {}}), act("serverToolsChanged", tools=[])
    )
    assert (state["summary"]["diffs"], state["_meta"], state["serverTools"]) == ([diff], {"b": {}}, [])
    assert not touched(state)


@pytest.mark.rule("R432", "R243")
def test_metadata_that_is_absent_or_null_clears() -> None:
    for clearing in (act("metaChanged"), {**act("metaChanged"), "_meta": None}):
        assert "_meta" not in after(session(_meta={"a": 1}), clearing)


# --- configuration ---

CONFIG = {
    "schema": {"type": "object", "properties": {"target": {"type": "string", "title": "Target", "sessionMutable": True}}},
    "values": {"target": "a", "depth": 2},
}


@pytest.mark.rule("R433", "R233")
@pytest.mark.parametrize(
    ("members", "values"),
    [
        ({"config": {"target": "b"}}, {"target": "b", "depth": 2}),
        ({"config": {"target": "b"}, "replace": False}, {"target": "b", "depth": 2}),
        ({"config": {"target": "b"}, "replace": True}, {"target": "b"}),
        ({"config": {}}, {"target": "a", "depth": 2}),
    ],
)
def test_configuration_is_overlaid_or_replaced_and_its_schema_stays(members: State, values: State) -> None:
    state = after(session(config=CONFIG), act("configChanged", **members))
    assert state["config"] == {"schema": CONFIG["schema"], "values": values}
    assert touched(state)


@pytest.mark.rule("R433")
def test_configuration_of_a_session_without_any_changes_nothing() -> None:
    before = session()
    assert after(before, act("configChanged", config={"a": 1})) is before


# --- the active client ---

CLIENT = {"clientId": "c", "displayName": "Editor", "tools": [{"name": "look"}], "customizations": []}


@pytest.mark.rule("R434", "R180")
def test_the_active_client_is_replaced_and_null_removes_it() -> None:
    state = after(session(), act("activeClientChanged", activeClient=CLIENT))
    assert state["activeClient"] == CLIENT
    state = after(state, act("activeClientChanged", activeClient={"clientId": "d", "tools": []}))
    assert state["activeClient"] == {"clientId": "d", "tools": []}
    assert "activeClient" not in after(state, act("activeClientChanged", activeClient=None))
    assert not touched(state)


@pytest.mark.rule("R434", "R181")
def test_the_active_clients_tools_are_replaced_and_the_rest_of_it_stays() -> None:
    state = after(session(activeClient=CLIENT), act("activeClientToolsChanged", tools=[]))
    assert state["activeClient"] == {**CLIENT, "tools": []}


@pytest.mark.rule("R434")
def test_tools_of_no_client_change_nothing() -> None:
    before = session()
    assert after(before, act("activeClientToolsChanged", tools=[{"name": "look"}])) is before


# --- customizations ---


def entry(uri: str, **members: Any) -> State:
    return {"customization": {"uri": uri, "displayName": uri}, "enabled": True, **members}


@pytest.mark.rule("R435")
def test_customizations_are_replaced_whole() -> None:
    assert after(session(customizations=[entry("a")]), act("customizationsChanged", customizations=[]))["customizations"] == []


@pytest.mark.rule("R435")
def test_a_customization_is_switched_by_its_uri() -> None:
    state = after(
        session(customizations=[entry("a"), entry("b", status="loaded")]), act("customizationToggled", uri="b", enabled=False)
    )
    assert state["customizations"] == [entry("a"), entry("b", status="loaded", enabled=False)]
    assert not touched(state)


@pytest.mark.rule("R435")
@pytest.mark.parametrize("before", [session(), session(customizations=[]), session(customizations=[entry("a")])])
def test_switching_an_unknown_customization_changes_nothing(before: State) -> None:
    assert after(before, act("customizationToggled", uri="9", enabled=False)) is before


@pytest.mark.rule("R435", "R241")
@pytest.mark.parametrize(
    "members", [{}, {"enabled": False}, {"status": "error", "statusMessage": "no"}, {"enabled": True, "statusMessage": ""}]
)
def test_a_known_customization_takes_what_is_given_and_keeps_the_rest(members: State) -> None:
    old = entry("b", clientId="c", status="loaded", statusMessage="fine")
    ref = {"uri": "b", "displayName": "New", "nonce": "2"}
    state = after(session(customizations=[entry("a"), old]), act("customizationUpdated", customization=ref, **members))
    assert state["customizations"] == [entry("a"), {**old, "customization": ref, **members}]


@pytest.mark.rule("R435", "R241")
@pytest.mark.parametrize("members", [{}, {"enabled": True}, {"status": "loading"}])
@pytest.mark.parametrize("before", [None, [], [entry("a")]])
def test_a_new_customization_is_appended_and_off_unless_it_says_otherwise(before: Any, members: State) -> None:
    ref = {"uri": "n", "displayName": "New"}
    state = after(
        session(**({} if before is None else {"customizations": before})),
        act("customizationUpdated", customization=ref, **members),
    )
    assert state["customizations"] == [*(before or []), {"customization": ref, "enabled": False, **members}]


# --- questions ---

DRAFT = {"state": "draft", "value": {"kind": "text", "value": "d"}}
SKIPPED = {"state": "skipped"}


@pytest.mark.rule("R436", "R200", "R151")
def test_a_question_makes_the_session_wait_and_unread() -> None:
    state = after(
        running(status=8 | 32 | 64),
        act("inputRequested", request={"id": "1", "message": "?"}),
        act("inputRequested", request={"id": "2"}),
    )
    assert state["inputRequests"] == [{"id": "1", "message": "?"}, {"id": "2"}]
    assert status(state) == 24 | 64
    assert touched(state)


@pytest.mark.rule("R436", "R202")
@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (None, None, None),
        ({"q": DRAFT}, None, {"q": DRAFT}),
        ({"q": DRAFT}, {"r": SKIPPED}, {"r": SKIPPED}),
        ({"q": DRAFT}, {}, {}),
        (None, {"r": SKIPPED}, {"r": SKIPPED}),
    ],
)
def test_a_question_put_again_stands_where_it_stood_and_keeps_the_answers(
    old: State | None, new: State | None, kept: State | None
) -> None:
    def request(words: str, answers: State | None) -> State:
        return {"id": "1", "message": words, **({} if answers is None else {"answers": answers})}

    before = running(status=24, inputRequests=[request("old", old), {"id": "2"}])
    state = after(before, act("inputRequested", request=request("new", new)))
    assert state["inputRequests"] == [request("new", kept), {"id": "2"}]


@pytest.mark.rule("R436")
def test_a_question_put_again_drops_what_its_first_version_said() -> None:
    before = running(inputRequests=[{"id": "1", "message": "old", "url": "https://a", "answers": {"q": DRAFT}}])
    state = after(before, {**act("inputRequested", request={"id": "1"}), "request": {"id": "1", "answers": None}})
    assert state["inputRequests"] == [{"id": "1", "answers": {"q": DRAFT}}]


def answer(question: str, value: State | None = None, request: str = "1") -> State:
    return act("inputAnswerChanged", requestId=request, questionId=question, **({} if value is None else {"answer": value}))


@pytest.mark.rule("R437", "R203")
def test_an_answer_is_set_and_removed_and_the_last_one_takes_the_map_with_it() -> None:
    before = running(inputRequests=[{"id": "0"}, {"id": "1"}], status=24)
    state = after(before, answer("q", DRAFT), answer("r", SKIPPED), answer("q", SKIPPED))
    assert state["inputRequests"] == [{"id": "0"}, {"id": "1", "answers": {"q": SKIPPED, "r": SKIPPED}}]
    assert touched(state)
    state = after(state, answer("q"))
    assert state["inputRequests"][1] == {"id": "1", "answers": {"r": SKIPPED}}
    assert after(state, {**answer("r"), "answer": None})["inputRequests"][1] == {"id": "1"}


@pytest.mark.rule("R437")
def test_removing_an_answer_that_was_not_there_still_counts_as_a_change() -> None:
    state = after(running(inputRequests=[{"id": "1"}], status=8), answer("q"))
    assert state["inputRequests"] == [{"id": "1"}]
    assert touched(state)
    assert status(state) == 8, "the status is not looked at"


@pytest.mark.rule("R437", "R438")
@pytest.mark.parametrize("before", [running(), running(inputRequests=[{"id": "1"}], status=24)])
def test_an_answer_to_an_unknown_question_changes_nothing(before: State) -> None:
    assert after(before, answer("q", DRAFT, request="9")) is before
    assert after(before, act("inputCompleted", requestId="9", response="accept")) is before


@pytest.mark.rule("R438", "R205")
@pytest.mark.parametrize("response", ["accept", "decline", "cancel"])
def test_a_question_that_is_completed_is_gone_and_the_last_one_ends_the_waiting(response: str) -> None:
    before = running(inputRequests=[{"id": "1"}, {"id": "2", "answers": {"q": DRAFT}}], status=24 | 32)
    state = after(before, act("inputCompleted", requestId="2", response=response, answers={"q": SKIPPED}))
    assert state["inputRequests"] == [{"id": "1"}]
    assert status(state) == 24 | 32
    assert touched(state)
    state = after(state, act("inputCompleted", requestId="1", response=response))
    assert "inputRequests" not in state
    assert status(state) == 8 | 32
    assert after(state, act("inputCompleted", requestId="1", response=response)) is state


# --- messages that wait ---


def set_(kind: str, message_id: str, text: str) -> State:
    return act("pendingMessageSet", kind=kind, id=message_id, userMessage={"text": text})


def removed(kind: str, message_id: str) -> State:
    return act("pendingMessageRemoved", kind=kind, id=message_id)


@pytest.mark.rule("R439", "R211")
def test_there_is_one_steering_message_and_a_new_one_replaces_it() -> None:
    state = after(session(status=33), set_("steering", "1", "a"), set_("steering", "2", "b"), set_("steering", "2", "c"))
    assert state["steeringMessage"] == message("2", "c")
    assert "queuedMessages" not in state
    assert status(state) == 33
    assert not touched(state)


@pytest.mark.rule("R439", "R212")
def test_the_queue_is_in_order_of_arrival_and_the_same_id_replaces_in_place() -> None:
    state = after(session(), set_("queued", "1", "a"), set_("queued", "2", "b"), set_("queued", "1", "c"))
    assert state["queuedMessages"] == [message("1", "c"), message("2", "b")]
    assert "steeringMessage" not in state
    assert not touched(state)


@pytest.mark.rule("R439")
def test_a_message_is_removed_by_kind_and_id() -> None:
    before = session(steeringMessage=message("1"), queuedMessages=[message("1"), message("2")])
    state = after(before, removed("queued", "1"))
    assert (state["steeringMessage"], state["queuedMessages"]) == (message("1"), [message("2")])
    state = after(state, removed("queued", "2"))
    assert "queuedMessages" not in state
    assert "steeringMessage" not in after(state, removed("steering", "1"))


@pytest.mark.rule("R439")
@pytest.mark.parametrize(
    "before", [session(), session(steeringMessage=message("1"), queuedMessages=[message("2")]), session(queuedMessages=[])]
)
def test_removing_an_unknown_message_changes_nothing(before: State) -> None:
    assert after(before, removed("steering", "2")) is before
    assert after(before, removed("queued", "1")) is before


@pytest.mark.rule("R440", "R214")
@pytest.mark.parametrize(
    ("order", "result"),
    [
        (["3", "1", "2"], ["3", "1", "2"]),
        (["2"], ["2", "1", "3"]),
        ([], ["1", "2", "3"]),
        (["9", "3", "8", "2"], ["3", "2", "1"]),
        (["3", "2", "3", "2", "1"], ["3", "2", "1"]),
        (["2", "3", "2"], ["2", "3", "1"]),
    ],
)
def test_the_named_messages_come_first_and_the_others_keep_their_order(order: list[str], result: list[str]) -> None:
    state = after(session(queuedMessages=[message("1"), message("2"), message("3")]), act("queuedMessagesReordered", order=order))
    assert [item["id"] for item in state["queuedMessages"]] == result
    assert not touched(state)


@pytest.mark.rule("R440")
def test_reordering_no_queue_makes_none() -> None:
    before = session()
    assert after(before, act("queuedMessagesReordered", order=["1"])) is before
