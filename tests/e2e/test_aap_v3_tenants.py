"""AAP version 3: isolation of tenants at every endpoint."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.client import Client, client_tool, grant, tool, turn_body, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

ON_A_SESSION: list[tuple[str, str, Any]] = [
    ("GET", "/sessions/{id}", None),
    ("HEAD", "/sessions/{id}", None),
    ("DELETE", "/sessions/{id}", None),
    ("GET", "/sessions/{id}/history?type=full", None),
    ("GET", "/sessions/{id}/history?type=compacted", None),
    ("GET", "/sessions/{id}/history", None),
    ("POST", "/sessions/{id}/turns", turn_body("hi")),
    ("POST", "/sessions/{id}/turns", turn_body("hi", stream="delta")),
    ("POST", "/sessions/{id}/turns", turn_body(tool("wall1", "x"))),
    ("POST", "/sessions/{id}/turns", turn_body(grant("wall1"))),
    ("POST", "/sessions/{id}/turns", {"messages": "bad"}),
    ("POST", "/sessions/{id}/cancel", None),
    ("GET", "/sessions/{id}/events/stream?stream=delta", None),
    ("GET", "/sessions/{id}/events/stream?stream=delta&after={position}", None),
    ("GET", "/sessions/{id}/events/stream?stream=delta&follow=true", None),
    ("GET", "/sessions/{id}/events/stream?stream=nonsense", None),
]


def comparable(response: httpx.Response) -> tuple[int, Any, set[str]]:
    """An answer without what differs between any two requests."""
    body = response.json() if response.content else None
    if body is not None:
        body.pop("instance", None)
    return response.status_code, body, set(response.headers) - {"date", "x-request-id", "content-length", "server"}


@pytest.mark.rule("A3", "A31", "A51")
@pytest.mark.parametrize(("method", "path", "body"), ON_A_SESSION)
def test_a_session_of_another_tenant_responds_like_an_unknown_one(
    alice: Client, bob: Client, model: ModelServer, method: str, path: str, body: Any
) -> None:
    prompt = model.script([steps.text("t"), steps.call("mine", {}, id="wall1")])
    session = alice.create(tools=[client_tool("mine")])
    position = alice.turn(session, prompt, stream="delta").events[0].id
    before = alice.history(session)
    real = bob.request(method, path.format(id=session, position=position), body)
    never = bob.request(method, path.format(id="sess_" + "x" * (len(session) - 5), position=position), body)
    assert real.status_code == 404
    assert comparable(real) == comparable(never)
    assert alice.history(session) == before
    assert alice.session(session)["sessionId"] == session


@pytest.mark.rule("A3", "A33")
def test_lists_hold_only_the_tenants_own(server: Server) -> None:
    first, second = server.new_tenant(), server.new_tenant()
    mine, theirs = first.create(), second.create()
    assert [one["sessionId"] for one in first.all_sessions()] == [mine]
    assert [one["sessionId"] for one in second.all_sessions()] == [theirs]


@pytest.mark.rule("A3", "A120")
def test_a_position_of_another_tenant_is_unknown(alice: Client, bob: Client) -> None:
    mine, theirs = alice.create(), bob.create()
    for _ in range(3):
        position = bob.turn(theirs, "hi", stream="delta").events[0].id
    alice.turn(mine, "hi", stream="delta")
    response = alice.get(f"/sessions/{mine}/events/stream", params={"stream": "delta", "after": position})
    # Positions of two tenants may be equal. Then it is the tenant's own position, and shows none of the other's events.
    assert response.status_code in (200, 204, 400)


@pytest.mark.rule("A3", "A71", "A79")
def test_call_ids_mean_nothing_to_another_tenant(alice: Client, bob: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine", {}, id="shared-id")], [steps.text("ok")])
    mine, theirs = alice.create(tools=[client_tool("mine")]), bob.create(tools=[client_tool("mine")])
    alice.turn(mine, prompt)
    bob.refused(theirs, tool("shared-id", "x"))
    bob.turn(theirs, prompt)
    assert bob.turn(theirs, tool("shared-id", "b")).stop == "end_turn"
    assert alice.turn(mine, tool("shared-id", "a")).stop == "end_turn"
    assert alice.history(mine)[2] == tool("shared-id", "a")
    assert bob.history(theirs)[0] == user(prompt)


@pytest.mark.rule("A2")
def test_a_revoked_key_and_a_suspended_tenant_are_refused(server: Server) -> None:
    key = server.make_keys("closing/all/*/")[0]
    client = server.client(key)
    session = client.create()
    assert client.session(session)
    prefix = next(line for line in server.manage("list_keys", "closing").splitlines() if "all" in line).split()[0]
    server.manage("revoke_key", prefix)
    assert client.get(f"/sessions/{session}").status_code == 401
