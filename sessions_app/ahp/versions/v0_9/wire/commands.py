"""The commands of AHP 0.9 that this host serves: params and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.commands import (
    AuthenticateResult,
    Command,
    DispatchedAction,
    SessionConfigCompletionsResult,
)
from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, CompletionItemKind
from sessions_app.ahp.versions.v0_9.wire import files
from sessions_app.ahp.versions.v0_9.wire.config import SessionConfigSchema
from sessions_app.ahp.versions.v0_9.wire.envelopes import ActionEnvelope
from sessions_app.ahp.versions.v0_9.wire.messages import Message, MessageAttachment
from sessions_app.ahp.versions.v0_9.wire.state import SessionActiveClient, SessionSummary, Snapshot
from sessions_app.ahp.versions.v0_9.wire.terminals import TerminalClaim
from sessions_app.core.base.shapes import NonEmpty, Number, Shape


class AuthenticateParams(TypedDict):
    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]
    resource: str
    token: str
    scopes: NotRequired[list[str]]


class ClientCapabilities(TypedDict):
    mcpApps: NotRequired[dict[str, Any]]


class CompletionItem(TypedDict):
    insertText: str
    rangeStart: NotRequired[int]
    rangeEnd: NotRequired[int]
    attachment: MessageAttachment


class CompletionsParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]
    kind: CompletionItemKind
    text: str
    offset: int


class CompletionsResult(TypedDict):
    items: list[CompletionItem]


class CreateChatParams(TypedDict):
    """``source``: of a fork or a side chat, which this host refuses."""

    channel: URI
    _meta: NotRequired[dict[str, Any]]
    chat: URI
    initialMessage: NotRequired[Message]
    source: NotRequired[dict[str, Any]]
    workingDirectories: NotRequired[list[URI]]


class CreateSessionParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]
    provider: NotRequired[str]
    workingDirectories: NotRequired[list[URI]]
    config: NotRequired[dict[str, Any]]
    activeClient: NotRequired[SessionActiveClient]
    progressToken: NotRequired[str]


class CreateTerminalParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]
    claim: TerminalClaim
    name: NotRequired[str]
    cwd: NotRequired[URI]
    cols: NotRequired[int]
    rows: NotRequired[int]


class DispatchActionParams(TypedDict):
    channel: URI
    clientSeq: Number
    action: DispatchedAction


class DisposeChatParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]


class DisposeSessionParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]


class DisposeTerminalParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]


class FetchTurnsParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]
    cursor: NotRequired[str]


class FetchTurnsResult(TypedDict):
    pass


class Implementation(TypedDict):
    name: str
    version: NotRequired[str]
    title: NotRequired[str]


class InitializeParams(TypedDict):
    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]
    protocolVersions: list[str]
    clientId: NonEmpty
    clientInfo: NotRequired[Implementation]
    initialSubscriptions: NotRequired[list[URI]]
    locale: NotRequired[str]
    capabilities: NotRequired[ClientCapabilities]


class InitializeResult(TypedDict):
    protocolVersion: str
    serverSeq: int
    serverInfo: NotRequired[Implementation]
    snapshots: list[Snapshot]
    defaultDirectory: NotRequired[URI]
    completionTriggerCharacters: NotRequired[list[str]]
    terminalCommandPrefix: NotRequired[str]
    _meta: NotRequired[dict[str, Any]]


class PaginatedParams(TypedDict):
    limit: NotRequired[int]
    cursor: NotRequired[str]


class ListSessionsParams(PaginatedParams):
    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]


class ListSessionsResult(TypedDict):
    nextCursor: NotRequired[str]
    items: list[SessionSummary]


class PingParams(TypedDict):
    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]


class ReconnectParams(TypedDict):
    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]
    clientId: NonEmpty
    lastSeenServerSeq: int
    subscriptions: list[URI]


class ReconnectReplayResult(TypedDict):
    type: Literal["replay"]
    actions: list[ActionEnvelope]
    missing: list[URI]


class ReconnectSnapshotResult(TypedDict):
    type: Literal["snapshot"]
    snapshots: list[Snapshot]


ReconnectResult = ReconnectReplayResult | ReconnectSnapshotResult


class ResolveSessionConfigParams(TypedDict):
    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]
    provider: NotRequired[str]
    workingDirectory: NotRequired[URI]
    config: NotRequired[dict[str, Any]]


class ResolveSessionConfigResult(TypedDict):
    schema: SessionConfigSchema
    values: dict[str, Any]


class SessionConfigCompletionsParams(TypedDict):
    channel: NotRequired[Literal["ahp-root://"]]
    _meta: NotRequired[dict[str, Any]]
    provider: NotRequired[str]
    workingDirectory: NotRequired[URI]
    config: NotRequired[dict[str, Any]]
    property: str
    query: NotRequired[str]


class SubscribeView(TypedDict):
    turns: NotRequired[int]


class SubscriptionDeliveryOptions(TypedDict):
    maxLatencyMs: NotRequired[Number]


class SubscribeParams(TypedDict):
    channel: URI
    _meta: NotRequired[dict[str, Any]]
    delivery: NotRequired[SubscriptionDeliveryOptions]
    view: NotRequired[SubscribeView]


class SubscribeResult(TypedDict):
    snapshot: NotRequired[Snapshot]


class UnsubscribeParams(TypedDict):
    channel: URI


def _command(params: Any, result: Any) -> Command:
    return Command(Shape(params), Shape(result))


COMMANDS: Mapping[str, Command] = {
    "initialize": _command(InitializeParams, InitializeResult),
    "reconnect": _command(ReconnectParams, ReconnectResult),
    "ping": Command(Shape(PingParams), Shape(None), bare=True),
    "subscribe": _command(SubscribeParams, SubscribeResult),
    "listSessions": _command(ListSessionsParams, ListSessionsResult),
    "createSession": _command(CreateSessionParams, None),
    "disposeSession": _command(DisposeSessionParams, None),
    "createChat": _command(CreateChatParams, None),
    "disposeChat": _command(DisposeChatParams, None),
    "fetchTurns": _command(FetchTurnsParams, FetchTurnsResult),
    "completions": _command(CompletionsParams, CompletionsResult),
    "createTerminal": _command(CreateTerminalParams, None),
    "disposeTerminal": _command(DisposeTerminalParams, None),
    "authenticate": _command(AuthenticateParams, AuthenticateResult),
    "resolveSessionConfig": _command(ResolveSessionConfigParams, ResolveSessionConfigResult),
    "sessionConfigCompletions": _command(SessionConfigCompletionsParams, SessionConfigCompletionsResult),
    **files.COMMANDS,
}
"""The requests of clients that this host answers."""

NOTICES: Mapping[str, Shape[Any]] = {
    "dispatchAction": Shape(DispatchActionParams),
    "unsubscribe": Shape(UnsubscribeParams),
}
"""The notifications of clients, with the shapes of their params."""
