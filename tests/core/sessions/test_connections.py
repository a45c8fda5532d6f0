"""Connections of clients: presence, grace periods, and what happens to a client's calls when it is gone."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.records import clients
from sessions_app.core.sessions import connections
from sessions_app.core.turns import Outcome
from tests.core.client_actions import (
    OPEN_FILE,
    ends,
    make,
    said,
    start,
    state_of,
    waiting_call,
)
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]


@pytest.mark.rule("R188")
@pytest.mark.rule("R190")
def test_a_clients_calls_fail_when_its_grace_period_is_over(
    alice: World, start_worker: Any, model: ModelServer, settings: Settings
) -> None:
    start_worker()
    for connection_id in ("w1", "w2"):
        connections.connected(alice.caller, "c1", connection_id, resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    script = model.script([call("open_file")], [text("ok")])
    start(alice, session, script)
    waiting_call(session, "open_file")
    ends(session, "t1", "waiting")
    connections.disconnected(alice.caller, "c1", "w1")
    assert clients.active(session.pk) is not None
    connections.disconnected(alice.caller, "c1", "w2")
    assert clients.active(session.pk) is None
    left = {"client": "c1", "cause": "gone", "shown_before": "c1", "shown_after": None}
    assert ("client_left", left) in events(session)
    connections.end_grace_periods()
    assert state_of(session, "t1") == "waiting"
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    ends(session, "t1")
    assert said(session)[-2] == ("tool", connections.GONE)
    assert "open_file" not in model.requests_of(script)[1].tool_names
    connections.connected(alice.caller, "c2", "w3", resumed=False)
    clients.join(alice.caller, session, clients.Entry("c2", None, []), dispatched=action(client="c2"))


@pytest.mark.rule("V182")
def test_a_client_beside_others_leaves_after_its_grace_period_and_its_calls_end_first(
    alice: World, start_worker: Any, model: ModelServer, settings: Settings
) -> None:
    start_worker()
    session = make(alice)
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    entry = clients.Entry("c1", None, [OPEN_FILE])
    clients.join(alice.caller, session, entry, beside_others=True, dispatched=action(client="c1"))
    script = model.script([call("open_file")], [text("ok")])
    start(alice, session, script)
    waiting_call(session, "open_file")
    ends(session, "t1", "waiting")

    def kinds() -> list[str]:
        return [kind for kind, _ in events(session)]

    # It comes back in time, whatever the sweep does meanwhile: nothing has happened.
    connections.disconnected(alice.caller, "c1", "w1")
    connections.leave_vanished()
    connections.end_grace_periods()
    assert clients.is_active(session.pk, "c1")
    connections.connected(alice.caller, "c1", "w2", resumed=True)
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    connections.end_grace_periods()
    assert clients.is_active(session.pk, "c1")
    assert "client_left" not in kinds()
    # It does not come back.
    connections.disconnected(alice.caller, "c1", "w2")
    connections.end_grace_periods()
    # The worker's sweep may be at it, and then this call has skipped the client.
    wait_for(lambda: not clients.is_active(session.pk, "c1"), "the end of the client's grace period")
    assert kinds().index("call_finished") < kinds().index("client_left")
    assert kinds().count("client_left") == 1
    ends(session, "t1")
    assert said(session)[-2] == ("tool", connections.GONE)
    assert "open_file" not in model.requests_of(script)[1].tool_names


@pytest.mark.rule("V182")
def test_a_client_whose_process_died_is_away_before_it_leaves(alice: World, settings: Settings) -> None:
    session = make(alice)
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    entry = clients.Entry("c1", None, [])
    clients.join(alice.caller, session, entry, beside_others=True, dispatched=action(client="c1"))
    settings.AGENTHOST_AHP_PRESENCE_SECONDS = 0.0
    assert connections.leave_vanished() == 1
    assert connections.leave_vanished() == 0
    connections.end_grace_periods()
    assert clients.is_active(session.pk, "c1")
    settings.AGENTHOST_AHP_GRACE_SECONDS = 0.0
    connections.end_grace_periods()
    assert not clients.is_active(session.pk, "c1")
    left = {"client": "c1", "cause": "gone", "shown_before": "c1", "shown_after": None}
    assert [payload for kind, payload in events(session) if kind == "client_left"] == [left]


@pytest.mark.rule("R189")
def test_a_client_that_returns_in_its_grace_period_completes_its_call(
    alice: World, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    life = connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, [OPEN_FILE]))
    start(alice, session, model.script([call("open_file")], [text("ok")]))
    row = waiting_call(session, "open_file")
    connections.disconnected(alice.caller, "c1", "w1")
    assert connections.connected(alice.caller, "c1", "w2", resumed=True) != ""
    assert life
    clients.join(alice.caller, session, clients.Entry("c1", None, [OPEN_FILE]), dispatched=action(connection="w2"))
    done = Outcome(success=True, message="Done", structured={"a": 1})
    turns.complete(alice.caller, session, "t1", row.call_id, done, dispatched=action(connection="w2"))
    ends(session, "t1")
    assert said(session)[-2] == ("tool", '{"a":1}')


def test_a_client_needs_an_id_that_can_be_stored(alice: World) -> None:
    for wrong in ("", "a\0b", "x" * 257):
        with pytest.raises(InvalidInput):
            connections.connected(alice.caller, wrong, "w1", resumed=False)


def test_a_resumed_connection_keeps_the_clients_life_and_a_new_handshake_starts_another(alice: World) -> None:
    first = connections.connected(alice.caller, "c1", "w1", resumed=False)
    assert connections.connected(alice.caller, "c1", "w2", resumed=True) == first
    second = connections.connected(alice.caller, "c1", "w3", resumed=False)
    assert second != first
    for connection_id in ("w1", "w2", "w3"):
        connections.disconnected(alice.caller, "c1", connection_id)
    assert connections.connected(alice.caller, "c1", "w4", resumed=True) not in (first, second)


def test_a_client_whose_process_died_has_left(alice: World) -> None:
    connections.connected(alice.caller, "c1", "w1", resumed=False)
    session = make(alice, client=clients.Entry("c1", None, []))
    assert connections.leave_vanished() == 0
    assert connections.renew(["w1", "w9"]) == {"w9"}
    from sessions_app.models import ClientPresence

    ClientPresence.objects.update(seen_at="2020-01-01T00:00:00Z")
    assert connections.leave_vanished() == 1
    assert clients.active(session.pk) is None
