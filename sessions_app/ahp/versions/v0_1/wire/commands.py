"""The commands of AHP 0.1: what each method takes, what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.config import SessionConfigSchema, SessionConfigValueItem
from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, CompletionItemKind, ContentEncoding
from sessions_app.ahp.versions.v0_1.wire.envelopes import ActionEnvelope
from sessions_app.ahp.versions.v0_1.wire.messages import MessageAttachment
from sessions_app.ahp.versions.v0_1.wire.state import ModelSelection, SessionActiveClient, SessionSummary, Snapshot, Turn
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalClaim
from sessions_app.core.base.shapes import NonEmpty, Number, Shape

# --- the connection ---


class InitializeParams(TypedDict):
    protocolVersions: list[str]
    clientId: NonEmpty
    initialSubscriptions: NotRequired[list[URI]]
    locale: NotRequired[str]


class InitializeResult(TypedDict):
    protocolVersion: str
    serverSeq: int
    snapshots: list[Snapshot]
    defaultDirectory: NotRequired[URI]
    completionTriggerCharacters: NotRequired[list[str]]


class ReconnectParams(TypedDict):
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


class PingParams(TypedDict):
    pass


class SubscribeParams(TypedDict):
    resource: URI


class SubscribeResult(TypedDict):
    snapshot: Snapshot


class UnsubscribeParams(TypedDict):
    resource: URI


class DispatchedAction(TypedDict):
    """R80 asks no more of an action than this; R81 judges its members after other questions."""

    type: str


class DispatchActionParams(TypedDict):
    clientSeq: Number
    action: DispatchedAction


class AuthenticateParams(TypedDict):
    resource: str
    token: str


class AuthenticateResult(TypedDict):
    pass


# --- sessions ---


class SessionForkSource(TypedDict):
    session: URI
    turnId: str


class CreateSessionParams(TypedDict):
    session: URI
    provider: NotRequired[str]
    model: NotRequired[ModelSelection]
    workingDirectory: NotRequired[URI]
    fork: NotRequired[SessionForkSource]
    config: NotRequired[dict[str, Any]]
    activeClient: NotRequired[SessionActiveClient]


class DisposeSessionParams(TypedDict):
    session: URI


class ListSessionsParams(TypedDict):
    filter: NotRequired[dict[str, Any]]


class ListSessionsResult(TypedDict):
    items: list[SessionSummary]


class FetchTurnsParams(TypedDict):
    session: URI
    before: NotRequired[str]
    limit: NotRequired[int]


class FetchTurnsResult(TypedDict):
    turns: list[Turn]
    hasMore: bool


class ResolveSessionConfigParams(TypedDict):
    provider: NotRequired[str]
    workingDirectory: NotRequired[URI]
    config: NotRequired[dict[str, Any]]


class ResolveSessionConfigResult(TypedDict):
    schema: SessionConfigSchema
    values: dict[str, Any]


class SessionConfigCompletionsParams(ResolveSessionConfigParams):
    property: str
    query: NotRequired[str]


class SessionConfigCompletionsResult(TypedDict):
    items: list[SessionConfigValueItem]


class CompletionsParams(TypedDict):
    kind: CompletionItemKind
    session: URI
    text: str
    offset: int


class CompletionItem(TypedDict):
    insertText: str
    rangeStart: NotRequired[int]
    rangeEnd: NotRequired[int]
    attachment: MessageAttachment


class CompletionsResult(TypedDict):
    items: list[CompletionItem]


# --- terminals ---


class CreateTerminalParams(TypedDict):
    terminal: URI
    claim: TerminalClaim
    name: NotRequired[str]
    cwd: NotRequired[URI]
    cols: NotRequired[int]
    rows: NotRequired[int]


class DisposeTerminalParams(TypedDict):
    terminal: URI


# --- files ---


class ResourceReadParams(TypedDict):
    uri: str
    encoding: NotRequired[ContentEncoding]


class ResourceReadResult(TypedDict):
    data: str
    encoding: ContentEncoding
    contentType: NotRequired[str]


class ResourceWriteParams(TypedDict):
    uri: URI
    data: str
    encoding: ContentEncoding
    contentType: NotRequired[str]
    createOnly: NotRequired[bool]


class ResourceWriteResult(TypedDict):
    pass


class ResourceListParams(TypedDict):
    uri: URI


class DirectoryEntry(TypedDict):
    name: str
    type: Literal["file", "directory"]


class ResourceListResult(TypedDict):
    entries: list[DirectoryEntry]


class ResourceCopyParams(TypedDict):
    source: URI
    destination: URI
    failIfExists: NotRequired[bool]


class ResourceCopyResult(TypedDict):
    pass


class ResourceMoveParams(TypedDict):
    source: URI
    destination: URI
    failIfExists: NotRequired[bool]


class ResourceMoveResult(TypedDict):
    pass


class ResourceDeleteParams(TypedDict):
    uri: URI
    recursive: NotRequired[bool]


class ResourceDeleteResult(TypedDict):
    pass


class ResourceRequestParams(TypedDict):
    uri: URI
    read: NotRequired[bool]
    write: NotRequired[bool]


class ResourceRequestResult(TypedDict):
    pass


# --- all of them ---


@dataclass(frozen=True, slots=True)
class Command:
    """A request of a client: the shape of its params, the shape of the result. ``bare``: it may come without params."""

    params: Shape[Any]
    result: Shape[Any]
    bare: bool = False


def _command(params: Any, result: Any) -> Command:
    return Command(Shape(params), Shape(result))


COMMANDS: Mapping[str, Command] = {
    "initialize": _command(InitializeParams, InitializeResult),
    "reconnect": _command(ReconnectParams, ReconnectResult),
    "ping": Command(Shape(PingParams), Shape(None), bare=True),
    "subscribe": _command(SubscribeParams, SubscribeResult),
    "createSession": _command(CreateSessionParams, None),
    "disposeSession": _command(DisposeSessionParams, None),
    "listSessions": _command(ListSessionsParams, ListSessionsResult),
    "fetchTurns": _command(FetchTurnsParams, FetchTurnsResult),
    "createTerminal": _command(CreateTerminalParams, None),
    "disposeTerminal": _command(DisposeTerminalParams, None),
    "resourceRead": _command(ResourceReadParams, ResourceReadResult),
    "resourceWrite": _command(ResourceWriteParams, ResourceWriteResult),
    "resourceList": _command(ResourceListParams, ResourceListResult),
    "resourceCopy": _command(ResourceCopyParams, ResourceCopyResult),
    "resourceMove": _command(ResourceMoveParams, ResourceMoveResult),
    "resourceDelete": _command(ResourceDeleteParams, ResourceDeleteResult),
    "resourceRequest": _command(ResourceRequestParams, ResourceRequestResult),
    "authenticate": _command(AuthenticateParams, AuthenticateResult),
    "resolveSessionConfig": _command(ResolveSessionConfigParams, ResolveSessionConfigResult),
    "sessionConfigCompletions": _command(SessionConfigCompletionsParams, SessionConfigCompletionsResult),
    "completions": _command(CompletionsParams, CompletionsResult),
}
"""What a client may ask; ``resourceRequest`` the host may ask as well (R34)."""

NOTICES: Mapping[str, Shape[Any]] = {
    "dispatchAction": Shape(DispatchActionParams),
    "unsubscribe": Shape(UnsubscribeParams),
}
"""What a client may say without being answered, with the shape of its params."""
