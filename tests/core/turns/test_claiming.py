"""The events of a claim: numbered, stored and announced for each claimed turn, in the claim's own statement."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal import postgres
from sessions_app.core.log.journal.types import Announcement, Event
from sessions_app.models import Session, Turn
from tests.core.conftest import World, turn_of

pytestmark = pytest.mark.django_db(transaction=True)

Claim = Callable[[], turns.Claims]

ODD = 'a "quoted" \\ id\n\t\x01 é 漢 😀 %s {data}'


@pytest.fixture(params=["loop", "thread"])
def claim(request: pytest.FixtureRequest) -> Claim:
    """A claim on the worker's loop, and in a thread, where it has to wait for a connection."""
    if request.param == "thread":
        return lambda: turns.claim("w", 8)
    return lambda: asyncio.run(database.run_on_loop(turns.claim, "w", 8))


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[Announcement]:
    found: list[Announcement] = []
    monkeypatch.setattr(broadcast, "announce", found.extend)
    return found


def last_event(session: Session) -> Event:
    return list(journal.read_session(session.tenant_id, session.pk, 0, limit=100).events)[-1]


def test_each_claimed_turn_has_an_event_with_its_number(
    alice: World, bob: World, claim: Claim, announced: list[Announcement]
) -> None:
    sessions = [alice.session(), alice.session(), bob.session()]
    accepted = [world.say(session, "x") for world, session in zip((alice, alice, bob), sessions, strict=True)]
    announced.clear()
    before = {world.caller.tenant: journal.counter_and_sessions(world.caller.tenant)[0] for world in (alice, bob)}
    runs = {run.session: run for run in claim().runs}
    events = [last_event(session) for session in sessions]
    for session, turn, event in zip(sessions, accepted, events, strict=True):
        assert (event.kind, event.fence) == ("run_started", runs[session.pk].fence)
        assert json.loads(event.data) == {"turn": turn.public_id, "run": 1, "takeover": 0}
        assert journal.tail(session.pk).fence == turn_of(turn).fence == event.fence
    first = before[alice.caller.tenant]
    assert [event.seq for event in events] == [first + 1, first + 2, before[bob.caller.tenant] + 1]
    assert {(each.tenant, each.before, each.upto) for each in announced} == {
        (alice.caller.tenant, first, first + 2),
        (bob.caller.tenant, before[bob.caller.tenant], before[bob.caller.tenant] + 1),
    }
    told = [event for each in announced for item in each.items for event in item.events]
    assert sorted(told, key=lambda each: each.session) == sorted(events, key=lambda each: each.session)


def test_an_id_that_a_client_chose_is_json_in_the_event(alice: World, claim: Claim, announced: list[Announcement]) -> None:
    session = alice.session()
    turns.start(alice.caller, session, content="x", turn_id=ODD)
    announced.clear()
    claim()
    assert json.loads(last_event(session).data)["turn"] == ODD
    assert [item.events[0].data for each in announced for item in each.items] == [last_event(session).data]


def test_nothing_is_claimed_if_a_session_has_lost_its_tail_meanwhile(
    alice: World, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn without its event could never end."""
    broken, sound = alice.say(alice.session(), "x"), alice.say(alice.session(), "y")
    session = turn_of(broken).session_id
    without = _without_looking_for_tails()
    monkeypatch.setattr("sessions_app.core.turns.queue._claim_of", lambda _: without)
    with connection.cursor() as cursor:
        cursor.execute("delete from session_tail where session_id = %s", [session])
    with pytest.raises(journal.MissingTail) as caught:
        claim()
    assert caught.value.sessions == (session,)
    assert [turn_of(each).state for each in (broken, sound)] == ["queued", "queued"]


def _without_looking_for_tails() -> str:
    from sessions_app.core.turns import queue

    condition = "and exists (select 1 from session_tail s where s.session_id = t.session_id)"
    statement = queue._claim_of(None)
    assert condition in statement
    fence = "(select s.fence + 1 from session_tail s where s.session_id = sessions_app_turn.session_id)"
    return statement.replace(condition, "").replace(fence, "1")


def test_the_first_claim_after_a_crash_begins_an_era(alice: World, claim: Claim, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no eras")
    session = alice.session()
    alice.say(session, "x")
    with connection.cursor() as cursor:
        # As recovery leaves it.
        cursor.execute("truncate journal_era")
    assert len(claim().runs) == 1
    assert last_event(session).seq == postgres.LEAP + 1


def test_a_claim_is_a_transaction_of_its_own(alice: World, on_postgres: bool) -> None:
    alice.say(alice.session(), "x")
    error: Any = transaction.TransactionManagementError if on_postgres else RuntimeError
    with transaction.atomic(), pytest.raises(error):
        turns.claim("w")
    assert set(Turn.objects.values_list("state", flat=True)) == {"queued"}
