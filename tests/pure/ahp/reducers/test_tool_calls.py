"""Tool calls of the active turn under their actions: every action in every state."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.ahp.versions.v0_1 import reducers as v0_1
from tests.pure.ahp.reducers.scenes import (
    State,
    after,
    call,
    markdown,
    of_call,
    running,
    session,
    status,
    the_call,
    touched,
)

STATES = ["streaming", "pending-confirmation", "running", "pending-result-confirmation", "completed", "cancelled"]
OPTION = {"id": "o", "label": "Always", "kind": "approve", "group": 1}
TEXT = [{"type": "text", "text": "found"}]
RESULT = {
    "success": False,
    "pastTenseMessage": "Looked",
    "content": TEXT,
    "structuredContent": {"a": None},
    "error": {"message": "m"},
}
KEPT: dict[str, Any] = {"toolClientId": "client", "_meta": {"k": [1]}}
BASE: dict[str, Any] = {"toolCallId": "c", "toolName": "look", "displayName": "Look", **KEPT}

DELTA = of_call("toolCallDelta", content="x")
READY = of_call("toolCallReady", invocationMessage="Look?")
APPROVED = of_call("toolCallConfirmed", approved=True, confirmed="user-action")
DENIED = of_call("toolCallConfirmed", approved=False, reason="denied")
COMPLETE = of_call("toolCallComplete", result=RESULT)
RESULT_APPROVED = of_call("toolCallResultConfirmed", approved=True)
RESULT_DENIED = of_call("toolCallResultConfirmed", approved=False)
CONTENT = of_call("toolCallContentChanged", content=TEXT)

STEPS = {
    "delta": (DELTA, ["streaming"]),
    "ready": (READY, ["streaming", "running"]),
    "approved": (APPROVED, ["pending-confirmation"]),
    "denied": (DENIED, ["pending-confirmation"]),
    "complete": (COMPLETE, ["running", "pending-confirmation"]),
    "result approved": (RESULT_APPROVED, ["pending-result-confirmation"]),
    "result denied": (RESULT_DENIED, ["pending-result-confirmation"]),
    "content": (CONTENT, ["running"]),
}
RECOMPUTING = {"ready", "approved", "denied", "complete", "result approved", "result denied"}
ACTIVITIES = {"pending-confirmation": 24, "pending-result-confirmation": 24}


@pytest.mark.rule("R421", "R422", "R423", "R424", "R425", "R426")
@pytest.mark.parametrize("held", STATES)
@pytest.mark.parametrize("step", STEPS)
def test_a_call_takes_only_the_steps_of_its_state(step: str, held: str) -> None:
    action, allowed = STEPS[step]
    before = running(markdown("m"), call(held), status=ACTIVITIES.get(held, 8))
    state = after(before, action)
    assert (state != before) == (held in allowed)
    if held not in allowed:
        assert state is before
    assert not touched(state)


@pytest.mark.rule("R420", "R421", "R422", "R423", "R424", "R425", "R426")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("members", [{"turnId": "other"}, {"toolCallId": "9"}, {"toolCallId": "m"}])
def test_a_step_of_an_unknown_call_or_another_turn_changes_nothing(step: str, members: State) -> None:
    before = running(markdown("m"), call("running"), call("streaming", "d"))
    assert after(before, {**STEPS[step][0], **members}) is before


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.rule("R420", "R422", "R423", "R424", "R425")
def test_a_stray_step_ends_the_showing_of_an_error_if_it_is_one_that_sets_the_status(step: str) -> None:
    state = after(session(status=2 | 32 | 64), STEPS[step][0])
    assert status(state) == (1 if step in RECOMPUTING else 2) | 32 | 64
    assert not touched(state)


@pytest.mark.rule("R420", "R160")
def test_a_call_begins_with_its_names_and_what_its_sender_added() -> None:
    state = after(
        running(markdown("m")),
        of_call("toolCallStart", toolName="look", displayName="Look", **KEPT),
        of_call("toolCallStart", toolCallId="d", toolName="n", displayName="N"),
    )
    assert state["activeTurn"]["responseParts"][1:] == [
        {"kind": "toolCall", "toolCall": {**BASE, "status": "streaming"}},
        {"kind": "toolCall", "toolCall": {"toolCallId": "d", "toolName": "n", "displayName": "N", "status": "streaming"}},
    ]
    assert status(state) == 8


@pytest.mark.rule("R420")
def test_a_call_of_another_turn_does_not_begin() -> None:
    before = running()
    assert after(before, of_call("toolCallStart", turnId="old", toolName="look", displayName="Look")) is before


@pytest.mark.rule("R421", "R161")
def test_arguments_stream_into_one_text_and_words_for_people_are_replaced() -> None:
    state = after(
        running(call("streaming", **KEPT)),
        of_call("toolCallDelta", content='{"a"'),
        of_call("toolCallDelta", content=":1}", invocationMessage="Looking"),
        of_call("toolCallDelta", content="", invocationMessage={"markdown": "*L*"}),
    )
    assert the_call(state) == {**BASE, "status": "streaming", "partialInput": '{"a":1}', "invocationMessage": {"markdown": "*L*"}}


@pytest.mark.rule("R422", "R162")
@pytest.mark.parametrize("held", ["streaming", "running"])
def test_a_confirmed_call_runs_at_once_and_leaves_behind_what_it_was(held: str) -> None:
    before = call(held, **KEPT, **({"partialInput": "{"} if held == "streaming" else {"content": TEXT, "selectedOption": OPTION}))
    action = of_call(
        "toolCallReady",
        invocationMessage="New",
        toolInput="{}",
        confirmed="setting",
        editable=True,
        options=[OPTION],
        _meta={"not": "taken"},
    )
    state = after(running(before), action)
    assert the_call(state) == {**BASE, "invocationMessage": "New", "toolInput": "{}", "status": "running", "confirmed": "setting"}
    assert status(state) == 8


@pytest.mark.rule("R422", "R163", "R169")
@pytest.mark.parametrize("held", ["streaming", "running"])
def test_an_unconfirmed_call_waits_with_everything_a_person_needs(held: str) -> None:
    shown = {
        "confirmationTitle": {"markdown": "?"},
        "edits": {"items": [{"diff": {"added": 1}}]},
        "editable": False,
        "options": [OPTION],
    }
    action = of_call("toolCallReady", invocationMessage={"markdown": "?"}, **shown)
    state = after(running(call(held, **KEPT)), action)
    assert the_call(state) == {**BASE, "invocationMessage": {"markdown": "?"}, "status": "pending-confirmation", **shown}
    assert status(state) == 24


@pytest.mark.rule("R422")
def test_the_input_is_the_one_of_the_second_ready_even_if_it_has_none() -> None:
    assert "toolInput" not in the_call(after(running(call("running")), READY))


WAITING = call("pending-confirmation", **KEPT, confirmationTitle="?", edits={"items": []}, editable=True, options=[OPTION])


@pytest.mark.rule("R423", "R164")
@pytest.mark.parametrize(
    ("members", "input_"), [({}, '{"a":1}'), ({"editedToolInput": "{}"}, "{}"), ({"editedToolInput": ""}, "")]
)
def test_an_approved_call_runs_with_its_input_or_the_edited_one(members: State, input_: str) -> None:
    state = after(running(WAITING, status=24), {**APPROVED, **members})
    assert the_call(state) == {
        **BASE,
        "invocationMessage": "Looking",
        "toolInput": input_,
        "status": "running",
        "confirmed": "user-action",
    }
    assert status(state) == 8


@pytest.mark.rule("R423")
def test_an_edit_of_null_is_none() -> None:
    assert the_call(after(running(WAITING), {**APPROVED, "editedToolInput": None}))["toolInput"] == '{"a":1}'


@pytest.mark.rule("R423", "R165")
def test_a_denied_call_is_cancelled_with_what_the_person_said() -> None:
    said = {"reasonMessage": "No.", "userSuggestion": {"text": "Ask first"}}
    state = after(running(WAITING, status=24 | 64), {**DENIED, **said, "reason": "skipped", "selectedOptionId": "o"})
    assert the_call(state) == {
        **BASE,
        "invocationMessage": "Looking",
        "toolInput": '{"a":1}',
        "selectedOption": OPTION,
        "status": "cancelled",
        "reason": "skipped",
        **said,
    }
    assert status(state) == 8 | 64


@pytest.mark.rule("R423", "R166")
def test_the_chosen_option_stays_with_the_call_to_its_end() -> None:
    state = after(running(WAITING), {**APPROVED, "selectedOptionId": "o"})
    assert the_call(state)["selectedOption"] == OPTION
    state = after(state, {**COMPLETE, "requiresResultConfirmation": True})
    assert the_call(state)["selectedOption"] == OPTION
    assert the_call(after(state, RESULT_APPROVED))["selectedOption"] == OPTION
    assert the_call(after(state, RESULT_DENIED))["selectedOption"] == OPTION


@pytest.mark.rule("R423")
@pytest.mark.parametrize("members", [{}, {"options": []}, {"options": [OPTION]}])
def test_an_option_that_was_not_offered_is_not_kept(members: State) -> None:
    waiting = call("pending-confirmation", **members)
    assert "selectedOption" not in the_call(after(running(waiting), {**APPROVED, "selectedOptionId": "9"}))


@pytest.mark.rule("R424", "R167")
@pytest.mark.parametrize(
    ("asks", "then", "activity"), [(True, "pending-result-confirmation", 24), (False, "completed", 8), (None, "completed", 8)]
)
def test_a_call_that_is_done_has_its_result_in_place_of_what_it_showed(asks: bool | None, then: str, activity: int) -> None:
    before = call("running", **KEPT, content=[{"type": "text", "text": "so far"}], selectedOption=OPTION)
    state = after(running(before), {**COMPLETE, **({} if asks is None else {"requiresResultConfirmation": asks})})
    assert the_call(state) == {
        **BASE,
        "invocationMessage": "Looking",
        "toolInput": '{"a":1}',
        "confirmed": "user-action",
        "selectedOption": OPTION,
        **RESULT,
        "status": then,
    }
    assert status(state) == activity


@pytest.mark.rule("R424")
def test_what_a_running_call_showed_is_gone_if_the_result_has_none() -> None:
    state = after(
        running(call("running", content=TEXT)), of_call("toolCallComplete", result={"success": True, "pastTenseMessage": ""})
    )
    assert "content" not in the_call(state)


@pytest.mark.rule("R424")
def test_a_call_that_is_done_before_anybody_was_asked_needed_no_confirmation() -> None:
    state = after(running(WAITING, status=24), COMPLETE)
    assert the_call(state) == {
        **BASE,
        "invocationMessage": "Looking",
        "toolInput": '{"a":1}',
        "confirmed": "not-needed",
        **RESULT,
        "status": "completed",
    }
    assert status(state) == 8


@pytest.mark.rule("R424")
def test_a_result_cannot_rename_its_call_or_give_it_another_state() -> None:
    result = {"success": True, "pastTenseMessage": "", "status": "running", "toolCallId": "d", "extra": 1, "error": None}
    action = {**COMPLETE, "result": result}
    # Members nobody knows are kept (R30), so the strict look at the state is not for this one.
    before: Any = running(call("running"))
    state: Any = v0_1.reduce_session(before, action, 1)
    held = the_call(state)
    assert (held["status"], held["toolCallId"], held["extra"], "error" in held) == ("completed", "c", 1, False)


@pytest.mark.rule("R425", "R167")
def test_an_approved_result_stays_whole() -> None:
    part = call("pending-result-confirmation", **KEPT, content=TEXT, selectedOption=OPTION)
    state = after(running(part, status=24), RESULT_APPROVED)
    assert the_call(state) == {**part["toolCall"], "status": "completed"}
    assert status(state) == 8


@pytest.mark.rule("R425", "R167")
def test_a_refused_result_is_gone() -> None:
    part = call(
        "pending-result-confirmation", **KEPT, content=TEXT, structuredContent={}, error={"message": ""}, selectedOption=OPTION
    )
    state = after(running(part, status=24), RESULT_DENIED)
    assert the_call(state) == {
        **BASE,
        "invocationMessage": "Looking",
        "toolInput": '{"a":1}',
        "selectedOption": OPTION,
        "status": "cancelled",
        "reason": "result-denied",
    }
    assert status(state) == 8


@pytest.mark.rule("R426", "R168")
def test_content_that_a_running_call_shows_is_replaced() -> None:
    part = call("running", content=[{"type": "text", "text": "old"}])
    state = after(running(part, status=1), CONTENT, of_call("toolCallContentChanged", content=[]))
    assert the_call(state) == {**part["toolCall"], "content": []}
    assert status(state) == 1, "the status is not looked at"


@pytest.mark.rule("R150", "R170")
def test_the_session_waits_as_long_as_any_call_of_the_turn_does() -> None:
    state = after(running(call("streaming", "c"), call("streaming", "d")), READY, {**READY, "toolCallId": "d"})
    assert status(state) == 24
    state = after(state, APPROVED)
    assert status(state) == 24
    state = after(state, {**DENIED, "toolCallId": "d"})
    assert status(state) == 8
    assert status(after(state, {**COMPLETE, "requiresResultConfirmation": True})) == 24


@pytest.mark.rule("R150")
def test_a_session_with_an_open_question_waits_whatever_its_calls_do() -> None:
    state = after(running(WAITING, status=24, inputRequests=[{"id": "1"}]), APPROVED)
    assert status(state) == 24


@pytest.mark.rule("R422", "R423", "R424")
@pytest.mark.parametrize(
    "action", [READY, APPROVED, DENIED, COMPLETE, RESULT_APPROVED, RESULT_DENIED], ids=lambda action: action["type"]
)
def test_an_action_delivered_twice_changes_no_call_a_second_time(action: State) -> None:
    for held in STATES:
        once = after(running(call(held), status=ACTIVITIES.get(held, 8)), action)
        assert after(once, action) is once


@pytest.mark.rule("R421", "R422")
def test_a_call_that_was_opened_twice_goes_its_way_in_both_places() -> None:
    state = after(running(call("streaming"), markdown("m"), call("streaming")), READY, APPROVED, COMPLETE)
    assert [part["toolCall"]["status"] for part in state["activeTurn"]["responseParts"] if part["kind"] == "toolCall"] == [
        "completed"
    ] * 2
    assert status(state) == 8
