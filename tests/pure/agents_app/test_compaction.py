"""What a model gets of a conversation that is too long for it, or has gaps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import compaction
from agents_app.compaction import TooLong, compact, for_model, tokens
from agents_app.runtime.messages import Block, Content, Message, ToolSchema, calls_of


class Talk:
    """Builds a conversation, positions counted."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._calls = 0

    def add(self, role: str, content: Content, *, turn: int | None = None, call: str | None = None) -> Talk:
        position = len(self.messages) + 1
        self.messages.append(Message(role, content, tool_call_id=call, turn=turn, position=position))  # type: ignore[arg-type]
        return self

    def user(self, text: str, turn: int | None = None) -> Talk:
        return self.add("user", text, turn=turn)

    def says(self, text: str, turn: int | None = None) -> Talk:
        return self.add("assistant", text, turn=turn)

    def calls(self, *ids: str, turn: int | None = None, text: str = "") -> Talk:
        blocks: list[Block] = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "toolCallId": name, "name": "f", "input": {}} for name in ids]
        return self.add("assistant", blocks, turn=turn)

    def result(self, call: str, text: Content = "ok", turn: int | None = None) -> Talk:
        return self.add("tool", text, turn=turn, call=call)


def compacted(talk: Talk, limit: int, running: int | None = None, instructions: str = "") -> compaction.Compacted:
    return compact(talk.messages, instructions, [], limit, running)


def texts(messages: Sequence[Message]) -> list[Content]:
    return [message.content for message in messages]


def test_what_fits_or_has_no_limit_is_left_alone() -> None:
    talk = Talk().user("a" * 400).says("b" * 400)
    assert compacted(talk, 200).messages == talk.messages
    assert compact(talk.messages, "", [], None, None) == compaction.Compacted(talk.messages, None)


