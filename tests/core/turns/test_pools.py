"""Worker pools: an agent's turns are claimed, swept and taken over only by workers that serve its queue (decision 0103)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from agents_app import queue_names, registry, tracing
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base.caller import Caller
from sessions_app.core.records import live_workers, summary_queue
from sessions_app.core.turns import tasks
from sessions_app.core.worker import sweep
from sessions_app.models import DEFAULT_QUEUE, NAMED_QUEUE_FORMAT, DueSummary, Session, Turn
from tests.core.conftest import World, insert_call, lease_is_over, turn_of, wait_for, wait_for_state
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import text

pytestmark = pytest.mark.django_db(transaction=True)

HEAVY = ("heavy",)
DEFAULT = (DEFAULT_QUEUE,)


@pytest.fixture
def heavy(agents: Callable[..., AgentSpec]) -> AgentSpec:
    """The agent of the tests is in the queue ``heavy``; one of another name is in none."""
    return agents(queue="heavy")


@pytest.fixture
def both(heavy: AgentSpec, alice: World) -> Iterator[Callable[[Caller, str], World]]:
    """Makes a tenant's view of the agent in this queue."""
    light = replace(heavy, name="light", queue=DEFAULT_QUEUE)
    with registry.use([heavy, light]):
        yield lambda caller, queue: World(caller, "sailor" if queue == "heavy" else "light")


@pytest.fixture
def woken() -> Iterator[list[str]]:
    """The queues for which wake-ups were asked."""
    found: list[str] = []

    def request(queue: str) -> bool:
        found.append(queue)
        return True

    tasks.publish_with(request)
    yield found
    tasks.publish_with(None)


def claimed(queues: tuple[str, ...] | None, most: int = 10, **given: Any) -> list[int]:
    live_workers.announce("w")
    return [run.turn_id for run in turns.claim("w", most, queues=queues, **given).runs]


def test_the_names_agree() -> None:
    assert queue_names.DEFAULT == DEFAULT_QUEUE
    assert Turn._meta.get_field("queue").max_length == queue_names.MOST_CHARACTERS
    assert DueSummary._meta.get_field("queue").max_length == queue_names.MOST_CHARACTERS


def test_a_turn_gets_its_agents_queue_and_leaves_releases_alone_that_know_none(
    alice: World, both: Callable[..., World], woken: list[str]
) -> None:
    slow = turn_of(both(alice.caller, "heavy").say(both(alice.caller, "heavy").session(), "x"))
    quick = turn_of(both(alice.caller, "default").say(both(alice.caller, "default").session(), "x"))
    assert (slow.queue, slow.format, quick.queue) == ("heavy", NAMED_QUEUE_FORMAT, "default")
    assert quick.format < NAMED_QUEUE_FORMAT
    assert woken == ["heavy", "default"]


def test_a_claim_takes_turns_of_its_queues_alone(alice: World, both: Callable[..., World]) -> None:
    slow, quick = (both(alice.caller, queue) for queue in ("heavy", "default"))
    mine, others = slow.say(slow.session(), "x").turn_id, quick.say(quick.session(), "x").turn_id
    assert claimed(("light",)) == []
    assert claimed(HEAVY) == [mine]
    assert claimed(HEAVY) == []
    # The sweep's claim, of turns whose wake-up was lost.
    assert claimed(HEAVY, older_than=0.0001) == []
    assert claimed(DEFAULT, older_than=0.0001) == [others]


def test_a_worker_of_several_queues_and_one_of_all_take_both(alice: World, both: Callable[..., World]) -> None:
    for queues in (("heavy", "default"), None):
        slow, quick = (both(alice.caller, queue) for queue in ("heavy", "default"))
        said = {world.say(world.session(), "x").turn_id for world in (slow, quick)}
        assert set(claimed(queues)) == said


def test_shares_are_fair_within_each_pool(alice: World, bob: World, both: Callable[..., World]) -> None:
    """Alice's running turns of another queue do not count against her here."""
    quick, slow, of_bob = both(alice.caller, "default"), both(alice.caller, "heavy"), both(bob.caller, "heavy")
    for _ in range(3):
        quick.say(quick.session(), "x")
    assert len(claimed(DEFAULT)) == 3
    first = slow.say(slow.session(), "x").turn_id
    theirs = of_bob.say(of_bob.session(), "x").turn_id
    second = slow.say(slow.session(), "x").turn_id
    # She waits longest and has no running turn in this queue, so the slots for such tenants are hers too.
    assert claimed(HEAVY, most=1, idle_tenants_only=True) == [first]
    assert claimed(HEAVY, most=1) == [theirs]
    assert claimed(HEAVY, idle_tenants_only=True) == []
    assert claimed(HEAVY) == [second]


