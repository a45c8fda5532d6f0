"""Access: a session that a key may not see is answered exactly like one that never existed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agents_app import registry
from agents_app.spec import AgentSpec
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.sessions import deleting
from sessions_app.core.tenancy import access
from sessions_app.models import Session
from tests.core.conftest import World
from tests.sample_tenants import make_session_of_client

pytestmark = pytest.mark.django_db(transaction=True)


def limited_to(world: World, *agents: str) -> World:
    return World(replace(world.caller, agents=frozenset(agents), key_agents=frozenset(agents)))


def ways_in(world: World, session: Session) -> list[Callable[[], object]]:
    """Every function that answers one session, each as a call for this one."""
    caller = world.caller

    def lock() -> object:
        with journal.transaction():
            return access.lock_session(caller, session)

    def lock_and_ask() -> object:
        with journal.transaction():
            return access.lock_session_and(caller, session, Statement("select 1"))

    return [
        lambda: access.session(caller, session.public_id),
        lambda: access.session_of_row(caller, session.pk),
        lock,
        lock_and_ask,
    ]


def assert_hidden(world: World, session: Session, *uris: str) -> None:
    for way_in in ways_in(world, session):
        with pytest.raises(SessionNotFound) as found:
            way_in()
        assert found.value.args == SessionNotFound().args
    assert access.sessions_by_uri(world.caller, list(uris), [session.public_id]) == []
    assert not access.visible(world.caller).filter(pk=session.pk).exists()


def test_a_session_is_found_by_id_row_and_uri(alice: World) -> None:
    session = make_session_of_client(alice.caller, uri="sailor:/one", agent="sailor")
    for way_in in ways_in(alice, session):
        found = way_in()
        assert (found[0] if isinstance(found, tuple) else found) == session
    assert access.sessions_by_uri(alice.caller, ["sailor:/one"], []) == [(session, "sailor:/one")]
    assert access.sessions_by_uri(alice.caller, [], [session.public_id]) == [(session, "sailor:/one")]
    assert list(access.visible(alice.caller)) == [session]


def test_another_tenants_session_does_not_exist(alice: World, bob: World) -> None:
    session = make_session_of_client(alice.caller, uri="sailor:/one", agent="sailor")
    assert_hidden(bob, session, "sailor:/one")


def test_a_deleted_session_does_not_exist(alice: World) -> None:
    session = make_session_of_client(alice.caller, uri="sailor:/one", agent="sailor")
    deleting.delete(alice.caller, session)
    assert_hidden(alice, session, "sailor:/one")


def test_a_session_of_an_agent_that_the_key_may_not_use_does_not_exist(alice: World, agents: Callable[..., AgentSpec]) -> None:
    hidden = make_session_of_client(alice.caller, uri="sailor:/one", agent="sailor")
    with registry.use([agents(), agents(name="cook")]):
        visible = World(alice.caller, "cook").session()
    cook = limited_to(alice, "cook")
    assert_hidden(cook, hidden, "sailor:/one")
    assert list(access.visible(cook.caller)) == [visible]
    assert access.session(cook.caller, visible.public_id) == visible


def test_sessions_of_an_agent_that_the_whole_tenant_lost_can_still_be_read(alice: World) -> None:
    session = alice.session()
    caller = replace(alice.caller, agents=frozenset(["cook"]), key_agents=None)
    assert access.session(caller, session.public_id) == session


@pytest.mark.parametrize("public_id", ["", "sess_unknown", "sess_\0", "sess_" + "x" * 10_000, "' or 1=1 --"])
def test_an_id_that_no_session_has_is_not_found(alice: World, public_id: str) -> None:
    alice.session()
    with pytest.raises(SessionNotFound):
        access.session(alice.caller, public_id)


def test_a_locked_session_is_read_as_it_is_now(alice: World) -> None:
    before = alice.session()
    Session.objects.filter(pk=before.pk).update(title="renamed meanwhile")
    with journal.transaction():
        assert access.lock_session(alice.caller, before).title == "renamed meanwhile"
        locked, answer = access.lock_session_and(alice.caller, before, Statement("select 41 + %s", (1,)))
    assert (locked.title, answer) == ("renamed meanwhile", [[(42,)]])
