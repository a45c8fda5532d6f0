"""Events of web transactions: appended last, announced when they are on disk, or not at all."""

from __future__ import annotations

import pytest
from django.db import connection

from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent, Stored
from sessions_app.models import SessionTail, Tenant

from .conftest import Announced, World

CREATED = Happening(Kind.SESSION_CREATED, {"session": "sess_1"})


def test_events_get_the_next_numbers_and_the_number_of_their_sessions_event_before(world: World) -> None:
    tenant = world.tenant()
    first, second = world.session(tenant), world.session(tenant)
    with journal.transaction() as tx:
        assert tx.append(NewEvent(tenant, first, CREATED)) == 0
        assert tx.append(NewEvent(tenant, second, CREATED)) == 1
        assert tx.append(NewEvent(tenant, first, CREATED)) == 2
        assert tx.append(NewEvent(tenant, None, CREATED)) == 3
    assert tx.stored == [Stored(1, 0), Stored(2, 0), Stored(3, 1), Stored(4, 0)]
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, first, CREATED))
    assert tx.stored == [Stored(5, 3)]
    assert [event.seq for event in journal.read_session(tenant, first, 0).events] == [1, 3, 5]
    assert [event.seq for event in journal.read_session(tenant, -tenant, 0).events] == [4]
    assert journal.tail(first) == journal.Tail(5, 3, 0)


def test_one_announcement_a_tenant_covers_the_whole_append(world: World, announced: Announced) -> None:
    one, other = world.tenant(), world.tenant()
    world.append(one, world.session(one))
    announced.lists.clear()
    session, elsewhere = world.session(one), world.session(other)
    with journal.transaction() as tx:
        tx.append(NewEvent(one, session, CREATED))
        tx.append(NewEvent(other, elsewhere, CREATED))
        tx.append(NewEvent(one, session, Happening(Kind.TURN_STARTED, {"turn": "t"})))
    (made,) = announced.lists
    by_tenant = {each.tenant: each for each in made}
    assert (by_tenant[one].before, by_tenant[one].upto) == (1, 3)
    assert (by_tenant[other].before, by_tenant[other].upto) == (0, 1)
    (item,) = by_tenant[one].items
    assert (item.session, item.prev) == (session, 0)
    assert [(event.seq, event.kind, event.data) for event in item.events] == [
        (2, "session_created", '{"session":"sess_1"}'),
        (3, "turn_started", '{"turn":"t"}'),
    ]


def test_a_transaction_that_rolls_back_announces_nothing_and_uses_no_number(world: World, announced: Announced) -> None:
    tenant = world.tenant()
    session = world.session(tenant)

    def fail_after_appending() -> None:
        with journal.transaction() as tx:
            tx.append(NewEvent(tenant, session, CREATED))
            tx.after_commit(lambda: pytest.fail("it was not committed"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_appending()
    assert announced.all == []
    assert journal.counters([tenant]) == {tenant: 0}


def test_a_missing_tail_is_an_exception_and_rolls_back(world: World, announced: Announced) -> None:
    tenant = world.tenant()

    def change_and_append(event: NewEvent) -> None:
        with journal.transaction() as tx:
            Tenant.objects.filter(pk=tenant).update(title="changed")
            tx.append(event)

    with pytest.raises(journal.MissingTail):
        change_and_append(NewEvent(tenant, 123456, CREATED))
    with pytest.raises(journal.MissingTail):
        change_and_append(NewEvent(tenant + 1000, None, CREATED))
    assert Tenant.objects.get(pk=tenant).title == ""
    assert announced.all == []
    assert journal.counters([tenant]) == {tenant: 0}


def test_an_event_with_an_old_fence_is_refused_and_one_without_never(world: World) -> None:
    tenant = world.tenant()
    session = world.session(tenant)
    world.append(tenant, session, Kind.RUN_STARTED, fence=2)
    with pytest.raises(journal.StaleFence), journal.transaction() as tx:
        tx.append(NewEvent(tenant, session, CREATED, fence=1))
    assert world.append(tenant, session) == 2
    assert journal.tail(session).fence == 2
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, session, CREATED, fence=3))
    assert journal.tail(session).fence == 3


def test_the_append_counts_sessions_and_writes_the_count_into_its_event(world: World, announced: Announced) -> None:
    tenant = world.tenant()
    changed = Happening(Kind.ACTIVE_SESSIONS_CHANGED, {})
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, None, changed, sessions=1))
        tx.append(NewEvent(tenant, None, changed, sessions=1))
        tx.append(NewEvent(tenant, None, CREATED))
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, None, changed, sessions=-1))
    counts = ['{"count":1}', '{"count":2}', '{"session":"sess_1"}', '{"count":1}']
    assert [event.data for event in journal.read_tenant(tenant, 0).events] == counts
    assert [event.data for each in announced.all for item in each.items for event in item.events] == counts


def test_a_transaction_without_events_is_a_plain_one(world: World, announced: Announced) -> None:
    tenant = world.tenant()
    with journal.transaction():
        Tenant.objects.filter(pk=tenant).update(title="changed")
    assert Tenant.objects.get(pk=tenant).title == "changed"
    assert announced.all == []


def test_a_durable_event_is_announced_after_the_barrier_and_a_delta_at_once(
    world: World, announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessions_app.core.log.journal import barriers

    order: list[str] = []

    class Asked(barriers.Barrier):
        def __init__(self, era: int | None) -> None:
            order.append("asked for none" if era is None else "asked")
            super().__init__(era)

        def wait(self) -> None:
            super().wait()
            order.append("passed")

    tenant = world.tenant()
    session = world.session(tenant)
    monkeypatch.setattr(barriers, "Barrier", Asked)
    monkeypatch.setattr("sessions_app.core.log.broadcast.announce", lambda announcements: order.append("announced"))
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, session, CREATED))
        tx.after_commit(lambda: order.append("committed"))
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, session, Happening(Kind.TEXT_DELTA, {"delta": "a"})))
    asked = "asked" if connection.vendor == "postgresql" else "asked for none"
    assert order == [asked, "committed", "passed", "announced", "asked for none", "passed", "announced"]


def test_what_fails_after_commit_is_logged_and_the_answer_stands(world: World, caplog: pytest.LogCaptureFixture) -> None:
    tenant = world.tenant()
    with journal.transaction() as tx:
        tx.append(NewEvent(tenant, None, CREATED))
        tx.after_commit(lambda: 1 / 0)
    assert tx.stored == [Stored(1, 0)]
    assert "ZeroDivisionError" in caplog.text


def test_a_lone_surrogate_is_stored_as_json_escapes_it(world: World) -> None:
    tenant = world.tenant()
    world.append(tenant, None, Kind.TEXT_DELTA, delta="\ud83d")
    (event,) = journal.read_tenant(tenant, 0).events
    assert event.data == '{"delta":"\\ud83d"}'


def test_a_tenants_own_tail_comes_with_its_counter(world: World) -> None:
    tenant = world.tenant()
    assert SessionTail.objects.filter(session_id=-tenant).exists()