@pytest.mark.rule("A99")
def test_four_characters_are_a_token_an_image_a_thousand_and_everything_sent_counts() -> None:
    assert tokens([Message("user", "12345")]) == 2
    image = {"type": "image", "url": "data:image/png;base64," + "A" * 99_999}
    assert tokens([Message("user", [image, {"type": "text", "text": "1234"}])]) == 1001
    call = {"type": "tool_use", "toolCallId": "x" * 400, "name": "f", "input": {"a": 1}}
    assert tokens([Message("assistant", [call])]) == 2
    assert tokens([Message("assistant", [{"type": "thinking", "thinking": "x" * 400}])]) == 0
    declared = {"type": "function", "function": {"name": "f", "description": "1234567", "parameters": {"a": 1}}}
    assert tokens([], "12345678", [ToolSchema("f", "1234567", {"a": 1})]) == -(-(8 + len(json.dumps(declared))) // 4)


@pytest.mark.rule("A99")
def test_old_results_lose_their_content_first_but_not_those_of_the_last_two_steps() -> None:
    talk = Talk().user("go", 1)
    for number in range(4):
        talk.calls(f"c{number}", turn=1).result(f"c{number}", "r" * 400, 1)
    found = compacted(talk, 250, running=1)
    assert [m.content for m in found.messages if m.role == "tool"] == ["[400 characters left out]"] * 2 + ["r" * 400] * 2
    assert found.dropped_through is None
    assert [m.tool_call_id for m in found.messages] == [m.tool_call_id for m in talk.messages]


def test_a_result_shorter_than_the_note_keeps_its_content_and_images_count() -> None:
    image = {"type": "image", "url": "https://images.example/a.png"}
    talk = Talk().user("go", 1)
    talk.calls("a", "b", turn=1).result("a", "short", 1).result("b", [image, {"type": "text", "text": "12"}], 1)
    talk.calls("c", turn=1).result("c", "", 1).calls("d", turn=1).result("d", "", 1)
    found = compacted(talk, 500, running=1)
    assert [m.content for m in found.messages if m.role == "tool"] == ["short", "[2 characters left out]", "", ""]


@pytest.mark.rule("A99", "A38")
def test_then_whole_turns_go_from_the_oldest() -> None:
    talk = Talk()
    for turn in range(1, 6):
        talk.user(f"{turn}" * 200, turn).calls(f"c{turn}", turn=turn).result(f"c{turn}", "r" * 20, turn).says("x" * 180, turn)
    talk.user("now", 6)
    found = compacted(talk, 310, running=6)
    assert [m.turn for m in found.messages] == [3] * 4 + [4] * 4 + [5] * 4 + [6]
    assert found.dropped_through == 8
    assert tokens(found.messages) <= 310


@pytest.mark.rule("A99")
def test_system_messages_the_newest_user_message_and_the_running_turn_stay() -> None:
    talk = Talk().add("system", "S" * 40).user("old" * 100, 1).says("old" * 100, 1).add("system", "T" * 40, turn=2)
    talk.user("newest", 2).calls("c", turn=2).result("c", "r" * 100, 2)
    found = compacted(talk, 60, running=2)
    assert [m.role for m in found.messages] == ["system", "system", "user", "assistant", "tool"]
    assert found.dropped_through == 3


@pytest.mark.rule("A99", "A86")
def test_if_what_must_stay_is_too_long_the_model_is_not_to_be_called() -> None:
    talk = Talk().user("old", 1).says("old", 1).user("x" * 1000, 2)
    with pytest.raises(TooLong) as caught:
        compacted(talk, 100, running=2)
    assert texts(caught.value.messages) == ["x" * 1000]
    with pytest.raises(TooLong):
        compacted(Talk().user("x", 1), 100, running=1, instructions="i" * 401)


def test_in_a_seed_each_user_message_begins_a_turn() -> None:
    talk = Talk().says("hello" * 20).user("one" * 50).says("1").user("two" * 50).says("2").user("three", 1)
    found = compacted(talk, 45, running=1)
    assert texts(found.messages) == ["two" * 50, "2", "three"]
    assert found.dropped_through == 3


def test_results_of_a_seeds_open_calls_keep_their_calls_while_the_turn_runs() -> None:
    talk = Talk().user("old" * 100).says("old").user("newest").calls("c").result("c", "done", turn=1)
    found = compacted(talk, 20, running=1)
    assert texts(found.messages)[0] == "newest"
    assert [m.role for m in found.messages] == ["user", "assistant", "tool"]


def test_notes_that_closed_an_old_turns_calls_do_not_hold_it() -> None:
    talk = Talk().user("old" * 100, 1).calls("c", turn=1)
    talk.result("c", "Tool call denied: the user sent a new message instead", 2).user("new", 2)
    found = compacted(talk, 30, running=2)
    assert texts(found.messages) == ["new"]
    assert found.dropped_through == 3


def test_a_call_and_its_result_are_kept_or_dropped_together_even_far_apart() -> None:
    talk = Talk().calls("c").user("a" * 200).result("c", "late").says("b").user("now", 1)
    found = compacted(talk, 52, running=1)
    ids = {call["toolCallId"] for message in found.messages for call in calls_of(message)}
    assert {m.tool_call_id for m in found.messages if m.role == "tool"} == ids
    # The user message that stood between is still there: everything up to its call alone is gone.
    assert found.dropped_through == 1
    assert compact(for_model(talk.messages), "", [], 52, 1).dropped_through == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=12),
    st.integers(20, 400),
    st.booleans(),
)
def test_compaction_keeps_its_promises_whatever_the_conversation(
    turns: list[tuple[int, int, int]], limit: int, running: bool
) -> None:
    talk = Talk()
    for turn, (steps, size, calls) in enumerate(turns, 1):
        talk.user("u" * size, turn)
        for step in range(steps):
            ids = [f"{turn}.{step}.{number}" for number in range(calls)]
            talk.calls(*ids, turn=turn, text="t")
            for call in ids:
                talk.result(call, "r" * size, turn)
        talk.says("a" * size, turn)
    last = len(turns)
    try:
        found = compacted(talk, limit, last if running else None)
    except TooLong as error:
        messages = list(error.messages)
        assert tokens(messages) > limit
    else:
        messages = found.messages
        assert tokens(messages) <= limit
        through = found.dropped_through or 0
        assert [m.position for m in messages] == [m.position for m in talk.messages if m.position > through]
    newest = [m for m in talk.messages if m.role == "user"][-1]
    assert newest in messages
    asked = {call["toolCallId"] for message in messages for call in calls_of(message)}
    assert {m.tool_call_id for m in messages if m.role == "tool"} == asked
    if running:
        assert [m.position for m in messages if m.turn == last] == [m.position for m in talk.messages if m.turn == last]


@pytest.mark.rule("A90")
def test_a_call_left_open_in_the_middle_gets_a_result_for_the_model() -> None:
    talk = Talk().user("go").calls("a", "b").result("b", "B").user("on")
    found = for_model(talk.messages)
    assert [(m.role, m.tool_call_id) for m in found] == [
        ("user", None),
        ("assistant", None),
        ("tool", "b"),
        ("tool", "a"),
        ("user", None),
    ]
    assert found[3].content == "Tool call denied: no result"


def test_late_results_move_to_their_call_and_orphans_are_left_out() -> None:
    talk = Talk().calls("a").user("meanwhile").result("a", "A").result("zzz", "?").says("done")
    assert [(m.role, m.content if m.role == "tool" else "") for m in for_model(talk.messages)] == [
        ("assistant", ""),
        ("tool", "A"),
        ("user", ""),
        ("assistant", ""),
    ]


def test_a_conversation_without_gaps_is_given_unchanged() -> None:
    talk = Talk().user("go").calls("b", "a").result("b").result("a").says("done")
    assert for_model(talk.messages) == talk.messages


def test_ten_thousand_messages_are_no_trouble() -> None:
    talk = Talk()
    for turn in range(2_500):
        talk.user("u" * 40, turn).calls(f"c{turn}", turn=turn).result(f"c{turn}", "r" * 80, turn).says("a" * 40, turn)
    found = compacted(talk, 1_000, running=2_499)
    assert tokens(for_model(found.messages)) <= 1_000


