"""AAP's list of sessions: pages that stay stable, and cursors that nobody can forge."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from django.utils import timezone

from sessions_app.core.base.errors import BadCursor
from sessions_app.core.sessions import deleting, listing
from sessions_app.models import Session
from tests.core.conftest import World

pytestmark = pytest.mark.django_db(transaction=True)


def ids(page: listing.Page) -> list[str]:
    return [item.public_id for item in page.items]


def sessions(world: World, count: int) -> list[str]:
    """The newest first, as the list has them."""
    return [world.session().public_id for _ in range(count)][::-1]


def pages(world: World) -> list[str]:
    found, after = list[str](), None
    while True:
        page = listing.page(world.caller, after)
        found += ids(page)
        if page.next is None:
            return found
        after = page.next


@pytest.mark.parametrize("count", [0, 2, 3, 4])
def test_pages_have_every_session_once_the_newest_first(alice: World, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(listing, "PAGE", 2)
    made = sessions(alice, count)
    assert pages(alice) == made
    assert (listing.page(alice.caller, None).next is None) == (count <= 2)


def test_sessions_of_the_same_moment_are_not_lost_between_pages(alice: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE", 2)
    made = sessions(alice, 5)
    Session.objects.update(created_at=timezone.now())
    assert pages(alice) == made


def test_a_page_goes_on_behind_its_cursor_whatever_was_made_or_deleted_meanwhile(
    alice: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE", 2)
    made = sessions(alice, 5)
    first = listing.page(alice.caller, None)
    alice.session()
    deleting.delete(alice.caller, Session.objects.get(public_id=made[1]))
    assert ids(listing.page(alice.caller, first.next)) == made[2:4]


def test_a_cursor_that_was_changed_or_is_another_tenants_is_refused(
    alice: World, bob: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE", 1)
    sessions(alice, 2)
    cursor = listing.page(alice.caller, None).next
    assert cursor is not None
    raw = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    raw[3] ^= 1
    forged = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    for wrong in (forged, cursor[:-2], cursor + "AAAA", "", "ä", "not a cursor"):
        with pytest.raises(BadCursor):
            listing.page(alice.caller, wrong)
    with pytest.raises(BadCursor):
        listing.page(bob.caller, cursor)


def test_tools_that_the_agent_lost_and_secrets_are_not_shown(alice: World) -> None:
    session = alice.session(tools=[{"name": "add_one"}, {"name": "block"}], options={"key": "sk-alice", "tone": "gruffly"})
    Session.objects.filter(pk=session.pk).update(tool_refs='[{"name": "add_one"}, {"name": "gone"}]')
    found = listing.facts(Session.objects.get(pk=session.pk))
    assert found.tool_refs == [{"name": "add_one"}]
    assert found.options["tone"] == "gruffly"
    assert "sk-alice" not in repr(found)
    assert listing.page(alice.caller, None).items == [found]


def test_a_limited_key_sees_only_sessions_of_its_agents(alice: World) -> None:
    alice.session()
    caller = replace(alice.caller, agents=frozenset(["cook"]), key_agents=frozenset(["cook"]))
    assert listing.page(caller, None).items == []
