"""What clients leave in a session counts as stored: messages that wait, tools, customizations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from sessions_app.core import turns
from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import QuotaExceeded
from sessions_app.core.records import clients, session_changes
from sessions_app.core.records.clients import Entry
from sessions_app.core.sessions import connections, deleting, inbox
from sessions_app.core.sessions.inbox import UserMessage
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Measure, PendingMessage, Session, SessionClient, Turn
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import gate, text
from tests.sample_tenants import make_session_of_client

pytestmark = pytest.mark.django_db(transaction=True)

TOOL = {"name": "open_file", "description": "Opens a file. " * 20}
GUIDE = {"uri": "guide:1", "displayName": "Guide " * 50}


def used(world: World, *, of_key: bool = False) -> int:
    return usage_entries.used(world.caller.tenant, Measure.BYTES, world.caller.key if of_key else None)


@pytest.fixture(autouse=True)
def _books_are_true(alice: World) -> Iterator[None]:
    """However a test ends, what was entered is what is stored."""
    yield
    rows = Session.objects.filter(tenant_id=alice.caller.tenant)
    stored = [
        usage_entries.bytes_of_settings(row) + usage_entries.bytes_of_history(row) + usage_entries.bytes_of_clients(row)
        for row in rows
    ]
    assert used(alice) == used(alice, of_key=True) == sum(stored)


def made(world: World, entry: Entry | None = None) -> Session:
    return make_session_of_client(world.caller, uri="sailor:/one", agent="sailor", client=entry)


def put(world: World, session: Session, words: str, message_id: str = "q1", kind: Any = "queued") -> None:
    inbox.put(world.caller, session, kind, message_id, UserMessage(words), dispatched=action())


def limited(world: World, room: int) -> None:
    """So many bytes more than there are."""
    world.caller = replace(world.caller, tenant_limits=Limits(stored_bytes=used(world) + room))


def running(world: World, session: Session, model: ModelServer) -> None:
    prompt = model.script([text("going"), gate("go")])
    turns.start(world.caller, session, content=prompt, turn_id="t1", dispatched=action())


def test_a_pending_message_counts_as_stored_bytes_until_it_is_removed(alice: World, model: ModelServer) -> None:
    session = made(alice)
    running(alice, session, model)
    before = used(alice)
    put(alice, session, "x" * 1000)
    assert used(alice) > before + 1000
    put(alice, session, "short")
    assert before < used(alice) < before + 100
    put(alice, session, "y" * 500, "s1", "steering")
    put(alice, session, "z", "s2", "steering")
    assert used(alice) < before + 200
    inbox.remove(alice.caller, session, "queued", "q1", dispatched=action())
    inbox.remove(alice.caller, session, "steering", "s2", dispatched=action())
    assert used(alice) == before


def test_a_message_over_the_byte_limit_is_refused_and_a_smaller_replacement_is_not(alice: World, model: ModelServer) -> None:
    session = made(alice)
    running(alice, session, model)
    put(alice, session, "x" * 1000)
    limited(alice, 100)
    before = used(alice)
    for message_id, kind in (("q2", "queued"), ("q1", "queued"), ("s1", "steering")):
        with pytest.raises(QuotaExceeded, match="stored-bytes"):
            put(alice, session, "y" * 1200, message_id, kind)
    assert (used(alice), PendingMessage.objects.count()) == (before, 1)
    alice.caller = replace(alice.caller, tenant_limits=Limits(stored_bytes=1))
    put(alice, session, "smaller")
    inbox.reorder(alice.caller, session, ["q1"], dispatched=action())
    inbox.remove(alice.caller, session, "queued", "q1", dispatched=action())


def test_a_queued_message_that_starts_a_turn_is_counted_once(
    alice: World, model: ModelServer, start_worker: Callable[[], Worker]
) -> None:
    session = made(alice)
    prompt = model.script([text("going"), gate("go")], [text("steered")])
    turns.start(alice.caller, session, content=prompt, turn_id="t1", dispatched=action())
    put(alice, session, "about!", "s1", "steering")
    put(alice, session, model.script([text("queued")]))
    start_worker()
    model.open_gate("go")
    wait_for(lambda: not PendingMessage.objects.exists(), "both taken")
    wait_for(lambda: Turn.objects.filter(session=session, state="done").count() == 2, "both turns")


def test_a_clients_tools_count_as_stored_bytes_until_it_is_removed(alice: World, settings: Settings) -> None:
    session = made(alice)
    before = used(alice)
    clients.join(alice.caller, session, Entry("me", "Me", [TOOL], [GUIDE]), dispatched=action())
    assert used(alice) > before + 500
    clients.change_tools(alice.caller, session, [TOOL, {**TOOL, "name": "other"}], dispatched=action(client="me"))
    session_changes.toggle_customization(alice.caller, session, "guide:1", enabled=False, dispatched=action())
    with_tools = used(alice)
    clients.leave(alice.caller, session, "me", dispatched=action(client="me"))
    # It may come back for its calls; what it brought to the session is gone.
    assert before < used(alice) < with_tools
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    assert connections.end_grace_periods() == 1
    assert used(alice) == before


def test_tools_over_the_byte_limit_are_refused_on_every_way(alice: World) -> None:
    session = made(alice)
    limited(alice, 200)
    before = used(alice)
    with pytest.raises(QuotaExceeded, match="stored-bytes"):
        clients.join(alice.caller, session, Entry("me", None, [TOOL]), dispatched=action())
    assert not SessionClient.objects.exists()
    clients.join(alice.caller, session, Entry("me", None, []), dispatched=action())
    with pytest.raises(QuotaExceeded, match="stored-bytes"):
        clients.change_tools(alice.caller, session, [TOOL], dispatched=action(client="me"))
    with pytest.raises(QuotaExceeded, match="stored-bytes"):
        make_session_of_client(alice.caller, uri="sailor:/two", agent="sailor", client=Entry("me", None, [TOOL]))
    assert used(alice) < before + 100
    assert Session.objects.count() == 1


def test_deleting_a_session_releases_the_bytes_of_its_clients(alice: World, model: ModelServer) -> None:
    empty = used(alice)
    session = made(alice, Entry("me", "Me", [TOOL], [GUIDE]))
    running(alice, session, model)
    put(alice, session, "x" * 1000)
    assert used(alice) > empty + 1500
    deleting.delete(alice.caller, session)
    assert used(alice) == empty