# --- summaries -----------------------------------------------------------------------------------


def talk_of(turns: int, characters: int = 200) -> Talk:
    talk = Talk()
    for turn in range(1, turns + 1):
        talk.user("u" * characters, turn).calls(f"c{turn}", turn=turn).result(f"c{turn}", "r" * 20, turn)
        talk.says("a" * characters, turn)
    return talk


@pytest.mark.rule("A99")
def test_a_summary_stands_for_whole_turns_from_the_oldest_and_takes_in_the_former_one() -> None:
    talk = talk_of(10)
    older = compaction.older(talk.messages, "", [], 1_200, None)
    assert older is not None
    assert older.through % 4 == 0, "whole turns"
    assert [m.position for m in older.messages] == list(range(1, older.through + 1))
    shorter = compaction.with_summary(talk.messages, compaction.summary("They spoke.", older.through), older.through)
    assert shorter[0].content == "Summary of the conversation so far:\n\nThey spoke."
    assert tokens(shorter) <= 600, "and there is room for the next turns"
    talk.messages = shorter
    for turn in range(11, 20):
        talk.messages += [replace(m, position=m.position + 4 * turn, turn=turn) for m in talk_of(1).messages]
    again = compaction.older(talk.messages, "", [], 1_200, None)
    assert again is not None
    assert again.messages[0] == shorter[0]
    assert len([m for m in again.messages if m.summary]) == 1


def test_a_conversation_is_due_when_it_takes_most_of_its_room() -> None:
    talk = talk_of(2)
    length = tokens(talk.messages)
    assert compaction.is_due(talk.messages, "", [], int(length / 0.71))
    assert not compaction.is_due(talk.messages, "", [], int(length / 0.69) + 1)
    assert not compaction.is_due([], "i" * 4_000, [], 1_001), "instructions alone are no reason"


def test_the_newest_user_message_and_the_running_turn_are_not_summarised() -> None:
    one = Talk().user("x" * 4_000, 1).says("y", 1)
    assert compaction.older(one.messages, "", [], 500, None) is None
    two = one.user("now", 2).calls("c", turn=2).result("c", "r" * 400, 2)
    older = compaction.older(two.messages, "", [], 500, 2)
    assert older is not None
    assert older.through == 2


def test_nothing_is_summarised_where_no_summary_would_fit() -> None:
    talk = Talk().user("old" * 100, 1).says("old", 1).user("x" * 700, 2)
    assert compaction.older(talk.messages, "", [], 200, 2) is None
    assert compacted(talk, 200, running=2).dropped_through == 2


@pytest.mark.rule("A99")
def test_where_turns_are_dropped_after_all_a_summary_of_those_before_stays_as_long_as_it_fits() -> None:
    kept = [replace(m, position=m.position + 8) for m in talk_of(3).messages]
    talk = [compaction.summary("s" * 600, 8), *kept, Message("user", "now", turn=9, position=21)]
    found = compact(talk, "", [], 180, 9)
    assert [m.content for m in found.messages] == [talk[0].content, "now"]
    assert found.dropped_through == 20
    shorter = compact(talk, "", [], 60, 9)
    assert tokens(shorter.messages) <= 60
    assert str(shorter.messages[0].content).startswith("Summary of the conversation so far:\n\nsss")
    without = compact(talk, "", [], 20, 9)
    assert [m.content for m in without.messages] == ["now"]


def test_turns_have_to_go_only_if_shorter_results_are_not_enough() -> None:
    talk = Talk().user("go", 1)
    for number in range(4):
        talk.calls(f"c{number}", turn=1).result(f"c{number}", "r" * 400, 1)
    assert not compaction.must_drop_turns(talk.messages, "", [], 250)
    assert compaction.must_drop_turns(talk.messages, "", [], 150)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=12),
    st.integers(20, 400),
    st.integers(0, 2_000),
)
def test_a_summary_keeps_the_promises_of_compaction(turns: list[tuple[int, int, int]], limit: int, written: int) -> None:
    talk = Talk().add("system", "Be kind.")
    for turn, (steps, size, calls) in enumerate(turns, 1):
        talk.user("u" * size, turn)
        for step in range(steps):
            ids = [f"{turn}.{step}.{number}" for number in range(calls)]
            talk.calls(*ids, turn=turn, text="t")
            for call in ids:
                talk.result(call, "r" * size, turn)
    last = len(turns)
    older = compaction.older(talk.messages, "", [], limit, last)
    if older is None:
        return
    assert {m.turn for m in older.messages}.isdisjoint({last})
    text = compaction.cut("s" * written, older.longest - len(compaction.SUMMARY_BEGINS) - 2)
    shorter = compaction.with_summary(talk.messages, compaction.summary(text, older.through), older.through)
    asked = {call["toolCallId"] for message in shorter for call in calls_of(message)}
    assert {m.tool_call_id for m in shorter if m.role == "tool"} == asked
    found = compact(shorter, "", [], limit, last)
    assert tokens(found.messages) <= limit
    assert found.dropped_through is None
    assert [m.summary for m in found.messages][:2] == [False, True]
