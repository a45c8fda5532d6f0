"""A strict client of AAP version 3, written as an application would write one.

Clients of older versions derive from it and say what differs (client_v2.py, client_v1.py).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e import sse
from tests.e2e.sse import SseEvent, SseParser

TIMEOUT = httpx.Timeout(90.0, connect=30.0)


@dataclass
class Outcome:
    """A turn as received by the client, in any stream mode."""

    stop: str
    messages: list[dict[str, Any]]
    turn_id: str
    events: list[SseEvent] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the last assistant message."""
        for message in reversed(self.messages):
            if message["role"] == "assistant":
                content = message["content"]
                if isinstance(content, str):
                    return content
                return "".join(block["text"] for block in content if block["type"] == "text")
        return ""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every tool call, as (toolCallId, name, input)."""
        blocks = [block for message in self.messages if isinstance(message["content"], list) for block in message["content"]]
        return [block for block in blocks if block["type"] == "tool_use"]

    @property
    def results(self) -> dict[str, Any]:
        return {message["toolCallId"]: message["content"] for message in self.messages if message["role"] == "tool"}


class Stream:
    """An open stream; iterate it for events."""

    def __init__(self, response: httpx.Response, fields: Mapping[str, set[str]] = sse.FIELDS) -> None:
        self.response = response
        self.seen: list[SseEvent] = []
        self._parser = SseParser(fields)
        self._chunks = response.iter_raw()
        self._ready: list[SseEvent] = []

    def __iter__(self) -> Iterator[SseEvent]:
        while (event := self.next()) is not None:
            yield event

    def next(self) -> SseEvent | None:
        """The next event; None at the end of the stream."""
        while not self._ready:
            try:
                self._ready = self._parser.feed(next(self._chunks))
            except StopIteration:
                self._parser.end()
                return None
        event = self._ready.pop(0)
        self.seen.append(event)
        return event

    def until(self, name: str) -> SseEvent:
        """Read up to the next event with this name."""
        while (event := self.next()) is not None:
            if event.name == name:
                return event
        raise AssertionError(f"the stream ended before {name}: {[event.name for event in self.seen]}")

    def until_comment(self) -> None:
        """Read up to the next keep-alive comment; events before it are buffered."""
        before = self._parser.comments
        while self._parser.comments == before:
            self._ready += self._parser.feed(next(self._chunks))

    def rest(self) -> list[SseEvent]:
        return list(self)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def tool(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "toolCallId": call_id, "content": content}


def grant(call_id: str) -> dict[str, Any]:
    return {"role": "tool_permission", "toolCallId": call_id, "granted": True}


def deny(call_id: str, reason: str | None = None) -> dict[str, Any]:
    reasons = {} if reason is None else {"reason": reason}
    return {"role": "tool_permission", "toolCallId": call_id, "granted": False, **reasons}


def client_tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "description": f"runs {name}", "parameters": {"type": "object", "properties": properties}}


class Client:
    """A client with one key at one server."""

    base = "/aap/v3"
    one = "/sessions"
    """The path below which sessions are addressed."""
    turns = "/turns"
    """The path below a session to which turns are sent."""

    def __init__(self, origin: str, key: str | None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        self.key = key
        self.origin = origin
        # Without TLS: making its context takes 15 ms of CPU for each client.
        self.http = httpx.Client(base_url=origin + self.base, headers=headers, timeout=TIMEOUT, trust_env=False, verify=False)

    def close(self) -> None:
        self.http.close()

    def request(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Send a request. Responses of 400 or above must be problem documents (A6)."""
        if body is not None:
            options["json"] = body
        response = self.http.request(method, path, **options)
        if response.status_code >= 400:
            check_problem(response, has_body=method != "HEAD")
        return response

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.request("POST", path, body, **options)

    def ok(self, method: str, path: str, body: Any = None, *, status: int = 200, **options: Any) -> Any:
        response = self.request(method, path, body, **options)
        assert response.status_code == status, f"{method} {path}: {response.status_code} {response.text[:500]}"
        return response.json() if response.content else None

    def meta(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.ok("GET", "/meta")
        return answer

    def agent(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(agent for agent in self.meta()["agents"] if agent["name"] == name)
        return found

    def create(self, agent: str | dict[str, Any] = "echo", **body: Any) -> str:
        given = agent if isinstance(agent, dict) else {"name": agent}
        session_id: str = self.ok("POST", "/sessions", {"agent": given, **body}, status=201)["sessionId"]
        return session_id

    def at(self, session_id: str, below: str = "") -> str:
        return f"{self.one}/{session_id}{below}"

    def session(self, session_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.ok("GET", self.at(session_id))
        return answer

    def history(self, session_id: str, kind: str = "full") -> list[dict[str, Any]]:
        answer = self.ok("GET", self.at(session_id, "/history"), params={"type": kind})
        assert list(answer) == ["history"]
        assert list(answer["history"]) == [kind]
        messages: list[dict[str, Any]] = answer["history"][kind]
        return messages

    def turn(self, session_id: str, *messages: Any, stream: str | None = None, **body: Any) -> Outcome:
        """Run a turn to its end. A plain string is a user message."""
        request = turn_body(*messages, stream=stream, **body)
        response = self.request("POST", self.at(session_id, self.turns), request)
        assert response.status_code == 200, f"{response.status_code} {response.text[:500]}"
        return self._outcome(response, stream)

    def _outcome(self, response: httpx.Response, stream: str | None) -> Outcome:
        turn_id = response.headers["X-Turn-Id"]
        if stream in ("delta", "message"):
            events = sse.parse(response.content)
            sse.check_turn(events)
            allowed = {"text", "thinking"} if stream == "delta" else {"text_delta", "thinking_delta"}
            assert not allowed & {event.name for event in events}
            return Outcome(events[-1].data["stopReason"], sse.rebuilt(events), turn_id, events)
        assert response.headers["Content-Type"].split(";")[0] == "application/json"
        answer = response.json()
        assert set(answer) == {"stopReason", "messages"}
        return Outcome(answer["stopReason"], answer["messages"], turn_id)

    def refused(self, session_id: str, *messages: Any, status: int = 422, **body: Any) -> dict[str, Any]:
        """Send a turn that must be refused; returns the problem document."""
        response = self.request("POST", self.at(session_id, self.turns), turn_body(*messages, **body))
        assert response.status_code == status, f"{response.status_code} {response.text[:500]}"
        problem: dict[str, Any] = response.json()
        return problem

    @contextlib.contextmanager
    def stream(self, session_id: str, *messages: Any, mode: str = "delta", **body: Any) -> Iterator[Stream]:
        request = turn_body(*messages, stream=mode, **body)
        with self.http.stream("POST", self.at(session_id, self.turns), json=request) as response:
            yield self._opened(response)

    @contextlib.contextmanager
    def join(
        self, session_id: str, *, mode: str = "delta", after: str | None = None, by_header: bool = True, follow: bool = False
    ) -> Iterator[Stream]:
        params = {"stream": mode}
        headers = {}
        if after is not None and by_header:
            headers["Last-Event-ID"] = after
        elif after is not None:
            params["after"] = after
        if follow:
            params["follow"] = "true"
        path = self.at(session_id, "/events/stream")
        with self.http.stream("GET", path, params=params, headers=headers) as response:
            yield self._opened(response)

    def _opened(self, response: httpx.Response, fields: Mapping[str, set[str]] = sse.FIELDS) -> Stream:
        if response.status_code != 200:
            response.read()
            raise AssertionError(f"{response.status_code} {response.text[:500]}")
        assert response.headers["Content-Type"].split(";")[0] == "text/event-stream"
        return Stream(response, fields)

    def cancel(self, session_id: str, body: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = self.ok("POST", self.at(session_id, "/cancel"), body)
        return answer

    def all_sessions(self) -> list[dict[str, Any]]:
        """All pages of the list."""
        sessions, after = [], None
        while True:
            page = self.ok("GET", "/sessions", params={} if after is None else {"after": after})
            sessions += page["sessions"]
            if "next" not in page:
                return sessions
            after = page["next"]


def turn_body(*messages: Any, stream: str | None = None, **body: Any) -> dict[str, Any]:
    written = [user(message) if isinstance(message, str) else message for message in messages]
    return {"messages": written, **({} if stream is None else {"stream": stream}), **body}


def check_problem(response: httpx.Response, *, has_body: bool = True) -> None:
    assert response.status_code < 500 or response.status_code == 503, f"{response.status_code}: {response.text[:500]}"
    if not has_body:
        return
    assert response.headers["Content-Type"].split(";")[0] == "application/problem+json", response.text[:300]
    problem = json.loads(response.content)
    assert {"type", "title", "status", "detail"} <= set(problem), problem
    assert problem["status"] == response.status_code
    assert isinstance(problem["detail"], str)
    for error in problem.get("errors", []):
        assert set(error) == {"pointer", "detail"}
        assert error["pointer"] == "" or error["pointer"].startswith("/")
    assert "Traceback" not in response.text


def pointers(problem: dict[str, Any]) -> list[str]:
    return [error["pointer"] for error in problem.get("errors", [])]