def test_runs_of_dead_workers_are_taken_over_within_their_pool(alice: World, heavy: AgentSpec) -> None:
    said = alice.say(alice.session(), "x")
    live_workers.announce("dead", HEAVY)
    assert turns.claim("dead", queues=HEAVY).runs
    lease_is_over(said)
    assert turns.take_over("light", queues=DEFAULT) is None
    sweeper = sweep.Sweeper("light", DEFAULT, _in_contact_since=float("-inf"))
    assert sweeper.take_next() is None
    taken = sweep.Sweeper("other", ("heavy", "default"), _in_contact_since=float("-inf")).take_next()
    assert isinstance(taken, turns.Claimed)
    assert taken.turn_id == said.turn_id


def test_a_turn_stays_in_its_queue_when_its_agent_moves(
    alice: World, agents: Callable[..., AgentSpec], heavy: AgentSpec, woken: list[str]
) -> None:
    """Answered, given back and reopened, it is a heavy worker's, also if the file has another queue for its agent by now."""
    said = alice.say(alice.session(), "x")
    agents(queue=DEFAULT_QUEUE)
    live_workers.announce("w")
    runs = turns.claim("w", queues=HEAVY).runs
    turns.give_back(runs)
    assert woken == ["heavy", "heavy"]
    assert [run.turn_id for run in turns.claim("w", queues=HEAVY).runs] == [said.turn_id]
    session = Session.objects.get(turns=said.turn_id)
    # It fails, so that it can be reopened.
    Turn.objects.filter(pk=said.turn_id).update(state="error", resumable=True, error="provider_error")
    turns.reopen(alice.caller, session, said.public_id)
    row = turn_of(said)
    assert (row.state, row.queue, row.format, woken[2:]) == ("queued", "heavy", NAMED_QUEUE_FORMAT, ["heavy"])
    # The session's next turn is a new one.
    Turn.objects.filter(pk=said.turn_id).update(state="done")
    assert turn_of(alice.say(session, "y")).queue == "default"


def test_an_answer_wakes_the_turns_own_pool(
    alice: World, heavy: AgentSpec, agents: Callable[..., AgentSpec], woken: list[str]
) -> None:
    said = alice.say(alice.session(), "x")
    session = Session.objects.get(turns=said.turn_id)
    Turn.objects.filter(pk=said.turn_id).update(state="waiting")
    insert_call(session, said, "call-1", "add_one", runner="server")
    agents(queue=DEFAULT_QUEUE)
    alice.answer(session, turns.Permission(0, "call-1", granted=True))
    assert woken == ["heavy", "heavy"]


def test_a_worker_sweeps_its_queues_alone(
    alice: World, both: Callable[..., World], start_worker: Callable[..., Any], model: ModelServer
) -> None:
    """Each turn runs although no wake-up is sent at all, and only at a worker of its queue."""
    slow, quick = (both(alice.caller, queue) for queue in ("heavy", "default"))
    waiting = slow.say(slow.session(), model.script([text("slow")]))
    one = start_worker(queues=DEFAULT)
    done = wait_for_state(quick.say(quick.session(), model.script([text("quick")])), "done")
    assert done.worker == one.name
    assert turn_of(waiting).state == "queued"
    other = start_worker(queues=HEAVY)
    assert wait_for_state(waiting, "done").worker == other.name


def test_summaries_are_made_by_workers_of_their_turns_queue(alice: World, heavy: AgentSpec) -> None:
    said = alice.say(alice.session(), "x")
    Turn.objects.filter(pk=said.turn_id).update(state="done")
    summary_queue.request(said.turn_id)
    assert (summary_queue.has_free(DEFAULT), summary_queue.has_free(HEAVY), summary_queue.has_free()) == (False, True, True)
    assert summary_queue.claim("w", 1, [], DEFAULT) == []
    assert [each.session for each in summary_queue.claim("w", 1, [], HEAVY)] == [Session.objects.get(turns=said.turn_id).pk]


@pytest.fixture
def spans() -> Iterator[list[tracing.Span]]:
    """The spans that have ended; turns that the test accepts are traced."""
    found: list[tracing.Span] = []
    tracing.install(tracing.Tracing(found.append))
    token = tracing.current.set(tracing.begin_trace("POST", tracing.SERVER, None, {}))
    yield found
    tracing.current.reset(token)
    tracing.install(None)


def test_the_spans_of_a_turn_name_its_queue(
    both: Callable[..., World], alice: World, start_worker: Callable[..., Any], model: ModelServer, spans: list[tracing.Span]
) -> None:
    world = both(alice.caller, "heavy")
    start_worker(queues=HEAVY)
    world.say(world.session(), model.script([text("Done.")]))
    names = ("send agenthost.turns", "receive agenthost.turns", "run", "invoke_agent sailor")
    wait_for(lambda: {span.name for span in spans} >= set(names), "the turn's spans")
    queues = {name: {span.attributes.get("agenthost.queue") for span in spans if span.name == name} for name in names}
    assert queues == {name: {"heavy"} for name in names}
