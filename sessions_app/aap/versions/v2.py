"""AAP version 2: its differences from version 3.

Sessions are the same; a tool's schema has another name, and one request creates a session and runs its first
turn. The conversions are pure. Only version 1 and a line in urls.py import this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from django.http.response import HttpResponseBase
from django.urls import path
from rest_framework.request import Request

from agents_app import exact_json
from agents_app.spec import IMAGE_KINDS, AgentSpec
from sessions_app.aap import headers, views
from sessions_app.aap.body import read_object
from sessions_app.aap.dialect import Dialect, Document, Path
from sessions_app.aap.openapi.description import EVENTS, JSON, Answer, Description, Example, Operation
from sessions_app.aap.versions import v3, v3_types
from sessions_app.core.base import content, log_context
from sessions_app.core.base.content import Faults, HistoryMessage, ToolDescription, ToolName, ToolParameters, ToolTitle
from sessions_app.core.base.errors import Fault, PositionPruned
from sessions_app.core.base.shapes import NOT_EMPTY, JSONText, Named, Rule, members
from sessions_app.core.records.stored_messages import Line
from sessions_app.core.sessions import creating
from sessions_app.core.sessions.creating import SessionRequest
from sessions_app.core.tenancy import agents, quotas
from sessions_app.core.turns import Overrides

# --- conversions ---


class V2(Dialect):
    version = 2

    def to_v3(self, body: Document) -> Document:
        return _with_tools(super().to_v3(body), "inputSchema", "parameters")

    def fault_path(self, path: Path) -> Path:
        path = super().fault_path(path)
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

    def description(self) -> Description:
        return _described(super().description())


def _with_tools(document: Document, old: str, new: str) -> Document:
    """Rename the schema of each of the document's ``tools``."""
    tools = document.get("tools")
    if not isinstance(tools, list):
        return document
    return {**document, "tools": [_renamed(tool, old, new) if isinstance(tool, dict) else tool for tool in tools]}


def _renamed(tool: Mapping[str, Any], old: str, new: str) -> Document:
    """Keeps the order of members (A11) and drops a member of the new name: its version does not know it."""
    return {new if name == old else name: value for name, value in tool.items() if name != new}


# --- creating a session with its first turn ---


class ToolSpecification(TypedDict):
    """A tool, as the model needs to know it to call it."""

    name: ToolName
    description: ToolDescription
    inputSchema: ToolParameters
    title: NotRequired[ToolTitle]


class Meta(v3_types.AgentList):
    version: Literal[2]


class SessionOpening(v3_types.Creation):
    messages: Annotated[
        list[HistoryMessage],
        "The initial history; the last one is a user message and the first turn.",
        NOT_EMPTY,
        Rule(minItems=1),
    ]
    stream: NotRequired[v3_types.Stream]


class SessionOpened(TypedDict):
    sessionId: v3_types.SessionId
    stopReason: v3_types.StopReason
    messages: v3_types.TurnMessages


class _SessionStart(TypedDict):
    sessionId: v3_types.SessionId


class SessionStartEvent(v3_types.BaseEvent):
    """The session exists. Before all other events."""

    event: Literal["session_start"]
    data: Annotated[str, JSONText(_SessionStart)]


OpeningEvent = Annotated[SessionStartEvent | v3_types.AnyEvent, Named("OpeningEvent"), v3_types.STREAM]

_SESSION_OPENING = content.shape(SessionOpening)


@dataclass(frozen=True, slots=True)
class Opening:
    """PUT /session, as the two requests of version 3 that it combines (A103)."""

    creation: SessionRequest
    turn: v3.TurnRequest


def opening(body: Mapping[str, Any], spec_of: Callable[[str], AgentSpec]) -> Opening:
    """``body`` has version 3's names. All messages but the last are the initial history, the last is the first turn."""
    faults = Faults()
    request: SessionOpening | None = faults.take(_SESSION_OPENING.read, body)
    spec = v3.agent(body, spec_of, faults)
    if request is not None:
        messages = request["messages"]
        last = len(messages) - 1
        images = IMAGE_KINDS if spec is None else spec.images
        faults.found += content.seed_faults(messages[:last], images)
        if messages[last]["role"] == "user":
            faults.found += content.image_faults(messages[last]["content"], images, ("messages", last, "content"))
        else:
            faults.found.append(
                Fault(("messages", last, "role"), "the last message must be a user message: it is the first turn")
            )
        if spec is not None:
            faults.take(v3.stream_mode, request.get("stream", "none"), spec)
    faults.settle(members(SessionOpening))
    assert request is not None, "settle has raised its faults"
    *seed, first = request["messages"]
    turn = v3.TurnRequest(request.get("stream", "none"), first["content"], [], Overrides())
    return Opening(v3.session_request(request, seed), turn)


def opened(session_id: str, stop_reason: str, lines: Sequence[Line]) -> Document:
    """The JSON form (A104)."""
    return {"sessionId": session_id, **v3.turn_answer(stop_reason, lines)}


def session_start(session_id: str) -> tuple[bytes, Document]:
    """The event before the stream's ``turn_start``."""
    return b"session_start", {"sessionId": session_id}


# --- endpoints ---


