"""What an agent is: the values an operator's description comes down to.

Frozen values, complete and checked (the loader does the checking). ``to_document`` and
``from_document`` turn one into JSON and back, with its secrets split off, so that a definition can be
stored and a turn can go on by it after the file has changed. Nothing here imports a tool or a provider.

A document outlives the release that wrote it and is read by the one before. A field that came after the
first release stands in ``FIELDS_SINCE``: documents leave it out while it says nothing, and a definition
in which it says something is of the format it came with, so that older workers leave its turns alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agents_app.runtime.interface import Limits
from agents_app.runtime.messages import ToolSchema

OptionType = Literal["text", "select", "secret"]
HistoryKind = Literal["compacted", "full"]
StreamMode = Literal["delta", "message", "none"]
ImageKind = Literal["http", "data"]
CompactionKind = Literal["drop", "summarise"]

OPTION_TYPES: tuple[OptionType, ...] = get_args(OptionType)
HISTORY_KINDS: tuple[HistoryKind, ...] = get_args(HistoryKind)
STREAM_MODES: tuple[StreamMode, ...] = get_args(StreamMode)
IMAGE_KINDS: tuple[ImageKind, ...] = get_args(ImageKind)
COMPACTION_KINDS: tuple[CompactionKind, ...] = get_args(CompactionKind)

FIRST_FORMAT = 1
FIELDS_SINCE: Mapping[str, int] = {"mcp": 2, "prices": 2, "summary": 2, "python": 2}
"""Which format of definitions each later field of ``AgentSpec`` came with; each has a default that says nothing."""


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """Something a client may set. ``default`` is the operator's, also a secret's: never show that one."""

    type: OptionType
    name: str
    title: str | None = None
    description: str | None = None
    default: str = field(default="", repr=False)
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A server tool. ``source`` says where its code is: ``python:module:function``, ``builtin:name`` or ``mcp:server:tool``.

    ``timeout`` None: the agent's own limit. ``idempotent``: it may be run again after a crash.
    ``confirm_result``: the model gets its result when a client has looked at it.
    """

    name: str
    source: str
    title: str | None = None
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    expose: bool = True
    timeout: float | None = None
    idempotent: bool = False
    confirm_result: bool = False

    @property
    def schema(self) -> ToolSchema:
        return ToolSchema(name=self.name, description=self.description, parameters=self.parameters, title=self.title)


