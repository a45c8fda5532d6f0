"""Fixtures of AAP's tests: two tenants with keys of several scopes, and agents whose turns do not run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client

from agents_app import registry
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec
from sessions_app.core.base import database
from sessions_app.core.tenancy import keys, tenants

WAIT = 90.0
HELLO = {"role": "user", "content": "hello"}
READ_LOG = {"name": "read_log", "title": "Log", "description": "", "parameters": {"type": "object", "zeta": 1, "alpha": 2}}

PILOT = AgentSpec(
    name="pilot",
    version="1.0.0",
    model="demo:guide",
    instructions="Be {tone}.",
    client_tools=True,
    images=("http", "data"),
    options=(
        OptionSpec("text", "tone", default="brief"),
        OptionSpec("select", "units", default="metric", options=("metric", "imperial")),
        OptionSpec("secret", "model_key", default="sk-of-the-operator"),
    ),
    tools=(
        ToolSpec("calculator", "builtin:calculator", description="Reckons", parameters={"type": "object", "properties": {}}),
        ToolSpec("current_time", "builtin:current_time", expose=False),
    ),
)
BARE = AgentSpec(name="bare", version="1.0.0", model="demo:guide", history=("full",), stream=("delta",))


@dataclass
class Person:
    """Somebody with a key (or none), as HTTP sees them."""

    key: str | None
    base: str = "/aap/v3"

    def __post_init__(self) -> None:
        self.client = Client(headers={} if self.key is None else {"Authorization": f"Bearer {self.key}"})

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        return self.client.generic(
            method, self.base + path, content, content_type=given.pop("Content-Type"), headers={**self.client_headers(), **given}
        )

    def client_headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}

    def get(self, path: str, **headers: str) -> Any:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.request("POST", path, body, **headers)

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path)

    def create(self, agent: str = "pilot", **more: Any) -> str:
        config = {"name": agent, **more.pop("agent_config", {})}
        response = self.post("/sessions", {"agent": config, **more})
        assert response.status_code == 201, response.content
        return str(response.json()["sessionId"])

    def session(self, session: str) -> dict[str, Any]:
        response = self.get(f"/sessions/{session}")
        assert response.status_code == 200
        found: dict[str, Any] = response.json()
        return found

    def history(self, session: str, kind: str = "full") -> list[dict[str, Any]]:
        response = self.get(f"/sessions/{session}/history?type={kind}")
        assert response.status_code == 200
        shown: dict[str, Any] = response.json()["history"]
        assert list(shown) == [kind]
        lines: list[dict[str, Any]] = shown[kind]
        return lines

    def turn(self, session: str, *messages: dict[str, Any], **more: Any) -> Any:
        return self.post(f"/sessions/{session}/turns", {"messages": list(messages) or [HELLO], "stream": "delta", **more})

    def cancel(self, session: str) -> dict[str, Any]:
        response = self.post(f"/sessions/{session}/cancel")
        assert response.status_code == 200
        receipt: dict[str, Any] = response.json()
        return receipt


def problem(response: Any, status: int) -> dict[str, Any]:
    """The refusal's document, checked for what every one of them has (A6)."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = json.loads(response.content)
    assert document["status"] == status
    assert document["instance"] == response["X-Request-Id"]
    for member in ("type", "title", "detail"):
        assert document[member]
    return document


def pointers(response: Any) -> set[str]:
    return {fault["pointer"] for fault in problem(response, 422)["errors"]}


def whole(response: HttpResponseBase) -> bytes:
    """A streaming answer's body, to its end, without its keep-alive comments."""
    assert isinstance(response, StreamingHttpResponse)

    async def read() -> bytes:
        async with asyncio.timeout(WAIT):
            return b"".join([chunk async for chunk in response]).replace(b": keep-alive\n", b"")

    return asyncio.run(read())


def events(body: bytes) -> list[tuple[str, Any]]:
    """Names and data of a stream's events."""
    return [(name, data) for _, name, data in positioned(body)]


def positioned(body: bytes) -> list[tuple[str, str, Any]]:
    """Positions, names and data of a stream's events."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        assert [line.partition(": ")[0] for line in lines] == ["id", "event", "data"]
        position, name, data = (line.partition(": ")[2] for line in lines)
        found.append((position, name, json.loads(data)))
    return found


def key_of(slug: str, scopes: Sequence[str] = ("*",), allowed: Sequence[str] | None = None) -> str:
    tenant, _ = tenants.create(slug)
    return keys.issue(tenant, name="test", scopes=scopes, expires_at=None, allowed_agents=allowed, actor="tests").raw


@pytest.fixture
def alice(transactional_db: None, settings: Any) -> Iterator[Person]:
    """Every scope, tenant alice."""
    settings.AGENTHOST_KEEPALIVE_SECONDS = 0.05
    with registry.use([PILOT, BARE]):
        yield Person(key_of("alice"))
    database.shut_down()


@pytest.fixture
def bob(alice: Person) -> Person:
    """Every scope, another tenant."""
    return Person(key_of("bob"))
