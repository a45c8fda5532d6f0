"""How a worker that goes away hands its runs over: silent ones at once, the others at their commit points."""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.core import turns
from sessions_app.core.worker.worker import Worker
from tests.core.conftest import World, claim_one, kinds, turn_of, wait_for, wait_for_state
from tests.core.threads import in_thread
from tests.core.turns.test_turns import full
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, pause, text


def test_a_run_whose_model_has_not_answered_goes_to_another_worker_and_counts_as_no_take_over(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    first = start_worker()
    session = alice.session()
    prompt = model.script([gate("hold"), text("said once")])
    accepted = alice.say(session, prompt)
    model.wait_gate("hold")
    second = start_worker()
    leaving = in_thread(lambda: first.stop(grace=0.1, drain=600))
    leaving.join(90)
    assert not leaving.is_alive(), "it waited for the silent model"
    model.wait_request(prompt, count=2)
    assert model.wait_ended(model.requests_of(prompt)[0]) == "closed", "nobody pays for two answers"
    model.open_gate("hold")
    turn = wait_for_state(accepted, "done", "error")
    assert (turn.state, turn.takeovers, turn.worker) == ("done", 0, second.name)
    assert full(session)[-1] == ("assistant", "said once")


def test_an_answer_in_progress_continues_to_its_commit_point(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    first = start_worker()
    session = alice.session(tools=[{"name": "add_one", "trust": True}])
    prompt = model.script([text("long "), gate("hold"), text("answer"), call("add_one", {"n": 1}, id="c")], [text("by another")])
    accepted = alice.say(session, prompt)
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    leaving = in_thread(lambda: first.stop(grace=0.1, drain=120))
    second = start_worker()
    wait_for(lambda: first._live and all(live.run and live.run._hand_over for live in first._live), "asked to hand over")
    model.open_gate("hold")
    turn = wait_for_state(accepted, "done", "error")
    leaving.join(90)
    assert not leaving.is_alive()
    assert (turn.state, turn.takeovers, turn.worker) == ("done", 0, second.name)
    assert [line[0] for line in full(session)] == ["user", "assistant", "tool", "assistant"]
    assert full(session)[-1] == ("assistant", "by another")


def test_an_answer_longer_than_the_drain_ends_with_the_text_so_far(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    first = start_worker()
    session = alice.session()
    accepted = alice.say(session, model.script([text("too "), pause(0.01), gate("never"), text("long")]))
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    start_worker()
    first.stop(grace=0.1, drain=0.2)
    assert wait_for_state(accepted, "done", "error").error == "interrupted"
    assert full(session)[-1] == ("assistant", "too ")


def test_a_run_is_given_back_only_under_its_own_fence(alice: World) -> None:
    accepted = alice.say(alice.session(), "hello")
    claimed = claim_one("a worker")
    assert claimed is not None
    old = turns.Claimed(claimed.turn_id, claimed.tenant, claimed.session, claimed.fence - 1)
    turns.give_back([old])
    assert turn_of(accepted).state == "running"
    turns.give_back([claimed, claimed])
    turn = turn_of(accepted)
    assert (turn.state, turn.worker, turn.lease_expires_at, turn.takeovers) == ("queued", "", None, 0)
    again = claim_one("another")
    assert again is not None
    assert again.fence > claimed.fence
