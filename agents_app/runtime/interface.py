"""The seams of the agent loop: what it asks of a model provider, of tools, and of its host.

The loop (loop.py) stands between them and knows neither HTTP nor rows. A provider speaks one
vendor's wire format; a tool set runs tools; the host stores what happened (sessions_app.core.worker.runner).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agents_app.runtime.messages import Content, Message, ToolSchema

# --- providers -----------------------------------------------------------------------------------

FinishReason = Literal["stop", "tool_calls", "max_tokens", "refusal"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of the call number ``index`` of this message. ``name`` comes with the first piece."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Data that the provider wants back unchanged with this message (a signature, a reasoning item)."""

    part: str
    data: Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call, as far as the provider reported them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    reason: FinishReason


ProviderEvent = TextDelta | ThinkingDelta | ToolCallDelta | Opaque | Usage | Finish


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds, steps and bytes; an agent can set each of them."""

    connect: float = 10.0
    first_output: float = 120.0
    between_outputs: float = 120.0
    run: float = 3600.0
    max_steps: int = 64
    tool_seconds: float = 60.0
    tool_output_bytes: int = 1_000_000
    retries: int = 2


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call, complete: a provider reads nothing else.

    ``full_model`` has the provider's name in front; a message's opaque parts are sent only to the model of that name
    (opaque.py), to none if it is empty. ``fair_key``: the owner whose share of threads builds a long request.
    """

    model: str
    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits)
    full_model: str = ""
    fair_key: Hashable = None
    at_once: Callable[[Sequence[ProviderEvent]], bool] | None = None
    """After the first list, a provider may call this with a list in place of yielding it. If it returns True, the list is done;
    False: nothing was taken. It saves waking the run's task for each delta."""


class Provider(Protocol):
    """A client for one vendor's wire format.

    Duties: yield events that arrived together as one list, without waiting for more; close the connection
    when the iterator is closed or the task is cancelled, before ``aclose`` returns; retry only before
    the first output (429, 5xx, connection errors; honouring Retry-After); raise ``ProviderError``
    (errors.py) and nothing else for any failure of the vendor. The loop, not the provider, replaces U+0000
    and lone surrogates by U+FFFD.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]: ...


# --- tools ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """The outcome of a form: accepted with values by question, declined, or closed without an answer."""

    response: Literal["accept", "decline", "cancel"]
    values: Mapping[str, Any] = field(default_factory=dict)


Ask = Callable[[Mapping[str, Any]], Awaitable[FormAnswer]]
"""Shows a form (message, questions) to the session's clients and waits; declined if no client is connected."""


class ToolSet(Protocol):
    """The server's own tools that are active in one run."""

    @property
    def schemas(self) -> Sequence[ToolSchema]: ...

    def has(self, name: str) -> bool: ...

    def idempotent(self, name: str) -> bool: ...

    async def preview(self, name: str, arguments: Mapping[str, Any]) -> Sequence[FileEdit]:
        """The changes of files that a call would make now; empty if its tool shows none. Never raises, and changes no file."""
        ...

    async def run(self, name: str, arguments: Mapping[str, Any], ask: Ask | None = None) -> Content:
        """The tool's output; raises ``ToolFailed`` (errors.py) with a text fit for model and client.

        ``ask``: asks the user while the tool runs.
        """
        ...


class Access(Protocol):
    """The operator's rules of access, for the calls of one run (``agents_app.access_rules``)."""

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a client has to permit the call, whatever the session trusts."""
        ...

    async def admit(self, tool: str, arguments: Mapping[str, Any], *, permitted: bool) -> None:
        """Called when the call is about to run; raises ``ToolFailed`` if the rules do not let it.

        ``permitted``: a client has permitted it. Files are checked again when they are opened.
        """
        ...


# --- files ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileState:
    """A file before or after an edit. ``content`` None: it was too large to be kept."""

    size: int
    content: bytes | None = field(repr=False)

    @property
    def digest(self) -> str | None:
        """None: the content is not there."""
        return None if self.content is None else hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change that a tool made to a file. ``path``: absolute, as clients see it (``/src/a.py``).

    ``before`` None: the tool created the file; ``after`` None: it deleted it. ``added``, ``removed``: lines.
    """

    path: str
    before: FileState | None
    after: FileState | None
    added: int
    removed: int


# --- the host ------------------------------------------------------------------------------------

Decider = Literal["server", "client"]
CallState = Literal["pending", "granted", "running", "review", "denied", "done"]


