"""A worker runs its periodic duties only when they may have something to do, and finds that out with one query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from sessions_app.core.base import database
from sessions_app.core.records import clients
from sessions_app.core.tenancy import usage_entries, webhooks
from sessions_app.core.worker import duties
from sessions_app.core.worker.sweep import Sweeper
from sessions_app.models import ApiKey, DueSummary, SessionClient, Tenant, Terminal, Turn
from tests.core.client_actions import make
from tests.core.conftest import World, claim_one, lease_is_over

LONG_AGO = timedelta(days=2)


@pytest.fixture(autouse=True)
def one_query(on_postgres: bool, quick: None, settings: Any) -> None:  # after the quick settings
    if not on_postgres:
        pytest.skip("on SQLite each duty looks for itself")
    settings.AGENTHOST_QUEUE_GRACE_SECONDS = 3600.0


def due() -> frozenset[str]:
    """The duties that are due, but for the usage that preparing a test has left to fold."""
    usage_entries.fold_backlog(10_000, 5)
    return duties._look(None).due


def a_webhook(alice: World) -> None:
    types = ["turn.ended"]
    webhooks.create(alice.caller.tenant, url="https://a.example.com/", types=types, description="", actor="the tests")


def a_run_of_a_dead_worker(alice: World) -> None:
    accepted = alice.say(alice.session(), "x")
    assert claim_one("dead") is not None
    assert due() == frozenset()
    lease_is_over(accepted)


def a_turn_that_nobody_claims(alice: World) -> None:
    alice.say(alice.session(), "x")
    Turn.objects.update(queued_at=timezone.now() - LONG_AGO)


def a_turn_after_its_deadline(alice: World) -> None:
    alice.say(alice.session(), "x")
    Turn.objects.update(deadline_at=timezone.now() - LONG_AGO)


def a_tenant_suspended_now(alice: World) -> None:
    Tenant.objects.filter(pk=alice.caller.tenant).update(suspended_at=timezone.now())


def a_queued_turn_of_a_tenant_suspended_long_ago(alice: World) -> None:
    alice.say(alice.session(), "x")
    Tenant.objects.filter(pk=alice.caller.tenant).update(suspended_at=timezone.now() - LONG_AGO)


def a_key_revoked_now(_alice: World) -> None:
    assert ApiKey.objects.update(revoked_at=timezone.now())


def a_queued_turn_of_a_key_revoked_long_ago(alice: World) -> None:
    alice.say(alice.session(), "x")
    Turn.objects.update(api_key=ApiKey.objects.get())
    ApiKey.objects.update(revoked_at=timezone.now() - LONG_AGO)


def a_client_without_a_connection(alice: World) -> None:
    make(alice, client=clients.Entry("gone", None, []))


def a_client_that_left_long_ago(alice: World) -> None:
    a_client_without_a_connection(alice)
    SessionClient.objects.update(left_at=timezone.now() - LONG_AGO)


def a_terminal_that_was_requested(alice: World) -> None:
    Terminal.objects.create(
        tenant_id=alice.caller.tenant,
        public_id="term_1",
        uri="agenthost:/terminals/1",
        state="requested",
        requested_at=timezone.now(),
        claim="{}",
        line=1,
        cols=80,
        rows=24,
    )


def a_summary_that_was_asked_for(alice: World) -> None:
    session = alice.session()
    DueSummary.objects.create(tenant_id=alice.caller.tenant, session=session, asked_at=timezone.now())


@pytest.mark.parametrize(
    ("prepare", "duty"),
    [
        (a_run_of_a_dead_worker, duties.TAKE_OVER),
        (a_turn_that_nobody_claims, duties.QUEUED),
        (a_turn_after_its_deadline, duties.DEADLINES),
        (a_tenant_suspended_now, duties.SUSPENDED),
        (a_queued_turn_of_a_tenant_suspended_long_ago, duties.SUSPENDED),
        (a_key_revoked_now, duties.REVOKED),
        (a_queued_turn_of_a_key_revoked_long_ago, duties.REVOKED),
        (a_client_without_a_connection, duties.VANISHED),
        (a_client_that_left_long_ago, duties.GRACE),
        (a_terminal_that_was_requested, duties.TERMINALS),
        (a_summary_that_was_asked_for, duties.SUMMARIES),
        (a_webhook, duties.WEBHOOKS),
    ],
)
def test_a_duty_is_due_when_it_has_something_to_do_and_no_other_one_is(
    alice: World, prepare: Callable[[World], None], duty: str
) -> None:
    assert due() == frozenset()
    prepare(alice)
    assert due() == {duty}


def test_usage_is_due_until_all_of_it_is_folded(alice: World) -> None:
    assert due() == frozenset()
    alice.session()
    assert duties._look(None).due == {duties.USAGE}
    assert due() == frozenset()


def test_suspended_tenants_and_revoked_keys_cost_nothing_when_their_turns_have_ended(alice: World) -> None:
    Tenant.objects.filter(pk=alice.caller.tenant).update(suspended_at=timezone.now() - LONG_AGO)
    ApiKey.objects.update(revoked_at=timezone.now() - LONG_AGO)
    assert due() == frozenset()


def test_while_the_database_does_not_answer_every_duty_is_due_and_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_call: object) -> object:
        raise OperationalError("gone")

    monkeypatch.setattr(database, "run_on_loop", away)
    found = asyncio.run(duties.look())
    assert (found.due, found.clock) == (duties.ALL, None)


def test_two_readings_of_the_clock_that_arrive_out_of_order_are_no_loss_of_contact(alice: World) -> None:
    """The look reads it in the loop, a take-over in a thread."""
    sweeper = Sweeper("w", _in_contact_since=float("-inf"))
    now = timezone.now()
    sweeper.note_clock(now)
    sweeper.note_clock(now - timedelta(milliseconds=20))
    assert sweeper.settled_until(15.0) is not None
    sweeper.note_clock(now - timedelta(minutes=1))
    assert sweeper.settled_until(15.0) is None
