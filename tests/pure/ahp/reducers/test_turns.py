"""A session's turns under their actions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pure.ahp.reducers.scenes import (
    NOW,
    SESSION,
    THEN,
    State,
    act,
    after,
    call,
    markdown,
    message,
    of_turn,
    reasoning,
    running,
    session,
    status,
    the_call,
    touched,
    turn,
)

HELLO = {"text": "Hello"}


def start(**members: Any) -> State:
    return act("turnStarted", **{"turnId": "t", "userMessage": HELLO, **members})


ENDS = [
    of_turn("turnComplete"),
    of_turn("turnCancelled"),
    of_turn("error", error={"errorType": "provider_failed", "message": "It failed."}),
]


# --- beginning ---


@pytest.mark.rule("R412", "R140")
def test_a_turn_begins_with_its_message_and_nothing_said() -> None:
    state = after(session(), start())
    assert state["activeTurn"] == {"id": "t", "userMessage": HELLO, "responseParts": []}
    assert status(state) == 8
    assert touched(state)
    assert state["turns"] == []


@pytest.mark.rule("R412")
def test_a_turn_that_begins_replaces_one_that_was_active() -> None:
    before = running(markdown("m", "old"), activeTurn={"id": "old", "userMessage": HELLO, "responseParts": [], "usage": {}})
    assert after(before, start())["activeTurn"] == {"id": "t", "userMessage": HELLO, "responseParts": []}


@pytest.mark.rule("R412", "R151")
@pytest.mark.parametrize(("before", "then"), [(1, 8), (33, 8), (2, 8), (34, 8), (65, 72), (97, 72), (2 | 32 | 64, 72)])
def test_a_turn_that_begins_makes_the_session_busy_and_unread_but_no_less_archived(before: int, then: int) -> None:
    assert status(after(session(status=before), start())) == then


@pytest.mark.rule("R412")
def test_a_turn_of_the_queue_takes_its_message_out() -> None:
    before = session(queuedMessages=[message("1"), message("2"), message("3")], steeringMessage=message("1"))
    state = after(before, start(queuedMessageId="2"))
    assert state["queuedMessages"] == [message("1"), message("3")]
    assert state["steeringMessage"] == message("1")


@pytest.mark.rule("R412")
def test_a_queue_that_is_emptied_is_gone() -> None:
    assert "queuedMessages" not in after(session(queuedMessages=[message("1")]), start(queuedMessageId="1"))


@pytest.mark.rule("R412")
def test_a_steering_message_that_became_a_turn_is_gone() -> None:
    state = after(session(steeringMessage=message("1"), queuedMessages=[message("2")]), start(queuedMessageId="1"))
    assert "steeringMessage" not in state
    assert state["queuedMessages"] == [message("2")]


@pytest.mark.rule("R412")
@pytest.mark.parametrize("members", [{}, {"queuedMessageId": "9"}])
def test_a_turn_of_its_own_leaves_what_waits(members: State) -> None:
    before = session(steeringMessage=message("1"), queuedMessages=[message("2")])
    state = after(before, start(**members))
    assert state["steeringMessage"] is before["steeringMessage"]
    assert state["queuedMessages"] is before["queuedMessages"]


# --- what is said ---


@pytest.mark.rule("R413")
def test_parts_stand_in_the_order_they_came() -> None:
    parts = [
        markdown("1", "a"),
        {"kind": "systemNotification", "content": {"markdown": "b"}},
        {"kind": "contentRef", "uri": "u:/"},
        markdown("1", "c"),
    ]
    state = after(running(), *(of_turn("responsePart", part=part) for part in parts))
    assert state["activeTurn"]["responseParts"] == parts
    assert not touched(state)


@pytest.mark.rule("R414", "R143")
def test_text_is_appended_to_its_part() -> None:
    state = after(
        running(markdown("1", "He"), markdown("2")),
        of_turn("delta", partId="1", content="llo"),
        of_turn("delta", partId="2", content="x"),
        of_turn("delta", partId="1", content=""),
        of_turn("delta", partId="1", content="!"),
    )
    assert state["activeTurn"]["responseParts"] == [markdown("1", "Hello!"), markdown("2", "x")]
    assert not touched(state)


@pytest.mark.rule("R415")
def test_reasoning_is_appended_to_its_part() -> None:
    state = after(running(reasoning("1", "a"), markdown("2")), of_turn("reasoning", partId="1", content="b"))
    assert state["activeTurn"]["responseParts"] == [reasoning("1", "ab"), markdown("2")]


@pytest.mark.rule("R414", "R415")
@pytest.mark.parametrize(
    "action",
    [
        of_turn("delta", partId="9", content="x"),
        of_turn("delta", partId="r", content="x"),
        of_turn("delta", partId="c", content="x"),
        of_turn("reasoning", partId="9", content="x"),
        of_turn("reasoning", partId="m", content="x"),
        of_turn("reasoning", partId="c", content="x"),
    ],
)
def test_text_for_no_part_or_one_of_another_kind_is_dropped(action: State) -> None:
    before = running({"kind": "contentRef", "uri": "u:/"}, markdown("m"), reasoning("r"), call("running"))
    assert after(before, action) is before


@pytest.mark.rule("R414", "R415")
def test_the_first_part_with_an_id_decides_even_if_a_later_one_would_take_the_text() -> None:
    before = running(call("running", "1"), reasoning("2"), markdown("1"), markdown("2"), markdown("3"), markdown("3"))
    assert after(before, of_turn("delta", partId="1", content="x")) is before
    assert after(before, of_turn("delta", partId="2", content="x")) is before
    assert after(before, of_turn("delta", partId="3", content="x"))["activeTurn"]["responseParts"][4:] == [
        markdown("3", "x"),
        markdown("3"),
    ]


@pytest.mark.rule("R416", "R144")
def test_usage_replaces_usage() -> None:
    state = after(running(), of_turn("usage", usage={"inputTokens": 1, "model": "m"}), of_turn("usage", usage={"inputTokens": 5}))
    assert state["activeTurn"]["usage"] == {"inputTokens": 5}
    assert not touched(state)


@pytest.mark.rule("R413", "R414", "R415", "R416", "R417")
@pytest.mark.parametrize(
    "action",
    [
        of_turn("responsePart", part=markdown("1")),
        of_turn("delta", partId="m", content="x"),
        of_turn("reasoning", partId="r", content="x"),
        of_turn("usage", usage={}),
        *ENDS,
    ],
    ids=lambda action: action["type"],
)
def test_what_names_another_turn_changes_nothing(action: State) -> None:
    before = running(markdown("m"), reasoning("r"), turns=[turn("old")])
    for turn_id in ("old", "unheard-of"):
        assert after(before, {**action, "turnId": turn_id}) is before
    idle = session(turns=[turn("t")])
    assert after(idle, action) is idle


# --- ending ---


@pytest.mark.rule("R417", "R145")
@pytest.mark.parametrize(
    ("action", "how", "activity"), list(zip(ENDS, ["complete", "cancelled", "error"], [1, 1, 2], strict=True))
)
def test_a_turn_ends_among_the_turns_with_everything_said_so_far(action: State, how: str, activity: int) -> None:
    before = running(markdown("m", "Hi"), reasoning("r"), status=8 | 64, turns=[turn("0")])
    before["activeTurn"]["usage"] = {"outputTokens": 3}
    state = after(before, action)
    ended = {**before["activeTurn"], "state": how}
    if how == "error":
        ended["error"] = {"errorType": "provider_failed", "message": "It failed."}
    assert state["turns"] == [turn("0"), ended]
    assert "activeTurn" not in state
    assert status(state) == activity | 64
    assert touched(state)


@pytest.mark.rule("R417", "R36")
def test_a_turn_without_usage_ends_without() -> None:
    assert "usage" not in after(running(), ENDS[0])["turns"][0]


@pytest.mark.rule("R417", "R206")
@pytest.mark.parametrize("action", ENDS)
def test_open_questions_go_with_their_turn(action: State) -> None:
    state = after(running(status=24, inputRequests=[{"id": "1"}]), action)
    assert "inputRequests" not in state
    assert status(state) in (1, 2)


@pytest.mark.rule("R417", "R146")
@pytest.mark.parametrize("action", ENDS)
@pytest.mark.parametrize("open_", ["pending-confirmation", "running", "pending-result-confirmation"])
def test_a_call_that_is_open_at_the_end_is_skipped(action: State, open_: str) -> None:
    member = (
        {"selectedOption": {"id": "o", "label": "Yes", "kind": "approve"}}
        if open_ != "pending-confirmation"
        else {"editable": True}
    )
    state = after(running(call(open_, toolClientId="c1", _meta={"a": 1}, **member)), action)
    assert the_call(state) == {
        "toolCallId": "c",
        "toolName": "look",
        "displayName": "Look",
        "toolClientId": "c1",
        "_meta": {"a": 1},
        "invocationMessage": "Looking",
        "toolInput": '{"a":1}',
        "status": "cancelled",
        "reason": "skipped",
    }


@pytest.mark.rule("R417")
@pytest.mark.parametrize(
    ("members", "words"), [({}, ""), ({"invocationMessage": {"markdown": "*L*"}, "partialInput": "{"}, {"markdown": "*L*"})]
)
def test_a_call_whose_arguments_streamed_at_the_end_has_words_and_no_input(members: State, words: object) -> None:
    state = after(running(call("streaming", **members)), ENDS[1])
    assert the_call(state) == {
        "toolCallId": "c",
        "toolName": "look",
        "displayName": "Look",
        "invocationMessage": words,
        "status": "cancelled",
        "reason": "skipped",
    }


@pytest.mark.rule("R417")
@pytest.mark.parametrize("final", ["completed", "cancelled"])
def test_a_call_that_is_final_stays_as_it_is(final: str) -> None:
    part = call(final)
    assert after(running(part), ENDS[1])["turns"][0]["responseParts"][0] is part


@pytest.mark.rule("R417", "R145")
def test_a_turn_ends_once() -> None:
    state = after(running(), ENDS[0])
    for action in ENDS:
        assert after(state, action) is state


@pytest.mark.rule("R417")
def test_queue_and_steering_outlive_the_turn() -> None:
    before = running(steeringMessage=message("1"), queuedMessages=[message("2")])
    state = after(before, ENDS[1])
    assert (state["steeringMessage"], state["queuedMessages"]) == (message("1"), [message("2")])


# --- cutting ---


@pytest.mark.rule("R418", "R220")
@pytest.mark.parametrize(("last", "kept"), [("1", ["1"]), ("2", ["1", "2"]), ("3", ["1", "2", "3"]), (None, [])])
def test_truncating_keeps_the_turns_up_to_the_named_one_and_drops_the_active_one(last: str | None, kept: list[str]) -> None:
    before = running(turns=[turn("1"), turn("2"), turn("3")], inputRequests=[{"id": "r"}], status=24 | 32 | 64)
    state = after(before, act("truncated", **({} if last is None else {"turnId": last})))
    assert [item["id"] for item in state["turns"]] == kept
    assert "activeTurn" not in state
    assert "inputRequests" not in state
    assert status(state) == 1 | 32 | 64
    assert touched(state)


@pytest.mark.rule("R418", "R220")
def test_truncating_leaves_what_waits() -> None:
    before = running(queuedMessages=[message("1")], steeringMessage=message("2"))
    state = after(before, act("truncated"))
    assert (state["queuedMessages"], state["steeringMessage"]) == ([message("1")], message("2"))


@pytest.mark.rule("R418")
def test_truncating_ends_the_showing_of_an_error() -> None:
    assert status(after(session(status=2, turns=[turn("1", how="error")]), act("truncated", turnId="1"))) == 1


@pytest.mark.rule("R418")
@pytest.mark.parametrize("turn_id", ["9", "t"])
def test_truncating_at_an_unknown_turn_changes_nothing_and_the_active_one_is_unknown(turn_id: str) -> None:
    before = running(turns=[turn("1")])
    assert after(before, act("truncated", turnId=turn_id)) is before


@pytest.mark.rule("R418")
def test_null_instead_of_a_turn_counts_as_none() -> None:
    action = {"type": "session/truncated", "session": SESSION, "turnId": None}
    assert after(session(turns=[turn("1")]), action)["turns"] == []


# --- life of the session ---


@pytest.mark.rule("R410", "R151")
def test_ready_resets_the_whole_status_and_is_no_change_of_its_own() -> None:
    state = after(session(lifecycle="creating", status=1 | 32 | 64), act("ready"))
    assert (state["lifecycle"], status(state), state["summary"]["modifiedAt"]) == ("ready", 1, THEN)


@pytest.mark.rule("R411")
def test_a_failed_creation_keeps_its_reason_and_changes_nothing_else() -> None:
    before, error = session(lifecycle="creating", status=33), {"errorType": "x", "message": "y"}
    assert after(before, act("creationFailed", error=error)) == {**before, "lifecycle": "creationFailed", "creationError": error}


@pytest.mark.rule("R70")
def test_each_change_that_counts_is_stamped_with_the_time_it_is_given() -> None:
    state = after(session(), start(), now=NOW)
    assert after(state, ENDS[0], now=NOW + 5)["summary"]["modifiedAt"] == NOW + 5
