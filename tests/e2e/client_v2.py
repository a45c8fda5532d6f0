"""A client of AAP version 2, strict about what it gets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx

from tests.e2e import sse
from tests.e2e.client import Client, Outcome, Stream, turn_body
from tests.e2e.sse import SseEvent

OPENING_FIELDS = {**sse.FIELDS, "session_start": {"sessionId"}}


def old_tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "description": f"runs {name}", "inputSchema": {"type": "object", "properties": properties}}


def opening_body(agent: str | dict[str, Any], *messages: Any, stream: str | None = None, **body: Any) -> dict[str, Any]:
    given = agent if isinstance(agent, dict) else {"name": agent}
    return {"agent": given, **turn_body(*messages, stream=stream, **body)}


class ClientV2(Client):
    """One key on one server. ``create`` runs a first turn, because there is no other way to make a session."""

    base = "/aap/v2"
    one = "/session"
    turns = ""

    def open(
        self,
        agent: str | dict[str, Any],
        *messages: Any,
        stream: str | None = None,
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> tuple[str, Outcome]:
        """A session made and its first turn brought to its end."""
        response = self.request("PUT", "/session", opening_body(agent, *messages, stream=stream, **body), headers=headers)
        return self.opened(response, stream)

    def opened(self, response: httpx.Response, stream: str | None = None) -> tuple[str, Outcome]:
        """Check a complete response to a creation; returns the session id and the outcome."""
        if stream in ("delta", "message"):
            assert response.status_code == 200, f"{response.status_code} {response.text[:500]}"
            events = sse.parse(response.content, OPENING_FIELDS)
            start = _start(events)
            sse.check_turn(events[1:])
            turn = events[1:]
            outcome = Outcome(turn[-1].data["stopReason"], sse.rebuilt(turn), response.headers["X-Turn-Id"], turn)
            return start, outcome
        assert response.status_code == 201, f"{response.status_code} {response.text[:500]}"
        assert response.headers["Content-Type"].split(";")[0] == "application/json"
        answer = response.json()
        assert list(answer) == ["sessionId", "stopReason", "messages"]
        session_id = answer["sessionId"]
        assert response.headers["Location"] == f"{self.base}/session/{session_id}"
        return session_id, Outcome(answer["stopReason"], answer["messages"], response.headers["X-Turn-Id"])

    @contextlib.contextmanager
    def open_stream(
        self, agent: str | dict[str, Any], *messages: Any, mode: str = "delta", headers: dict[str, str] | None = None, **body: Any
    ) -> Iterator[tuple[str, Stream]]:
        """A session made, its first turn still running."""
        request = opening_body(agent, *messages, stream=mode, **body)
        with self.http.stream("PUT", "/session", json=request, headers=headers) as response:
            stream = self._opened(response, OPENING_FIELDS)
            first = stream.next()
            assert first is not None
            yield _start([first]), stream

    def create(self, agent: str | dict[str, Any] = "echo", **body: Any) -> str:
        return self.open(agent, *body.pop("messages", ["hello"]), **body)[0]

    def refused_opening(self, body: dict[str, Any], status: int = 422) -> dict[str, Any]:
        response = self.request("PUT", "/session", body)
        assert response.status_code == status, f"{response.status_code} {response.text[:500]}"
        problem: dict[str, Any] = response.json()
        return problem


def _start(events: list[SseEvent]) -> str:
    """The id that the first event gives."""
    assert events[0].name == "session_start", [event.name for event in events]
    assert [event.name for event in events].count("session_start") == 1
    session_id = events[0].data["sessionId"]
    assert isinstance(session_id, str)
    return session_id
