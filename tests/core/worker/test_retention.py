"""Retention: idle sessions go by their tenant's policy, and whatever must be kept stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from sessions_app.core.base.caller import NO_LIMITS
from sessions_app.core.base.errors import InvalidInput, SessionNotFound
from sessions_app.core.log import feed
from sessions_app.core.sessions import deleting
from sessions_app.core.tenancy import access, tenants, usage_entries
from sessions_app.core.worker import housekeeping, retention
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Measure, Session, Tenant, Turn
from tests.core.conftest import World, kinds, turn_of, wait_for, wait_for_state
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text

READ_LOG = {"name": "read_log", "description": "", "parameters": {"type": "object"}}


def keep(world: World, days: int | None) -> None:
    tenant = Tenant.objects.get(pk=world.caller.tenant)
    tenants.set_limits(tenant, NO_LIMITS, session_retention_days=days, actor="tests")


def age(session: Session, days: float) -> Session:
    """As if everything in it had happened so long ago."""
    past = timezone.now() - timedelta(days=days)
    Session.objects.filter(pk=session.pk).update(created_at=past, modified_at=past)
    Turn.objects.filter(session=session, ended_at__isnull=False).update(ended_at=past)
    return session


def there(world: World, session: Session) -> bool:
    try:
        access.session(world.caller, session.public_id)
    except SessionNotFound:
        return False
    return True


def test_idle_sessions_are_deleted_by_policy_and_used_ones_stay(alice: World, bob: World) -> None:
    keep(alice, 30)
    old, young = age(alice.session(options={"key": "sk-mine"}), 31), age(alice.session(), 29)
    bobs = age(bob.session(), 1000)
    housekeeping.run()
    assert [there(alice, old), there(alice, young), there(bob, bobs)] == [False, True, True]
    assert usage_entries.used(alice.caller.tenant, Measure.SESSIONS) == 1
    assert Session.with_deleted.get(pk=old.pk).option_values.count() == 0


def test_retention_publishes_the_same_event_as_a_deletion_by_a_client(alice: World) -> None:
    keep(alice, 1)
    by_client, by_policy = alice.session(), age(alice.session(), 2)
    deleting.delete(alice.caller, by_client)
    assert retention.enforce(20) == 1
    assert kinds(by_policy) == kinds(by_client)
    assert kinds(by_policy)[-1] == "session_deleted"
    assert feed.streams_open() == 0


def test_a_session_with_a_live_turn_stays_however_old(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    keep(alice, 1)
    waiting, running, queued = alice.session(client_tools=[READ_LOG]), alice.session(), alice.session()
    worker = start_worker()
    paused = alice.say(waiting, model.script([call("read_log", {}, id="c")], [text("done")]))
    wait_for_state(paused, "waiting")
    busy = alice.say(running, model.script([text("a"), gate("hold"), text("b")]))
    model.wait_gate("hold")
    wait_for(lambda: turn_of(busy).state == "running", "running")
    for session in (waiting, running):
        age(session, 400)
    assert retention.enforce(20) == 0
    model.open_gate("hold")
    wait_for_state(busy, "done")
    worker.stop(grace=5)
    alice.say(queued, "nobody runs this")
    age(queued, 400)
    assert retention.enforce(20) == 0
    # A turn that ended within the time counts as use, whenever it began.
    assert there(alice, running)
    age(running, 400)
    assert retention.enforce(20) == 1
    assert [there(alice, each) for each in (waiting, running, queued)] == [True, False, True]


def test_a_session_used_between_the_query_and_the_deletion_stays(alice: World) -> None:
    session = age(alice.session(), 10)
    since = timezone.now() - timedelta(days=5)
    assert deleting.idle_sessions(alice.caller.tenant, since, 10) == [session.pk]
    alice.say(session, "still here")
    assert not deleting.delete_idle(session.pk, since)
    assert there(alice, session)
    assert turn_of(alice.say(alice.session(), "x")).state == "queued"


def test_tenants_take_turns_by_batches_and_progress_is_logged(
    alice: World, bob: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    caplog.set_level(logging.INFO)
    for world, count in ((alice, 5), (bob, 1)):
        keep(world, 7)
        for _ in range(count):
            age(world.session(), 8)
    assert retention.enforce(20) == 6
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("idle_sessions_deleted")]
    assert [line.split()[1] for line in lines] == ["tenant=alice", "tenant=bob", "tenant=alice", "tenant=alice"]
    assert "days=7 count=5" in lines[-1]


def test_a_round_without_time_left_leaves_the_rest_to_the_next_round(alice: World) -> None:
    keep(alice, 1)
    age(alice.session(), 2)
    assert retention.enforce(0) == 0
    assert retention.enforce(20) == 1


@pytest.mark.parametrize("days", [0, -1, 36_501])
def test_an_invalid_retention_is_refused(alice: World, days: int) -> None:
    with pytest.raises(InvalidInput):
        keep(alice, days)
