"""What becomes of the runs that a key began, when the key ends."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from sessions_app.core import turns
from sessions_app.core.base.lock_timeouts import RowLocked
from sessions_app.core.tenancy import definitions, keys
from sessions_app.core.turns import ClientResult, refusals, stopping
from sessions_app.core.turns.refusals import Refusal
from sessions_app.core.worker.worker import Worker
from sessions_app.models import ApiKey, AuditRecord, Session, Tenant
from tests.core.conftest import World, claim_one, locked, turn_of, wait_for, wait_for_state
from tests.core.threads import in_thread
from tests.core.turns.test_turns import READ_LOG
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text


def _row(world: World) -> ApiKey:
    return ApiKey.objects.select_related("tenant").get(pk=world.caller.key)


def _with_another_key(world: World) -> World:
    tenant = Tenant.objects.get(pk=world.caller.tenant)
    issued = keys.issue(tenant, name="other", scopes=["*"], expires_at=None, allowed_agents=None, actor="tests")
    return replace(world, caller=keys.authenticate(issued.raw))


def _ended(accepted: turns.Accepted) -> tuple[str, str]:
    turn = turn_of(accepted)
    return turn.state, turn.stop_reason


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation waits for a locked turn as long as it takes: a slow machine holds the lock of a write for longer."""
    monkeypatch.setattr(refusals, "deadline", lambda: time.monotonic() + 60)


