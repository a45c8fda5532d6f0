"""The JSON of AAP version 3: requests, answers and events, declared once (core/base/shapes.py).

Requests are read with these declarations (v3.py) and the documentation is made from them (openapi/). A docstring is the
description of an object, a string in ``Annotated`` that of a member. Messages and tools are in core/base/content.py. A type
whose name begins with ``_`` has no name in the documentation.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from agents_app.spec import OptionType, StreamMode
from sessions_app.core.base.content import (
    AssistantMessage,
    CallId,
    ClientTools,
    HistoryMessage,
    Options,
    Text,
    ToolBlocks,
    ToolMessage,
    ToolReferences,
    ToolSpecification,
    UserMessage,
    shape,
)
from sessions_app.core.base.shapes import NOT_EMPTY, As, JSONText, Named, NonEmpty, Rule

NotBlank = Annotated[str, Rule(minLength=1)]


class _Nothing(TypedDict):
    pass


Nothing = Annotated[_Nothing, Rule(maxProperties=0)]
"""An object without members."""

# --- agents ---


class _HistoryKinds(TypedDict):
    compacted: NotRequired[Nothing]
    full: NotRequired[Nothing]


class _StreamModes(TypedDict):
    delta: NotRequired[Nothing]
    message: NotRequired[Nothing]
    none: NotRequired[Nothing]


class _ApplicationKinds(TypedDict):
    tools: NotRequired[Nothing]


class _ImageKinds(TypedDict):
    http: NotRequired[Nothing]
    data: NotRequired[Nothing]


class Capabilities(TypedDict):
    """Requests for anything that is not named here are refused."""

    history: NotRequired[Annotated[_HistoryKinds, "Which histories can be read."]]
    stream: NotRequired[Annotated[_StreamModes, "Which forms a turn's answer can have."]]
    application: NotRequired[Annotated[_ApplicationKinds, "Whether clients may bring tools of their own."]]
    image: NotRequired[Annotated[_ImageKinds, "Which addresses images may have."]]


class AgentOption(TypedDict):
    type: Annotated[OptionType, "A secret is stored encrypted and never shown again."]
    name: str
    default: Annotated[str, "Always empty for a secret."]
    title: NotRequired[str]
    description: NotRequired[str]
    options: NotRequired[Annotated[list[str], "The values of a select."]]


class Agent(TypedDict):
    name: Annotated[str, "Unique on this server."]
    version: Annotated[str, "A semantic version."]
    title: NotRequired[str]
    description: NotRequired[str]
    tools: NotRequired[Annotated[list[ToolSpecification], "The server's tools that a session may enable."]]
    options: NotRequired[list[AgentOption]]
    capabilities: NotRequired[Capabilities]


class AgentList(TypedDict):
    agents: Annotated[list[Agent], "Those that this key may use, in the operator's order."]


class Meta(AgentList):
    version: Literal[3]


# --- sessions ---

SessionId = Annotated[str, Named("SessionId"), "Opaque.", Rule(pattern="^[A-Za-z0-9_-]{1,128}$")]


class _NewAgent(TypedDict):
    name: NonEmpty
    tools: NotRequired[ToolReferences]
    options: NotRequired[Options]


class Creation(TypedDict):
    agent: _NewAgent
    tools: NotRequired[ClientTools]


class NewSession(Creation):
    messages: NotRequired[Annotated[list[HistoryMessage], "The initial history."]]


class SessionCreated(TypedDict):
    sessionId: SessionId


class _SessionAgent(TypedDict):
    name: str
    tools: NotRequired[ToolReferences]
    options: NotRequired[Annotated[Options, "The values the client has set; a secret reads `***`."]]


class Session(TypedDict):
    """The settings of a session; settings that were never made are left out."""

    sessionId: SessionId
    agent: _SessionAgent
    tools: NotRequired[ClientTools]


NextPage = Annotated[str, "Send it as `after` to get the next page. The last page has none."]


class SessionList(TypedDict):
    sessions: Annotated[list[Session], "Newest first, fifty a page.", Rule(maxItems=50)]
    next: NotRequired[NextPage]


class _Full(TypedDict):
    full: list[HistoryMessage]


class _Compacted(TypedDict):
    compacted: list[HistoryMessage]


class CompactedHistory(TypedDict):
    """The history that was asked for as `compacted`."""

    history: Annotated[_Compacted, Rule(additionalProperties=False)]


class FullHistory(TypedDict):
    """The history that was asked for as `full`."""

    history: Annotated[_Full, Rule(additionalProperties=False)]


History = Annotated[CompactedHistory | FullHistory, Named("History")]


# --- turns ---


class ToolPermission(TypedDict):
    """Whether a tool of the server may run. Sent by clients, never stored as a message."""

    role: Literal["tool_permission"]
    toolCallId: CallId
    granted: bool
    reason: NotRequired[Annotated[str, "Shown to the model when the call is denied."]]


def _turn_fault(messages: list[Any]) -> str | None:
    """A49."""
    if len(messages) > 1 and any(message["role"] == "user" for message in messages):
        return "must be one user message, or tool and tool_permission messages alone"
    return None


UserTurn = Annotated[list[UserMessage], Named("UserTurn"), "The user's message.", Rule(minItems=1, maxItems=1)]
CallAnswers = Annotated[list[ToolMessage | ToolPermission], Named("CallAnswers"), "Answers to open calls.", Rule(minItems=1)]


Stream = Annotated[
    StreamMode,
    "The form of the answer: `delta` sends text while it is generated, `message` piece by piece when complete, "
    "`none`, the default, answers with one JSON object at the end. An agent may offer fewer.",
]


class _TurnAgent(TypedDict):
    """Left out: as before. What is set here applies from this turn on."""

    name: NotRequired[Annotated[str, "The session's own agent, which cannot be changed."]]
    tools: NotRequired[ToolReferences]
    options: NotRequired[Annotated[Options, "Merged into those already set."]]


class TurnRequest(TypedDict):
    messages: Annotated[
        list[UserMessage | ToolMessage | ToolPermission],
        "One user message, or answers to the calls that are open: results and permissions, in any order.",
        As(UserTurn | CallAnswers),
        NOT_EMPTY,
        Rule(_turn_fault),
    ]
    stream: NotRequired[Stream]
    agent: NotRequired[_TurnAgent]
    tools: NotRequired[Annotated[ClientTools, "Replaces the client's tools. Left out: as before."]]


StopReason = Annotated[
    Literal["end_turn", "tool_use", "max_tokens", "refusal", "error"],
    Named("StopReason"),
    "`end_turn`: the agent is done; `tool_use`: at least one call waits for the client; `max_tokens`: a token limit was "
    "reached; `refusal`: the model declined; `error`: something failed after the turn had begun.",
]
AgentMessage = Annotated[AssistantMessage | ToolMessage, Named("AgentMessage")]


TurnMessages = Annotated[list[AgentMessage], "The messages that the server made in this turn, in order."]


class TurnAnswer(TypedDict):
    stopReason: StopReason
    messages: TurnMessages


class CancelRequest(TypedDict):
    reason: NotRequired[Annotated[str, "For the record."]]


class TurnCancelled(TypedDict):
    cancelled: Literal[True]
    providerClosed: Annotated[bool, "Whether the call to the model's provider is known to be closed."]


class NothingCancelled(TypedDict):
    """Nothing was running or waiting."""

    cancelled: Literal[False]


Cancelled = Annotated[TurnCancelled | NothingCancelled, Named("Cancelled")]

# --- events ---


class _Delta(TypedDict):
    delta: NotBlank


class _Text(TypedDict):
    text: NotBlank


class _Thinking(TypedDict):
    thinking: NotBlank


class _Call(TypedDict):
    toolCallId: CallId
    name: str
    input: dict[str, Any]


class _Result(TypedDict):
    toolCallId: CallId
    content: Text | ToolBlocks


class _Stop(TypedDict):
    stopReason: StopReason


class BaseEvent(TypedDict):
    """One event as a parser of server-sent events returns it; ``data`` is JSON in a string."""

    id: Annotated[str, "The position in the session: send it as `Last-Event-ID` to continue after it."]


class TurnStartEvent(BaseEvent):
    """The turn has begun. Always the first."""

    event: Literal["turn_start"]
    data: Annotated[str, JSONText(Nothing)]


class TextDeltaEvent(BaseEvent):
    """The next piece of the answer. In mode `delta` alone."""

    event: Literal["text_delta"]
    data: Annotated[str, JSONText(_Delta)]


class ThinkingDeltaEvent(BaseEvent):
    """The next piece of the model's thinking. In mode `delta` alone."""

    event: Literal["thinking_delta"]
    data: Annotated[str, JSONText(_Delta)]


