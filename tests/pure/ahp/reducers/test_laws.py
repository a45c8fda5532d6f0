"""What holds for every reducer, state and action."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.ahp.versions.v0_1 import reducers as v0_1
from sessions_app.ahp.versions.v0_1.reducers import root, session, terminal
from sessions_app.ahp.versions.v0_1.wire import envelopes
from sessions_app.ahp.versions.v0_1.wire.actions import RootAction, SessionAction, TerminalAction
from sessions_app.ahp.versions.v0_1.wire.state import RootState, SessionState
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalState
from sessions_app.core.base.shapes import Shape, members
from tests.faces.ahp.generated import JSON, fitting, spoiled
from tests.pure.ahp.reducers.scenes import act, call, markdown, of_turn, running, turn

REDUCERS: dict[str, tuple[Any, Any, Any]] = {
    "root": (v0_1.reduce_root, RootState, RootAction),
    "session": (v0_1.reduce_session, SessionState, SessionAction),
    "terminal": (v0_1.reduce_terminal, TerminalState, TerminalAction),
}
ENDINGS = ("session/turnComplete", "session/turnCancelled", "session/error")
KINDS = st.sampled_from(list(REDUCERS))
UNHURRIED = settings(deadline=None)


def cases(make: Any, how_many: int) -> st.SearchStrategy[tuple[str, Any, list[Any]]]:
    def of_kind(kind: str) -> st.SearchStrategy[tuple[str, Any, list[Any]]]:
        _, state, action = REDUCERS[kind]
        return st.tuples(st.just(kind), make(state), st.lists(make(action), min_size=1, max_size=how_many))

    # Sessions have the most to get wrong.
    return st.sampled_from(["session", "session", "session", "root", "terminal"]).flatmap(of_kind)


@pytest.mark.rule("R70")
def test_there_is_a_step_for_every_action_and_none_for_others() -> None:
    assert {*root.ROOT, *session.SESSION, *terminal.TERMINAL} == set(envelopes.TYPES)


@pytest.mark.rule("R37", "R70")
@UNHURRIED
@given(cases(fitting, 8))
def test_actions_that_fit_lead_from_states_that_fit_to_states_that_fit(case: tuple[str, Any, list[Any]]) -> None:
    kind, state, actions = case
    reduce, shape = REDUCERS[kind][0], Shape[Any](REDUCERS[kind][1])
    for action in actions:
        before, said = copy.deepcopy(state), copy.deepcopy(action)
        following = reduce(state, action, 7)
        assert (state, action) == (before, said), "nothing that was given is changed"
        assert reduce(before, said, 7) == following, "the same gives the same"
        assert v0_1.reduce(state, action, 7) == following
        assert shape.faults(following) == []
        assert exact_json.loads(exact_json.dumps(following)) == following
        state = following


@pytest.mark.rule("R31")
@UNHURRIED
@given(cases(lambda declared: spoiled(declared) | fitting(declared) | JSON, 3))
def test_whatever_comes_a_reducer_answers_json_and_changes_nothing_it_was_given(case: tuple[str, Any, list[Any]]) -> None:
    kind, state, actions = case
    for action in actions:
        before, said = copy.deepcopy(state), copy.deepcopy(action)
        following = REDUCERS[kind][0](state, action, 7)
        assert (state, action) == (before, said)
        exact_json.dumps(following)
        state = following


@pytest.mark.rule("R371")
@UNHURRIED
@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), fitting(REDUCERS[kind][1]))), JSON, JSON)
def test_an_unknown_type_gives_back_the_very_same_state(case: tuple[str, Any], word: Any, member: Any) -> None:
    kind, state = case
    foreign = {name for name in envelopes.TYPES if not name.startswith(kind)}
    for type_ in (word, "", f"{kind}/", f"{kind}/invented", *foreign):
        assert REDUCERS[kind][0](state, {"type": type_, "session": "s", "config": member, "title": member}, 7) is state
    assert REDUCERS[kind][0](state, {"config": member}, 7) is state
    assert REDUCERS[kind][0](state, word, 7) is state


@pytest.mark.rule("R150")
@UNHURRIED
@given(st.lists(fitting(SessionAction), max_size=25))
def test_a_session_does_exactly_one_thing_at_a_time(actions: list[Any]) -> None:
    state: Any = v0_1.session_state("echo:/1", "echo", created_at=1)
    for action in actions:
        state = v0_1.reduce_session(state, action, 7)
        status = state["summary"]["status"]
        assert status & 31 in (1, 2, 8, 24)
        assert status & ~31 in (0, 32, 64, 96)


@UNHURRIED
@given(st.lists(fitting(SessionAction), max_size=6), fitting(SessionState), fitting(SessionAction))
def test_a_null_where_nothing_need_be_is_the_same_as_nothing(actions: list[Any], state: Any, last: Any) -> None:
    for action in [*actions, last]:
        declared = envelopes.TYPES[action["type"]][
            0 if action.get("approved", True) or len(envelopes.TYPES[action["type"]]) == 1 else 1
        ]
        optional = {name: None for name, member in members(declared).items() if not member.required}
        following = v0_1.reduce_session(state, action, 7)
        assert v0_1.reduce_session(state, {**optional, **action}, 7) == following
        state = following


def test_a_step_shares_everything_it_does_not_change() -> None:
    before: Any = running(markdown("1", "a"), markdown("2", "b"), turns=[turn("0")], _meta={"a": 1})
    state: Any = v0_1.reduce_session(before, of_turn("delta", partId="2", content="c"), 7)
    assert state["activeTurn"]["responseParts"][0] is before["activeTurn"]["responseParts"][0]
    assert all(state[name] is before[name] for name in before if name != "activeTurn")
    ended: Any = v0_1.reduce_session(state, of_turn("turnComplete"), 7)
    assert ended["turns"][0] is before["turns"][0]


class Sealed(list[Any]):
    """A list that can be handed on, but neither walked nor copied."""

    def __iter__(self) -> Any:
        raise AssertionError("somebody walks through what did not change")

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("somebody looks into what did not change")


@pytest.mark.parametrize("kind", sorted(set(session.SESSION) - {"session/truncated"} - set(ENDINGS)))
def test_no_step_walks_through_the_turns_that_are_over(kind: str) -> None:
    before: Any = {**running(markdown("1"), call("running", "1")), "turns": Sealed([turn("0")])}

    @settings(deadline=None, max_examples=10, database=None)
    @given(st.one_of(*map(fitting, envelopes.TYPES[kind])))
    def walk(action: Any) -> None:
        after: Any = v0_1.reduce_session(before, {**action, "turnId": "t", "toolCallId": "1", "partId": "1"}, 7)
        assert after["turns"] is before["turns"]

    walk()


class Counted(str):
    """A string that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_reordering_by_endless_unknown_ids_is_no_endless_work() -> None:
    queue = [{"id": Counted(number), "userMessage": {"text": ""}} for number in range(1_000)]
    order = [f"x{number}" for number in range(10_000)] + ["999"]
    before: Any = {**running(), "queuedMessages": queue}
    after: Any = v0_1.reduce_session(before, act("queuedMessagesReordered", order=order), 7)
    assert after["queuedMessages"][0]["id"] == "999"
    # Each id against each message would be ten million.
    assert Counted.compared < 50_000