@dataclass(slots=True)
class Call:
    """A tool call of the open step, as the loop sees it.

    ``runner``: "server" runs here once granted; "client" waits for its result; "nobody" can be served
    by no one and is answered by the loop itself.
    """

    call_id: str
    name: str
    arguments: str
    runner: Literal["server", "client", "nobody"]
    state: CallState = "pending"
    asks: bool = False
    permitted: bool = False
    """Whether a client has permitted it."""
    part_id: str = ""
    why: str = ""
    """Why it needs no permission: "not-needed", "setting"; empty: it asks for one, or a client has decided."""
    title: str = ""
    client: str | None = None
    """The client of the session that declared the tool, if one did."""
    preview: Sequence[FileEdit] = ()
    """The changes of files that clients are shown before they decide."""
    seen: Mapping[str, str | None] = field(default_factory=dict)
    """The files as that preview showed them: the digest of the content by path, None if there was no file."""


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A model's message that is finished or was cut off."""

    step: int
    text: str
    thinking: str
    parts: Sequence[tuple[str, Literal["text", "thinking", "call"], str]]
    """In stream order: (part id, kind, the text, or the call's id)."""
    calls: Sequence[Call]
    provider_data: str | None
    usage: Usage
    broken: bool = False
    """Whether the stream ended before the message; there are no calls then."""
    given_up: Mapping[str, str] = field(default_factory=dict)
    """Calls among the parts that will not run, because the message was cut off: tool name by call id."""


EndReason = Literal["end_turn", "max_tokens", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class Change:
    """The parts of a plan that clients changed between two steps."""

    tool_schemas: Sequence[ToolSchema]
    client_tools: Mapping[str, str | None]
    titles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command in a terminal ended. ``preview``: the end of what it printed; ``truncated``: it printed more."""

    code: int | None
    preview: str
    truncated: bool


class Host(Protocol):
    """Stores a run's progress and asks its clients. A method marked *commit point* returns when the data is durable.

    Every method may raise ``RunLost`` (errors.py): the turn is no longer this run's (cancelled, taken
    over). The loop then stops at once and writes nothing more.
    """

    async def step_started(self, step: int) -> None: ...

    async def part_opened(self, step: int, part_id: str, kind: Literal["text", "thinking"], *, late: bool) -> None:
        """``late``: thinking that came after text; it is stored in the turn's parts, in no history message."""
        ...

    async def delta(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> None: ...

    def delta_at_once(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> bool:
        """``delta`` for a caller that cannot wait; False, and nothing is stored, if it would have to."""
        ...

    async def call_opened(self, step: int, part_id: str, call_id: str, name: str) -> None: ...

    async def call_arguments(self, step: int, call_id: str, text: str) -> None: ...

    async def free_call_id(self, wanted: str | None) -> str:
        """``wanted`` if no call of this session has that id, else a new one."""
        ...

    async def message_done(self, message: StepMessage, end: EndReason | None = None, error: str = "") -> None:
        """Commit point: the model's message with its calls and usage. ``end``: the turn ends with it.

        ``error`` is a short public code, never text of a provider.
        """
        ...

    async def call_running(self, call: Call) -> None:
        """Commit point, before the tool starts."""
        ...

    async def call_finished(self, call: Call, content: Content, *, failed: bool, edits: Sequence[FileEdit] = ()) -> None:
        """Commit point: a result. If a client has to confirm it first, the call is not final yet.

        ``edits``: the files that the tool changed, also if it failed afterwards.
        """
        ...

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:
        """Show a running tool's form to the session's clients and wait; declined if no client is connected."""
        ...

    async def show_terminal(self, call: Call, resource: str, title: str, *, stays: bool, result: CommandResult | None) -> None:
        """Commit point: clients see a terminal in the running call; ``stays``, or with a ``result``: in its result too."""
        ...

    async def look(self) -> list[Call]:
        """The calls of the open step with the decisions and results of clients so far."""
        ...

    async def next_step(self) -> Change | None:
        """Between two steps: take in messages and changes of clients. Returns the changed parts of the plan, if any."""
        ...

    async def model_messages(self) -> Sequence[Message]:
        """The messages of the next model call, compacted."""
        ...

    async def answered(self) -> None:
        """Return when a client has answered something since the last ``look``."""
        ...

    async def wait(self) -> bool:
        """Store that the turn waits for clients. False: one has answered meanwhile, ``look`` again."""
        ...

    async def end(self, reason: EndReason, error: str = "") -> None:
        """Commit point: the turn is over."""
        ...
