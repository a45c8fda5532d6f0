"""A real MCP server on a real socket, whose tools have every kind of content and of trouble.

It is the official library's server. ``old`` makes it one of the time before 2026: a handshake, a session id, questions
in the middle of a call; else it speaks the protocol without sessions, where a question ends a call and is answered
with the next one.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from starlette.types import Message, Receive, Scope, Send

from ops.services import free_port

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BERTH = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Ship", "minLength": 2},
        "length": {"type": "integer", "minimum": 1, "maximum": 400, "description": "In metres"},
        "side": {"type": "string", "enum": ["port", "starboard"]},
        "tugs": {"type": "boolean", "default": False},
    },
    "required": ["name", "side"],
}

Called = Callable[["McpServer", ServerRequestContext[Any], types.CallToolRequestParams], Awaitable[Any]]


def _schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def _read(_server: McpServer, _context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
    return _text(f"what stands in {(params.arguments or {})['path']}")


async def _who(server: McpServer, context: ServerRequestContext[Any], _params: types.CallToolRequestParams) -> Any:
    return _text(server.identity(context))


async def _everything(_server: McpServer, _context: ServerRequestContext[Any], _params: types.CallToolRequestParams) -> Any:
    audio = base64.b64encode(b"RIFF").decode()
    return types.CallToolResult(
        content=[
            types.TextContent(text="a text"),
            types.ImageContent(data=PIXEL, mime_type="image/png"),
            types.AudioContent(data=audio, mime_type="audio/wav"),
            types.ResourceLink(name="chart", uri="chart://bay", description="The bay"),
            types.EmbeddedResource(resource=types.TextResourceContents(uri="note://1", text="a note", mime_type="text/plain")),
            types.EmbeddedResource(resource=types.BlobResourceContents(uri="pic://1", blob=PIXEL, mime_type="image/png")),
            types.EmbeddedResource(resource=types.BlobResourceContents(uri="zip://1", blob=audio, mime_type="application/zip")),
        ],
        structured_content={"depth": 7.5, "berths": ["A", "B"]},
    )


async def _structured(_server: McpServer, _context: ServerRequestContext[Any], _params: types.CallToolRequestParams) -> Any:
    return types.CallToolResult(content=[], structured_content={"z": 1, "a": [True, None]})


async def _large(_server: McpServer, _context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
    return _text("x" * int((params.arguments or {})["bytes"]))


async def _fail(server: McpServer, context: ServerRequestContext[Any], _params: types.CallToolRequestParams) -> Any:
    words = f"no such berth; you are {context.request.headers.get('authorization') if context.request else None}"
    return types.CallToolResult(content=[types.TextContent(text=words)], is_error=True)


async def _refuse(_server: McpServer, _context: ServerRequestContext[Any], _params: types.CallToolRequestParams) -> Any:
    raise MCPError(types.INVALID_PARAMS, "that is no berth")


async def _slow(server: McpServer, _context: ServerRequestContext[Any], _params: types.CallToolRequestParams) -> Any:
    server.slow_began.set()
    try:
        while not server.slow_may_end.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        server.slow_cancelled.set()
        raise
    return _text("at last")


async def _ask(_server: McpServer, context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
    asked = types.ElicitRequestFormParams(message="Which ship?", requested_schema=BERTH)
    if context.protocol_version < "2026":
        said = await context.session.elicit_form("Which ship?", BERTH, related_request_id=context.request_id)
    elif not params.input_responses:
        return types.InputRequiredResult(input_requests={"ship": types.ElicitRequest(params=asked)}, request_state="s")
    else:
        said = params.input_responses["ship"]  # type: ignore[assignment]
    return _text(f"{said.action}: {said.content}")


async def _ask_on(server: McpServer, context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
    """Asks until it gets no answer, as often as it likes in one call."""
    if context.protocol_version >= "2026":
        return await _ask(server, context, params)
    asked = 0
    while (await context.session.elicit_form("Again?", BERTH, related_request_id=context.request_id)).action == "accept":
        asked += 1
    return _text(f"asked {asked} times")


async def _ask_link(_server: McpServer, context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
    asked = types.ElicitRequestURLParams(message="Log in", url="https://login.test/", elicitation_id="e1")
    if context.protocol_version < "2026":
        said = await context.session.elicit_url("Log in", "https://login.test/", "e1")
    elif not params.input_responses:
        return types.InputRequiredResult(input_requests={"link": types.ElicitRequest(params=asked)}, request_state="s")
    else:
        said = params.input_responses["link"]  # type: ignore[assignment]
    return _text(said.action)


async def _trace(server: McpServer, context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
    """The context of the trace, as it was sent."""
    server.traces.append(((context.request.headers if context.request else {}).get("traceparent"), dict(params.meta or {})))
    return _text("seen")


async def _visits(server: McpServer, context: ServerRequestContext[Any], _params: types.CallToolRequestParams) -> Any:
    session = context.request.headers.get("mcp-session-id", "") if context.request else ""
    server.visits[session] = server.visits.get(session, 0) + 1
    return _text(str(server.visits[session]))


_ODD = {
    "type": "object",
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}}},
    "properties": {
        "at": {"$ref": "#/$defs/place"},
        "how": {"anyOf": [{"const": "fast"}, {"type": "null"}]},
        "any": True,
        "kind": {"type": "strange"},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
    },
    "allOf": [{"if": {"required": ["at"]}, "then": {"required": ["how"]}}],
}


async def _odd(_server: McpServer, _context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
    return _text(repr(params.arguments))


@dataclass(slots=True)
class _Offer:
    tool: types.Tool
    called: Called


def _offers() -> dict[str, _Offer]:
    reads = types.ToolAnnotations(read_only_hint=True, title="Reads a file")
    offers = [
        _Offer(
            types.Tool(
                name="read_file",
                description="Reads one file.",
                input_schema=_schema(path={"type": "string"}),
                annotations=reads,
            ),
            _read,
        ),
        _Offer(types.Tool(name="who_am_i", title="Who am I", input_schema=_schema()), _who),
        _Offer(types.Tool(name="everything", input_schema=_schema()), _everything),
        _Offer(types.Tool(name="structured", input_schema=_schema()), _structured),
        _Offer(types.Tool(name="large", input_schema=_schema(bytes={"type": "integer"})), _large),
        _Offer(types.Tool(name="fail", input_schema=_schema()), _fail),
        _Offer(types.Tool(name="refuse", input_schema=_schema()), _refuse),
        _Offer(types.Tool(name="slow", input_schema=_schema()), _slow),
        _Offer(types.Tool(name="ask", input_schema=_schema()), _ask),
        _Offer(types.Tool(name="ask_on", input_schema=_schema()), _ask_on),
        _Offer(types.Tool(name="ask_link", input_schema=_schema()), _ask_link),
        _Offer(types.Tool(name="visits", input_schema=_schema()), _visits),
        _Offer(types.Tool(name="odd.name/with spaces", input_schema=_ODD), _odd),
    ]
    return {offer.tool.name: offer for offer in offers}


@dataclass(frozen=True, slots=True)
class Request:
    """What came over the wire."""

    method: str
    authorization: str | None
    session: str | None
    headers: Mapping[str, str]


@dataclass
class McpServer:
    """Runs in a thread of its own; the fields may be changed while it runs."""

    old: bool = False
    both: bool = False
    """It knows the other age too, for whoever comes that way."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Who may come in, by the token after ``Bearer``; empty: everybody."""
    offers: dict[str, _Offer] = field(default_factory=_offers)
    page_size: int = 5

    def __post_init__(self) -> None:
        self.requests: list[Request] = []
        self.visits: dict[str, int] = {}
        self.traces: list[tuple[str | None, dict[str, Any]]] = []
        """The header traceparent and the ``_meta`` of each call of ``trace``."""
        self.slow_began, self.slow_may_end, self.slow_cancelled = threading.Event(), threading.Event(), threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.redirect_to: str | None = None
        self.answers: tuple[int, str, bytes] | None = None
        """Status, content type, body: what it says to everything, if not MCP."""
        self.port: int = free_port()

    def offer_many(self, count: int, size: int) -> None:
        """That many tools, each with a declaration of about that many bytes, beside what it offers already."""
        for number in range(count):
            name = f"bulky_{number}"
            self.offers[name] = _Offer(types.Tool(name=name, input_schema={**_schema(), "description": "x" * size}), _read)

    def offer_trace(self) -> None:
        """The tool ``trace``, which notes the trace of its calls."""
        self.offers["trace"] = _Offer(types.Tool(name="trace", input_schema=_schema()), _trace)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def sessions(self) -> set[str]:
        """The session ids that calls and lists came with."""
        return {request.session for request in self.requests if request.session}

    @property
    def listened(self) -> bool:
        """Somebody waits to be told of changes."""
        if self.old:
            return any(request.method == "GET" for request in self.requests)
        return bool(self._bus._listeners)

    def start(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._server = Server(
            "harbour",
            version="1",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        options = NotificationOptions(tools_changed=True)
        initialization = self._server.create_initialization_options
        self._server.create_initialization_options = (  # type: ignore[method-assign]
            lambda *_args, **_kwargs: initialization(options)
        )
        self._app = self._server.streamable_http_app()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        config = uvicorn.Config(
            self._serve, interface="asgi3", log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1
        )
        self._uvicorn = uvicorn.Server(config)
        self._listening: set[Any] = set()
        self._thread = threading.Thread(target=self._uvicorn.run, args=([listener],), daemon=True)
        self._thread.start()
        while not self._uvicorn.started:
            if not self._thread.is_alive():
                raise RuntimeError("the MCP server did not start")
            self._thread.join(0.01)

    def stop(self) -> None:
        """Gone, and with it all that it remembers."""
        self.may_answer.set()
        self.slow_may_end.set()
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def forget(self) -> None:
        """Know no session any more."""
        self._server.session_manager._server_instances.clear()

    def add(self, name: str) -> None:
        """One more tool, of which those are told who listen."""
        self.offers = {**self.offers, name: _Offer(types.Tool(name=name, input_schema=_schema()), _who)}
        asyncio.run_coroutine_threadsafe(self._tell(), self._loop).result(60)

    def identity(self, context: ServerRequestContext[Any]) -> str:
        token = (context.request.headers.get("authorization") or "").removeprefix("Bearer ") if context.request else ""
        return self.tokens.get(token, "nobody")

    async def _tell(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in list(self._listening):
            await session.send_tool_list_changed()

    async def _list(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._listening.add(context.session)
        start = int(params.cursor) if params and params.cursor else 0
        found = [offer.tool for offer in self.offers.values()]
        following = start + self.page_size
        return types.ListToolsResult(tools=found[start:following], next_cursor=str(following) if following < len(found) else None)

    async def _call(self, context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
        offer = self.offers.get(params.name)
        if offer is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await offer.called(self, context, params)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.requests.append(Request(scope["method"], headers.get("authorization"), headers.get("mcp-session-id"), headers))
        while not self.may_answer.is_set():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if self.answers is not None:
            await _say(send, self.answers[0], self.answers[2], {"content-type": self.answers[1]})
        elif self.redirect_to is not None:
            await _say(send, 307, b"", {"location": self.redirect_to})
        elif self.tokens and token not in self.tokens:
            await _say(send, 401, b"who are you?", {"www-authenticate": "Bearer"})
        elif scope["path"] == "/mcp" and not self.both and self.old == headers.get("mcp-protocol-version", "").startswith("2026"):
            await _say(send, 400, b"no such version", {})
        else:
            await self._app(scope, receive, send)


async def _say(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(**fields: Any) -> Iterator[McpServer]:
    server = McpServer(**fields)
    server.start()
    try:
        yield server
    finally:
        server.stop()
