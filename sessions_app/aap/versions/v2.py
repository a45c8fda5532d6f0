"""AAP version 2: what it says otherwise than version 3, and where.

Sessions are the same; a tool's schema has another name, and one request makes a session and runs its first
turn. The conversions are pure. Nothing but version 1 and a line in urls.py knows this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import path
from rest_framework.request import Request

from agents_app.spec import AgentSpec
from sessions_app.aap import headers, views
from sessions_app.aap.body import read_object
from sessions_app.aap.dialect import Dialect, Document, Path
from sessions_app.aap.versions import v3
from sessions_app.core import agents, logcontext, openings, quotas
from sessions_app.core.content import Faults
from sessions_app.core.errors import Fault, InvalidInput
from sessions_app.core.history import Line

# --- other words ---


class V2(Dialect):
    version = 2

    def lifted(self, body: Document) -> Document:
        return _with_tools(super().lifted(body), "inputSchema", "parameters")

    def place(self, path: Path) -> Path:
        path = super().place(path)
        if len(path) > 2 and (path[0], path[2]) == ("tools", "parameters"):
            return (*path[:2], "inputSchema", *path[3:])
        return path

    def meta(self, document: Document) -> Document:
        document = super().meta(document)
        return {**document, "agents": [_with_tools(agent, "parameters", "inputSchema") for agent in document["agents"]]}

    def session(self, document: Document) -> Document:
        return _with_tools(super().session(document), "parameters", "inputSchema")

    def sessions(self, document: Document) -> Document:
        document = super().sessions(document)
        return {**document, "sessions": [self.session(each) for each in document["sessions"]]}


def _with_tools(document: Document, old: str, new: str) -> Document:
    """The document with the schema of each of its ``tools`` under another name."""
    tools = document.get("tools")
    if not isinstance(tools, list):
        return document
    return {**document, "tools": [_renamed(tool, old, new) if isinstance(tool, dict) else tool for tool in tools]}


def _renamed(tool: Mapping[str, Any], old: str, new: str) -> Document:
    """In its old place (A11). What had the new name before meant nothing in the version that it came from."""
    return {new if name == old else name: value for name, value in tool.items() if name != new}


# --- a creation that runs ---


@dataclass(frozen=True, slots=True)
class Opening:
    """PUT /session: the two requests of version 3 that it is (A103)."""

    creation: v3.Creation
    turn: v3.TurnRequest


def opening(body: Mapping[str, Any], spec_of: Callable[[str], AgentSpec]) -> Opening:
    """``body`` is in version 3's words. All messages but the last are the seed, the last is the first turn."""
    faults = Faults()
    messages = _messages(body.get("messages"), faults)
    found: list[AgentSpec] = []

    def noted(name: str) -> AgentSpec:
        found.append(spec_of(name))
        return found[-1]

    creation = faults.take(v3.creation, {**body, "messages": messages[:-1]}, noted)
    turn = faults.take(_first_turn, body, messages, found[0]) if messages and found else None
    faults.settle()
    assert creation is not None, "a creation that was refused has settled"
    assert turn is not None, "and so has a turn"
    return Opening(creation, turn)


def _messages(value: Any, faults: Faults) -> list[Any]:
    """What may be split; nothing, and a fault, if it may not."""
    place: Path = ("messages",)
    if not isinstance(value, list):
        faults.add(place, "is required" if value is None else "must be a list")
        return []
    if not value:
        faults.add(place, "must not be empty")
        return []
    if isinstance(value[-1], dict) and value[-1].get("role") != "user":
        faults.add((*place, len(value) - 1, "role"), "must be user: the last message is the first turn")
        return []
    return value


def _first_turn(body: Mapping[str, Any], messages: Sequence[Any], spec: AgentSpec) -> v3.TurnRequest:
    try:
        return v3.turn({"messages": messages[-1:], "stream": body.get("stream")}, spec.name, spec)
    except InvalidInput as error:
        # The turn's only message is the last one here.
        last = len(messages) - 1
        raise InvalidInput(
            [
                Fault(("messages", last, *fault.path[2:]) if fault.path[:2] == ("messages", 0) else fault.path, fault.detail)
                for fault in error.faults
            ]
        ) from error


def opened(session_id: str, stop_reason: str, lines: Sequence[Line]) -> Document:
    """The JSON form (A104)."""
    return {"sessionId": session_id, **v3.turn_answer(stop_reason, lines)}


def session_start(session_id: str) -> tuple[bytes, Document]:
    """The event before the stream's ``turn_start``."""
    return b"session_start", {"sessionId": session_id}


# --- addresses ---


class Session(views.Endpoint):
    http_method_names = ["put"]
    scopes = {"PUT": "sessions:write"}

    def put(self, request: Request) -> HttpResponseBase:
        caller = views.caller_of(request)
        body = read_object(request, most=quotas.largest_request(caller))
        once, deadline = headers.once(request, body), headers.deadline(request)
        wanted = opening(self.lifted(body), functools.partial(agents.for_creation, caller))
        assert wanted.turn.content is not None, "a user message"
        made = openings.open_session(
            caller,
            agent=wanted.creation.agent,
            tool_refs=wanted.creation.tool_refs,
            options=wanted.creation.options,
            client_tools=wanted.creation.client_tools,
            seed=wanted.creation.seed,
            content=wanted.turn.content,
            once=once,
            deadline=deadline,
        )
        session_id = made.session.public_id
        logcontext.bind(session=session_id)
        answer = views.answer_to_turn(
            caller,
            made.session,
            wanted.turn.mode,
            made.accepted,
            document=functools.partial(opened, session_id),
            first=session_start(session_id),
        )
        if wanted.turn.mode == "none":
            answer.status_code = 201
            answer["Location"] = f"{request.path}/{session_id}"
        return answer


class OneSession(views.OneSession, views.Turns):
    """A turn is sent to the session itself."""


_DIALECT = V2()

urlpatterns = [
    path("meta", views.Meta.as_view(dialect=_DIALECT)),
    path("sessions", views.SessionList.as_view(dialect=_DIALECT)),
    path("session", Session.as_view(dialect=_DIALECT)),
    path("session/<str:session_id>", OneSession.as_view(dialect=_DIALECT)),
    path("session/<str:session_id>/history", views.History.as_view(dialect=_DIALECT)),
    path("session/<str:session_id>/events/stream", views.EventStream.as_view(dialect=_DIALECT)),
    path("session/<str:session_id>/cancel", views.Cancel.as_view(dialect=_DIALECT)),
]