class TextEvent(BaseEvent):
    """The answer of one model message, complete. In mode `message` alone."""

    event: Literal["text"]
    data: Annotated[str, JSONText(_Text)]


class ThinkingEvent(BaseEvent):
    """The thinking of one model message, complete. In mode `message` alone."""

    event: Literal["thinking"]
    data: Annotated[str, JSONText(_Thinking)]


class ToolCallEvent(BaseEvent):
    """The agent calls a tool."""

    event: Literal["tool_call"]
    data: Annotated[str, JSONText(_Call)]


class ToolResultEvent(BaseEvent):
    """The result of a tool of the server."""

    event: Literal["tool_result"]
    data: Annotated[str, JSONText(_Result)]


class TurnStopEvent(BaseEvent):
    """The turn is over. Always the last."""

    event: Literal["turn_stop"]
    data: Annotated[str, JSONText(_Stop)]


STREAM = (
    "A stream of server-sent events is a sequence of these, each written as one `id`, one `event` and one `data` line; "
    "`data` is a JSON object. Comment lines keep a quiet connection open."
)
AnyEvent = (
    TurnStartEvent
    | TextDeltaEvent
    | ThinkingDeltaEvent
    | TextEvent
    | ThinkingEvent
    | ToolCallEvent
    | ToolResultEvent
    | TurnStopEvent
)
Event = Annotated[AnyEvent, Named("Event"), STREAM]

NEW_SESSION = shape(NewSession)
TURN_REQUEST = shape(TurnRequest)
CANCEL_REQUEST = shape(CancelRequest)