@pytest.mark.usefixtures("_patient")
@pytest.mark.rule("A2")
def test_a_revocation_stops_queued_running_and_waiting_turns_of_the_key(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = _with_another_key(alice)
    start_worker()
    waiting = alice.say(alice.session(client_tools=[READ_LOG]), model.script([call("read_log", {}, id="c")]))
    wait_for_state(waiting, "waiting")
    running, theirs = (each.say(each.session(), model.script([text("a"), gate("never")])) for each in (alice, other))
    for accepted in (running, theirs):
        wait_for_state(accepted, "running")
    # Nobody takes it: its format is a newer release's.
    monkeypatch.setattr(definitions, "format_and_queue", lambda _: (99, "default"))
    queued = alice.say(alice.session(), "x")
    assert turns.revoke_key(_row(alice), actor="tests") == Refusal(changed=True, left=0)
    assert [_ended(each) for each in (queued, running, waiting)] == [("cancelled", "error")] * 3
    assert turn_of(theirs).state == "running"
    stopping.cancel_tenant(alice.caller.tenant)


@pytest.mark.usefixtures("_patient")
@pytest.mark.rule("A2")
def test_a_turn_belongs_to_the_key_that_started_its_last_run(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    other = _with_another_key(alice)
    start_worker()
    session = alice.session(client_tools=[READ_LOG])
    accepted = alice.say(session, model.script([call("read_log", {}, id="c")], [text("b"), gate("never")]))
    wait_for_state(accepted, "waiting")
    other.answer(session, ClientResult(0, "c", "calm"))
    wait_for_state(accepted, "running")
    turns.revoke_key(_row(alice), actor="tests")
    assert turn_of(accepted).state == "running"
    turns.revoke_key(_row(other), actor="tests")
    assert _ended(accepted) == ("cancelled", "error")


def test_expiry_and_rotation_stop_nothing(alice: World) -> None:
    accepted = alice.say(alice.session(), "x")
    keys.rotate(_row(alice), timedelta(0), actor="tests")
    assert not keys.expire(_row(alice), actor="tests"), "it has ended already"
    assert turns.stop_revoked() == turns.stop_suspended() == 0
    assert turn_of(accepted).state == "queued"
    assert claim_one("w") is not None


def test_a_key_that_expires_now_is_refused_and_in_the_audit_once(alice: World) -> None:
    key = _row(alice)
    assert keys.expire(key, actor="chat:eve", address="host")
    assert keys.state_of(key) == "expired"
    assert not keys.expire(key, actor="chat:eve")
    record = AuditRecord.objects.get(action="key_changed")
    assert (record.actor, record.address, record.detail) == ("chat:eve", "host", "expires now")


@pytest.mark.rule("A2")
def test_a_turn_accepted_while_its_key_is_revoked_never_runs(alice: World) -> None:
    accepted = alice.say(alice.session(), "x")
    ApiKey.objects.filter(pk=alice.caller.key).update(revoked_at=timezone.now() - timedelta(days=1))
    assert claim_one("w") is None
    assert turns.stop_revoked() == 1
    assert _ended(accepted) == ("cancelled", "error")


@pytest.mark.parametrize("of_tenant", [False, True])
def test_turns_that_a_revocation_could_not_stop_are_stopped_by_the_sweep(
    alice: World, monkeypatch: pytest.MonkeyPatch, of_tenant: bool
) -> None:
    accepted, other = alice.say(alice.session(), "x"), alice.say(alice.session(), "y")
    assert claim_one("dead") is not None
    stop = stopping.stop

    def held(turn_id: int, how: turns.Stop, **more: bool) -> turns.Stopped | None:
        if turn_id == accepted.turn_id:
            raise RowLocked
        return stop(turn_id, how, **more)

    with monkeypatch.context() as patch:
        patch.setattr(stopping, "stop", held)
        patch.setattr(refusals, "deadline", time.monotonic)
        if of_tenant:
            refusal = turns.suspend_tenant(Tenant.objects.get(pk=alice.caller.tenant), actor="tests")
        else:
            refusal = turns.revoke_key(_row(alice), actor="tests")
    assert refusal == Refusal(changed=True, left=1)
    assert turn_of(accepted).state == "running"
    assert turn_of(other).state == "cancelled"
    assert turns.stop_suspended() + turns.stop_revoked() == 1
    assert _ended(accepted) == ("cancelled", "error")


def test_a_key_is_not_revoked_inside_a_transaction(alice: World) -> None:
    """Its turns must be looked at after everybody sees that it is revoked."""
    with transaction.atomic(), pytest.raises(RuntimeError):
        turns.revoke_key(_row(alice), actor="tests")


@pytest.mark.parametrize("how", ["command", "key", "tenant"])
def test_locked_turns_are_left_to_the_sweep_and_reported_to_the_operator(
    alice: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, on_postgres: bool, how: str
) -> None:
    """Waited for one after the other, a refusal would last as long as the lock."""
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    monkeypatch.setattr(refusals, "deadline", time.monotonic)
    held = [alice.say(alice.session(), "x") for _ in range(3)]
    free = alice.say(alice.session(), "y")
    rows = Session.objects.filter(turns__in=[each.turn_id for each in held])
    with locked(lambda: list(Session.objects.select_for_update().filter(pk__in=list(rows.values_list("pk", flat=True))))):
        if how == "command":
            said = io.StringIO()
            call_command("revoke_key", str(alice.caller.key), stderr=said)
            assert "3 turns are locked by other transactions and not stopped yet" in said.getvalue()
        elif how == "key":
            assert turns.revoke_key(_row(alice), actor="tests") == Refusal(changed=True, left=3)
        else:
            tenant = Tenant.objects.get(pk=alice.caller.tenant)
            assert turns.suspend_tenant(tenant, actor="tests") == Refusal(changed=True, left=3)
        assert turn_of(free).state == "cancelled"
        assert {turn_of(each).state for each in held} == {"queued"}
    assert "turns=3" in caplog.text
    assert turns.stop_suspended() + turns.stop_revoked() == 3
    assert {_ended(each) for each in (*held, free)} == {("cancelled", "error")}


@pytest.mark.usefixtures("_patient")
def test_a_turn_that_is_unlocked_in_time_is_stopped_by_the_revocation_itself(alice: World, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    held, free = alice.session(), alice.session()
    first, second = alice.say(held, "x"), alice.say(free, "y")
    found: list[Refusal] = []
    with locked(lambda: Session.objects.select_for_update().get(pk=held.pk)):
        revoking = in_thread(lambda: found.append(turns.revoke_key(_row(alice), actor="tests")))
        wait_for(lambda: turn_of(second).state == "cancelled", "nobody waits for the turn that is locked")
        assert turn_of(first).state == "queued"
    revoking.join(90)
    assert found == [Refusal(changed=True, left=0)]
    assert _ended(first) == ("cancelled", "error")