@dataclass(frozen=True, slots=True)
class McpSpec:
    """An MCP server whose tools the agent has. ``url`` and header values are templates as an agent's are.

    ``include`` and ``exclude`` are patterns such as ``read_*`` over the server's own names of its tools.
    ``expose`` and ``timeout`` as a tool's.
    """

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    expose: bool = True
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class SummarySpec:
    """Who summarises what is left out of a conversation; None in all of it: the agent's own model.

    Templates as an agent's. A model of the agent's own provider is asked with the agent's own access, if none is given here.
    ``context_tokens``: what it may be sent at once; None: as much as the agent's model.
    """

    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens of one model cost. ``cache_read`` None: as much as any other input."""

    input: float
    output: float
    cache_read: float | None = None


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent. ``model``, ``api_key``, ``base_url``, header values, ``instructions`` and the strings in
    ``settings`` are templates: options.fill puts the session's option values in.

    ``python`` names the object in code that the agent was taken from, if one was (``module:name``). ``prices``
    are by model, as ``model`` names it (with or without its provider).
    """

    name: str
    model: str
    version: str = "0.0.0"
    title: str | None = None
    description: str | None = None
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    instructions: str = ""
    history: tuple[HistoryKind, ...] = HISTORY_KINDS
    stream: tuple[StreamMode, ...] = STREAM_MODES
    client_tools: bool = False
    images: tuple[ImageKind, ...] = ()
    context_tokens: int | None = None
    compaction: CompactionKind = "drop"
    limits: Limits = field(default_factory=Limits)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: tuple[OptionSpec, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    mcp: tuple[McpSpec, ...] = ()
    summary: SummarySpec = field(default_factory=SummarySpec)
    prices: Mapping[str, Price] = field(default_factory=dict, hash=False)
    python: str | None = None

    @property
    def exposed_tools(self) -> tuple[ToolSpec, ...]:
        """The tools clients may see and enable, in the operator's order."""
        return tuple(tool for tool in self.tools if tool.expose)

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def option(self, name: str) -> OptionSpec | None:
        return next((option for option in self.options if option.name == name), None)


def format_of(spec: AgentSpec) -> int:
    """The oldest format that can say all of this definition."""
    since = [number for name, number in FIELDS_SINCE.items() if getattr(spec, name) != getattr(_NOTHING_SAID, name)]
    builtins = {tool.source for tool in spec.tools if tool.source.startswith("builtin:")}
    if spec.compaction == "summarise" or spec.model.partition(":")[0] not in _FIRST_PROVIDERS or builtins - _FIRST_BUILTINS:
        since.append(2)
    return max(since, default=FIRST_FORMAT)


_NOTHING_SAID = AgentSpec("", "")
_FIRST_PROVIDERS = frozenset({"openai-chat", "demo"})
_FIRST_BUILTINS = frozenset({"builtin:ask_user", "builtin:calculator", "builtin:current_time"})


def to_document(spec: AgentSpec) -> tuple[dict[str, Any], dict[str, str]]:
    """The definition as JSON values without its secrets, and the secrets by their path in it.

    A secret's place holds null, so that order survives the round trip.
    """
    document = dataclasses.asdict(spec)
    for name in FIELDS_SINCE:
        if getattr(spec, name) == getattr(_NOTHING_SAID, name):
            del document[name]
    secrets: dict[str, str] = {}
    _hide_access(spec, document, "", secrets)
    if "summary" in document:
        _hide_access(spec.summary, document["summary"], "/summary", secrets)
    for number, server in enumerate(spec.mcp):
        _hide_headers(server.headers, document["mcp"][number], f"/mcp/{number}", secrets)
    for number, option in enumerate(spec.options):
        if option.type == "secret":
            secrets[f"/options/{number}/default"] = option.default
            document["options"][number]["default"] = None
    return _plain(document), secrets


def _hide_access(owner: AgentSpec | SummarySpec, document: dict[str, Any], path: str, secrets: dict[str, str]) -> None:
    if owner.api_key is not None:
        secrets[f"{path}/api_key"] = owner.api_key
        document["api_key"] = None
    _hide_headers(owner.headers, document, path, secrets)


def _hide_headers(headers: Mapping[str, str], document: dict[str, Any], path: str, secrets: dict[str, str]) -> None:
    for name, value in headers.items():
        secrets[f"{path}/headers/{name}"] = value
        document["headers"][name] = None


def from_document(document: Mapping[str, Any], secrets: Mapping[str, str]) -> AgentSpec:
    """What ``to_document`` was given."""
    fields = {**document, **_access(document, "", secrets)}
    fields["limits"] = Limits(**document["limits"])
    fields["options"] = tuple(
        OptionSpec(**{**option, "options": tuple(option["options"]), "default": _default(option, number, secrets)})
        for number, option in enumerate(document["options"])
    )
    fields["tools"] = tuple(ToolSpec(**tool) for tool in document["tools"])
    for name in ("history", "stream", "images"):
        fields[name] = tuple(document[name])
    fields["mcp"] = tuple(_mcp(server, f"/mcp/{number}", secrets) for number, server in enumerate(document.get("mcp", ())))
    summary = document.get("summary")
    fields["summary"] = SummarySpec(**{**summary, **_access(summary, "/summary", secrets)}) if summary else SummarySpec()
    fields["prices"] = {model: Price(**price) for model, price in document.get("prices", {}).items()}
    return AgentSpec(**fields)


def _access(document: Mapping[str, Any], path: str, secrets: Mapping[str, str]) -> dict[str, Any]:
    return {"api_key": secrets.get(f"{path}/api_key"), "headers": _headers(document, path, secrets)}


def _headers(document: Mapping[str, Any], path: str, secrets: Mapping[str, str]) -> dict[str, str]:
    return {name: secrets[f"{path}/headers/{name}"] for name in document["headers"]}


def _mcp(document: Mapping[str, Any], path: str, secrets: Mapping[str, str]) -> McpSpec:
    patterns = {name: tuple(document[name]) for name in ("include", "exclude")}
    return McpSpec(**{**document, **patterns, "headers": _headers(document, path, secrets)})


def _default(option: Mapping[str, Any], number: int, secrets: Mapping[str, str]) -> str:
    if option["type"] == "secret":
        return secrets[f"/options/{number}/default"]
    return str(option["default"])


def _plain(value: Any) -> Any:
    """Tuples as lists: what a JSON codec would give back, so that equal definitions are equal documents."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
