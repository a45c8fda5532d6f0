"""A worker's lease: it covers the turns that the worker drives, and no others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from sessions_app.core import turns
from sessions_app.core.base.raw_sql import row
from sessions_app.core.records import live_workers
from sessions_app.core.worker import leases
from sessions_app.core.worker.leases import Leases
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Turn, WorkerPresence
from tests.core.conftest import World, claim_one, kinds, lease_of, turn_of, wait_for, wait_for_state
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import gate, text

PAST, FUTURE = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


def wait_for_a_renewal(worker: Worker) -> None:
    before = lease_of(worker.name)
    wait_for(lambda: lease_of(worker.name) > before, "the lease is renewed")


def claimed_by(world: World, worker: str, text: str = "x") -> turns.Accepted:
    accepted = world.say(world.session(), text)
    assert claim_one(worker) is not None
    return accepted


# --- who is taken over ---


def test_a_worker_with_a_lease_keeps_its_turns(alice: World) -> None:
    claimed_by(alice, "alive")
    assert turns.take_over("other") is None


def test_the_turns_of_a_worker_whose_lease_has_expired_are_taken_over(alice: World) -> None:
    dead, alive = claimed_by(alice, "dead"), claimed_by(alice, "alive")
    WorkerPresence.objects.filter(worker="dead").update(lease_expires_at=PAST)
    taken = turns.take_over("other")
    assert isinstance(taken, turns.Claimed)
    assert taken.turn_id == dead.turn_id
    assert turns.take_over("other") is None
    assert turn_of(alive).worker == "alive"


def test_the_turns_of_a_worker_without_a_row_are_taken_over(alice: World) -> None:
    """It has stopped, or housekeeping deleted the row long after its death."""
    accepted = claimed_by(alice, "gone")
    live_workers.leave("gone")
    taken = turns.take_over("other")
    assert isinstance(taken, turns.Claimed)
    assert taken.turn_id == accepted.turn_id


def test_a_turn_that_was_taken_over_is_not_taken_over_again_before_its_new_worker_renews(alice: World) -> None:
    """Even if that worker has just lost its own lease: the turn would end after two more rounds of the sweep."""
    claimed_by(alice, "dead")
    live_workers.leave("dead")
    assert isinstance(turns.take_over("without a lease"), turns.Claimed)
    assert turns.take_over("other") is None


# --- beside workers of the release before ---


def test_a_turn_of_the_release_before_is_judged_by_its_own_lease(alice: World) -> None:
    """Its worker has a heartbeat without a lease, and renews the turn's."""
    accepted, now = claimed_by(alice, "old"), timezone.now()
    WorkerPresence.objects.filter(worker="old").update(lease_expires_at=None, seen_at=now)
    Turn.objects.filter(pk=accepted.turn_id).update(lease_expires_at=now + timedelta(seconds=60))
    assert turns.take_over("other") is None
    Turn.objects.filter(pk=accepted.turn_id).update(lease_expires_at=now - timedelta(seconds=1))
    assert isinstance(turns.take_over("other"), turns.Claimed)


def test_the_release_before_sees_no_expired_lease_of_a_turn_that_is_driven(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    """It looks for running turns whose own lease has expired, however long ago the claim was."""
    start_worker()
    accepted = alice.say(alice.session(), model.script([text("a"), gate("hold")]))
    wait_for_state(accepted, "running")
    wait_for(lambda: turn_of(accepted).lease_expires_at is None, "it has no lease of its own")
    Turn.objects.filter(pk=accepted.turn_id).update(lease_expires_at=FUTURE)
    wait_for(lambda: turn_of(accepted).lease_expires_at is None, "a renewal removes the turn's own lease")
    model.open_gate("hold")
    assert wait_for_state(accepted, "done").takeovers == 0


def test_a_worker_that_stops_leaves_expired_turns_for_the_release_before(alice: World) -> None:
    accepted = claimed_by(alice, "stopping")
    leases.expire("stopping")
    expires_at = turn_of(accepted).lease_expires_at
    assert expires_at is not None
    assert expires_at < live_workers.database_clock()


# --- one turn that its living worker does not drive ---


def test_a_turn_that_its_worker_never_began_is_taken_over_while_the_worker_lives(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    """The answer to its claim was lost."""
    worker = start_worker()
    driven = alice.say(alice.session(), model.script([text("a"), gate("hold")]))
    wait_for_state(driven, "running")
    lost = alice.say(alice.session(), "x")
    Turn.objects.filter(pk=lost.turn_id).update(state="running", worker=worker.name, fence=7)
    wait_for(lambda: turn_of(lost).lease_expires_at is not None, "the worker lets go of it")
    assert turn_of(driven).lease_expires_at is None
    assert turns.take_over("other") is None, "not yet: it may be beginning"
    Turn.objects.filter(pk=lost.turn_id).update(lease_expires_at=PAST)
    wait_for(lambda: turn_of(lost).takeovers == 1 or turn_of(lost).state != "running", "it is taken over")
    model.open_gate("hold")
    assert wait_for_state(driven, "done").takeovers == 0


def test_a_worker_without_a_lease_claims_nothing_until_it_has_renewed(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it claimed would be taken over at once, and asked for twice."""
    renewing, looked = threading.Lock(), threading.Semaphore(0)
    renew, is_held = Leases._renew, vars(Leases)["is_held"].fget

    def renew_later(leases: Leases) -> None:
        with renewing:
            renew(leases)

    def look(leases: Leases) -> bool:
        looked.release()
        return bool(is_held(leases))

    monkeypatch.setattr(Leases, "_renew", renew_later)
    monkeypatch.setattr(Leases, "is_held", property(look))
    worker, session = start_worker(), alice.session()

    async def lose() -> None:
        # After the claim and the renewal that may be under way.
        async with worker._claiming:
            worker._leases._held_until = 0.0

    with renewing:
        asyncio.run_coroutine_threadsafe(lose(), worker._loop).result(30)
        renewed = lease_of(worker.name)
        accepted = alice.say(session, model.script([text("a")]))
        while looked.acquire(blocking=False):
            pass
        assert looked.acquire(timeout=30), "it has not looked for turns"
        assert turn_of(accepted).state == "queued"
    turn = wait_for_state(accepted, "done")
    assert turn.takeovers == 0
    assert lease_of(worker.name) > renewed
    assert worker._leases.is_held


# --- what a renewal costs ---


def test_a_renewal_writes_one_row_however_many_turns_are_driven(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("row versions are Postgres's")
    worker = start_worker()
    session = alice.session()
    accepted = alice.say(session, model.script([text("a"), gate("hold")]))
    wait_for(lambda: "text_delta" in kinds(session), "the first words")
    # One that met the claim may have to write it once more.
    for _ in range(2):
        wait_for_a_renewal(worker)
    version = row("select xmin::text, ctid::text from sessions_app_turn where id = %s", (accepted.turn_id,))
    for _ in range(2):
        wait_for_a_renewal(worker)
    assert row("select xmin::text, ctid::text from sessions_app_turn where id = %s", (accepted.turn_id,)) == version
    model.open_gate("hold")
    wait_for_state(accepted, "done")
