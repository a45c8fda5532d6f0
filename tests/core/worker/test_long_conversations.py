"""Long conversations of one tenant: nothing that is done with them holds up a worker's loop, or another tenant's turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agents_app import compaction
from agents_app.runtime import long_work
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.records import stored_messages
from sessions_app.core.worker.worker import Worker
from tests.core.conftest import World, turn_of, wait_for, wait_for_state
from tests.core.turns.test_turns import full
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import text

WORDS = "knot "
SEED = [{"role": "user", "content": WORDS * (long_work.LONG // len(WORDS) // 3)}, {"role": "assistant", "content": "I see."}] * 4


class Watched:
    """Work on histories: in which threads long ones were worked on, and a gate before which a tenant's work waits."""

    def __init__(self) -> None:
        self.threads: dict[str, set[str]] = {}
        self.began, self.go = threading.Event(), threading.Event()
        self.held: Callable[[Any], bool] = lambda _: False

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def watched(given: Any, *more: Any) -> Any:
            if long_work.is_long(given, *more):
                self.threads.setdefault(name, set()).add(threading.current_thread().name.partition("-")[0])
            if self.held(given):
                self.began.set()
                assert self.go.wait(120)
            return work(given, *more)

        return watched


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    found = Watched()
    monkeypatch.setattr(stored_messages, "parse_for_models", found.around("parsed", stored_messages.parse_for_models))
    monkeypatch.setattr(compaction, "for_model", found.around("arranged", compaction.for_model))
    monkeypatch.setattr(compaction, "compact", found.around("compacted", compaction.compact))
    yield found
    found.go.set()


def of_tenant(*sessions: int) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, list) and bool({*sessions} & {each for each in given if isinstance(each, int)})


def begins_with(words: str) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, Sequence) and bool(given) and str(getattr(given[0], "content", "")).startswith(words)


@pytest.mark.parametrize("limit", [None, 1_000_000, 50_000], ids=["no limit", "all fits", "turns are dropped"])
def test_a_long_conversation_is_parsed_and_compacted_outside_the_loop(
    alice: World,
    agents: Callable[..., AgentSpec],
    start_worker: Callable[[], Worker],
    model: ModelServer,
    watched: Watched,
    limit: int | None,
) -> None:
    agents(context_tokens=limit)
    session = alice.session(seed=SEED)
    start_worker()
    wait_for_state(alice.say(session, model.script([text("read")])), "done")
    assert full(session)[-1] == ("assistant", "read")
    kinds = {"parsed", "arranged"} if limit is None else {"parsed", "arranged", "compacted"}
    assert watched.threads == {kind: {"long"} for kind in kinds}


def test_another_tenants_turns_short_and_long_do_not_wait_for_one_tenants_long_conversations(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer, watched: Watched
) -> None:
    theirs = [alice.session(seed=SEED) for _ in range(3)]
    watched.held = of_tenant(*(each.pk for each in theirs))
    start_worker()
    hers = [alice.say(session, model.script([text("read")])) for session in theirs]
    assert watched.began.wait(90)
    wait_for_state(bob.say(bob.session(), model.script([text("at once")])), "done")
    wait_for_state(bob.say(bob.session(seed=SEED), model.script([text("soon")])), "done")
    assert {turn_of(each).state for each in hers} == {"running"}
    watched.go.set()
    for accepted in hers:
        wait_for_state(accepted, "done")


def test_a_run_is_cancelled_at_once_while_its_long_conversation_is_worked_on(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, watched: Watched
) -> None:
    session = alice.session(seed=[{"role": "user", "content": "Mind the gap."}, *SEED])
    watched.held = begins_with("Mind the gap.")
    worker = start_worker()
    accepted = alice.say(session, model.script([text("never")]))
    assert watched.began.wait(90)
    assert turns.cancel(alice.caller, session).cancelled
    wait_for(lambda: not worker._live, "the run has ended")
    assert turn_of(accepted).state == "cancelled"
    assert not watched.go.is_set()
    watched.go.set()
    wait_for_state(alice.say(session, model.script([text("and on")])), "done")
    assert len(model.requests) == 1