class Session(views.Endpoint):
    http_method_names = ["put"]
    scopes = {"PUT": "sessions:write"}

    def put(self, request: Request) -> HttpResponseBase:
        caller = views.caller_of(request)
        body = read_object(request, most=quotas.largest_request(caller))
        idempotency_key, deadline = headers.idempotency_key(request, body), headers.deadline(request)
        parsed = opening(self.to_v3(body), functools.partial(agents.for_creation, caller))
        assert parsed.turn.content is not None, "a user message"
        with views.stream_slot(caller) as slot:
            turn = creating.FirstTurn(parsed.turn.content, deadline)
            created = creating.create(caller, parsed.creation, first_turn=turn, idempotency_key=idempotency_key)
            assert created.session is not None
            assert created.accepted is not None, "a first turn was requested"
            session_id = created.public_id
            log_context.bind(session=session_id)
            answer = views.answer_to_turn(
                slot,
                created.session,
                parsed.turn.mode,
                created.accepted,
                document=functools.partial(opened, session_id),
                first=session_start(session_id),
            )
        if parsed.turn.mode == "none":
            answer.status_code = 201
            answer["Location"] = f"{request.path}/{session_id}"
        return answer


class OneSession(views.OneSession, views.Turns):
    """Turns are sent to the session's own address."""


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


# --- documentation ---

_TEXT = """\
Version 2 of the protocol, for applications that were written for it: the same sessions as version 3's, with one request that
creates a session and runs its first turn.

"""
_ADDRESSES = {
    ("GET", "/meta"): ("GET", "/meta"),
    ("GET", "/sessions"): ("GET", "/sessions"),
    ("GET", "/sessions/{session_id}"): ("GET", "/session/{session_id}"),
    ("DELETE", "/sessions/{session_id}"): ("DELETE", "/session/{session_id}"),
    ("GET", "/sessions/{session_id}/history"): ("GET", "/session/{session_id}/history"),
    ("POST", "/sessions/{session_id}/turns"): ("POST", "/session/{session_id}"),
    ("GET", "/sessions/{session_id}/events/stream"): ("GET", "/session/{session_id}/events/stream"),
    ("POST", "/sessions/{session_id}/cancel"): ("POST", "/session/{session_id}/cancel"),
}
"""Version 3's operations and their addresses here."""


def _described(newer: Description) -> Description:
    """Version 2, from version 3's description."""
    operations = {_ADDRESSES[address]: _in_v2(each) for address, each in newer.operations.items() if address in _ADDRESSES}
    opening = operations["PUT", "/session"] = _open_operation(newer)
    history = operations["GET", "/session/{session_id}/history"]
    full = history.example("full")
    # Here a session has had its first turn before any other.
    first = [*opening.example("plain").body["messages"], *opening.example("plain").answer["messages"]]
    answer = {"history": {"full": [*first, *full.answer["history"]["full"]]}}
    operations["GET", "/session/{session_id}/history"] = replace(history, examples=(replace(full, answer=answer),))
    replaced = {content.ToolSpecification: ToolSpecification, v3_types.Meta: Meta}
    return replace(newer, version=V2.version, text=_TEXT + newer.text, replaced=replaced, operations=operations)


def _in_v2(operation: Operation) -> Operation:
    return replace(operation, examples=tuple(_example_in_v2(each) for each in operation.examples))


def _example_in_v2(example: Example) -> Example:
    """An example with version 2's documents."""
    answer, body = example.answer, example.body
    if isinstance(answer, dict):
        for name, convert in (("agents", V2().meta), ("sessions", V2().sessions), ("agent", V2().session)):
            answer = convert(answer) if name in answer else answer
    return replace(example, answer=answer, body=body if body is None else _with_tools(body, "parameters", "inputSchema"))


def _open_operation(newer: Description) -> Operation:
    from sessions_app.aap.openapi import refusals
    from sessions_app.aap.versions import v3_description as described

    streams, documents = {EVENTS: OpeningEvent}, {JSON: SessionOpened}
    headers = newer.operations["POST", "/sessions/{session_id}/turns"].answers[200].headers
    return Operation(
        "openSession",
        "Sessions",
        "Create a session and run its first turn",
        "The session exists even if the agent fails: its id comes first in a stream, and with the answer otherwise.",
        {
            200: Answer("With another `stream` than `none`: the session's id, then the turn's events.", streams, headers),
            201: Answer("With `stream` `none`: the session's id and the result of the turn.", documents, ("Location", *headers)),
        },
        (
            described.BAD_HEADER,
            # Of the session of a repeated request, and of its events.
            described.SESSION_GONE,
            refusals.of(PositionPruned),
            described.KEY_REUSED,
            described.QUOTA,
        ),
        (described.IDEMPOTENCY_KEY, described.TURN_DEADLINE),
        SessionOpening,
        examples=_open_examples(newer),
    )


def _open_examples(newer: Description) -> tuple[Example, ...]:
    """Version 3's examples of creating a session, each with a first turn."""
    creation, turn = newer.operations["POST", "/sessions"], newer.operations["POST", "/sessions/{session_id}/turns"]
    plain, configured = creation.example("plain"), creation.example("configured")
    asked, streamed = turn.example("ask"), turn.example("streamed")
    start = f"id: 00000000000000297be4c1d05a93\nevent: session_start\ndata: {exact_json.dumps(plain.answer)}\n\n"
    messages = [*configured.body["messages"], *streamed.body["messages"]]
    return (
        replace(
            plain,
            answer={**plain.answer, **asked.answer},
            body={**plain.body, "messages": asked.body["messages"]},
        ),
        replace(
            configured,
            status=200,
            answer=start + streamed.answer,
            body=_with_tools({**configured.body, "messages": messages, "stream": "delta"}, "parameters", "inputSchema"),
        ),
    )
