"""The definition of an agent as frozen values, complete and checked by the loader.

``to_document`` and ``from_document`` convert one to JSON and back, with its secrets apart, so that a
definition can be stored and a turn can continue with it after the file has changed. Nothing here imports
a tool or a provider.

A document is read by later releases and by the one before. A field that was added after the first release is
listed in ``FIELDS_SINCE``: documents omit it while it has its default, and a definition that sets it has the
format of that release, so that older workers do not claim its turns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agents_app import queue_names
from agents_app.access_rules import AccessRule
from agents_app.runtime.interface import Limits
from agents_app.runtime.messages import ToolSchema

OptionType = Literal["text", "select", "secret"]
HistoryKind = Literal["compacted", "full"]
StreamMode = Literal["delta", "message", "none"]
ImageKind = Literal["http", "data"]
CompactionKind = Literal["drop", "summarise"]
ProgramOwner = Literal["session", "tenant"]
ProgramWorkspace = Literal["none", "read", "write"]

OPTION_TYPES: tuple[OptionType, ...] = get_args(OptionType)
HISTORY_KINDS: tuple[HistoryKind, ...] = get_args(HistoryKind)
STREAM_MODES: tuple[StreamMode, ...] = get_args(StreamMode)
IMAGE_KINDS: tuple[ImageKind, ...] = get_args(ImageKind)
COMPACTION_KINDS: tuple[CompactionKind, ...] = get_args(CompactionKind)
PROGRAM_OWNERS: tuple[ProgramOwner, ...] = get_args(ProgramOwner)
PROGRAM_WORKSPACES: tuple[ProgramWorkspace, ...] = get_args(ProgramWorkspace)

FIRST_FORMAT = 1
FIELDS_SINCE: Mapping[str, int] = {
    "mcp": 2,
    "prices": 2,
    "summary": 2,
    "python": 2,
    "network": 4,
    "access": 5,
    "client_files": 5,
    "queue": 8,
}
"""The format that introduced each later field of ``AgentSpec``; each of these fields has a default."""


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """A value that a client may set. ``default`` is the operator's; that of a secret is never shown."""

    type: OptionType
    name: str
    title: str | None = None
    description: str | None = None
    default: str = field(default="", repr=False)
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A server tool. ``source``: its code, as ``python:module:function``, ``builtin:name`` or ``mcp:server:tool``.

    ``timeout`` None: the agent's limit. ``idempotent``: it may run again after a crash. ``confirm_result``: the model
    gets the result after a client has approved it.
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
class ProgramSpec:
    """A program that is started as an MCP server and speaks over its input and output. Values of ``env`` are templates.

    ``per``: who shares a process. ``workspace``: what it may do in the session's workspace, whose path replaces
    ``{workspace}`` in ``command``. ``start_seconds``: for its start and handshake. ``idle_seconds``: without a call, until it
    is ended.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    per: ProgramOwner = "session"
    workspace: ProgramWorkspace = "none"
    network: bool = False
    memory_bytes: int = 1024**3
    processes: int = 64
    start_seconds: float = 30.0
    idle_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class McpSpec:
    """An MCP server whose tools the agent has: at ``url``, or started as ``program``. ``url`` and header values are templates.

    ``include`` and ``exclude``: patterns such as ``read_*`` for the server's own tool names. ``expose`` and
    ``timeout``: as for a tool.
    """

    name: str
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    expose: bool = True
    timeout: float | None = None
    program: ProgramSpec | None = None


@dataclass(frozen=True, slots=True)
class SummarySpec:
    """The model that summarises long conversations; with all fields None the agent's own model.

    The texts are templates. A model of the agent's own provider uses the agent's key, address and headers unless they are
    set here. ``context_tokens``: the most tokens of one request; None: as many as the agent's model.
    """

    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens of one model. ``cache_read`` None: the price of other input."""

    input: float
    output: float
    cache_read: float | None = None


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent. ``model``, ``api_key``, ``base_url``, header values, ``instructions`` and the strings in
    ``settings`` are templates: options.fill puts the session's option values in.

    ``python``: the object in code that defines the agent, if there is one (``module:name``). ``prices``: by model, as
    ``model`` names it, with or without its provider. ``template``: the path of a folder or archive that fills new workspaces;
    it is of this host, so documents omit it. ``network``: the hosts that its commands may reach; ``*``: every public one.
    ``access``: the agent's rules, then those of the server.
    ``client_files``: AHP clients are asked for attached files of their machines.
    ``queue``: only workers that serve it run the agent's turns.
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
    template: str | None = None
    network: tuple[str, ...] = ()
    access: tuple[AccessRule, ...] = ()
    client_files: bool = False
    queue: str = queue_names.DEFAULT

    @property
    def exposed_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that clients may see and enable, in the operator's order."""
        return tuple(tool for tool in self.tools if tool.expose)

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def option(self, name: str) -> OptionSpec | None:
        return next((option for option in self.options if option.name == name), None)


def format_of(spec: AgentSpec) -> int:
    """The oldest format that has all fields that this definition sets."""
    since = [number for name, number in FIELDS_SINCE.items() if getattr(spec, name) != getattr(_NOTHING_SAID, name)]
    builtins = {tool.source for tool in spec.tools if tool.source.startswith("builtin:")}
    if spec.compaction == "summarise" or spec.model.partition(":")[0] not in _FIRST_PROVIDERS or builtins - _FIRST_BUILTINS:
        since.append(2)
    if any(server.program is not None for server in spec.mcp):
        since.append(_PROGRAMS_SINCE)
    return max(since, default=FIRST_FORMAT)


_PROGRAMS_SINCE = 3
_NOTHING_SAID = AgentSpec("", "")
_FIRST_PROVIDERS = frozenset({"openai-chat", "demo"})
_FIRST_BUILTINS = frozenset({"builtin:ask_user", "builtin:calculator", "builtin:current_time"})


def to_document(spec: AgentSpec) -> tuple[dict[str, Any], dict[str, str]]:
    """The definition as JSON values without its secrets, and the secrets by their path in it.

    A secret is null in the document, so that the order of members survives the round trip.
    """
    document = dataclasses.asdict(spec)
    for name in FIELDS_SINCE:
        if getattr(spec, name) == getattr(_NOTHING_SAID, name):
            del document[name]
    del document["template"]
    secrets: dict[str, str] = {}
    _hide_access(spec, document, "", secrets)
    if "summary" in document:
        _hide_access(spec.summary, document["summary"], "/summary", secrets)
    for number, server in enumerate(spec.mcp):
        _hide_headers(server.headers, document["mcp"][number], f"/mcp/{number}", secrets)
        _hide_program(server.program, document["mcp"][number], f"/mcp/{number}/program", secrets)
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


def _hide_program(program: ProgramSpec | None, server: dict[str, Any], path: str, secrets: dict[str, str]) -> None:
    if program is None:
        del server["program"]
        return
    for name, value in program.env.items():
        secrets[f"{path}/env/{name}"] = value
        server["program"]["env"][name] = None


def from_document(document: Mapping[str, Any], secrets: Mapping[str, str]) -> AgentSpec:
    """The definition of a document and its secrets; the reverse of ``to_document``."""
    fields = {**document, **_access(document, "", secrets)}
    fields["limits"] = Limits(**document["limits"])
    fields["options"] = tuple(
        OptionSpec(**{**option, "options": tuple(option["options"]), "default": _default(option, number, secrets)})
        for number, option in enumerate(document["options"])
    )
    fields["tools"] = tuple(ToolSpec(**tool) for tool in document["tools"])
    for name in ("history", "stream", "images"):
        fields[name] = tuple(document[name])
    fields["network"] = tuple(document.get("network", ()))
    fields["mcp"] = tuple(_mcp(server, f"/mcp/{number}", secrets) for number, server in enumerate(document.get("mcp", ())))
    summary = document.get("summary")
    fields["summary"] = SummarySpec(**{**summary, **_access(summary, "/summary", secrets)}) if summary else SummarySpec()
    fields["prices"] = {model: Price(**price) for model, price in document.get("prices", {}).items()}
    fields["access"] = tuple(_rule(rule) for rule in document.get("access", ()))
    return AgentSpec(**fields)


def _access(document: Mapping[str, Any], path: str, secrets: Mapping[str, str]) -> dict[str, Any]:
    return {"api_key": secrets.get(f"{path}/api_key"), "headers": _headers(document, path, secrets)}


def _headers(document: Mapping[str, Any], path: str, secrets: Mapping[str, str]) -> dict[str, str]:
    return {name: secrets[f"{path}/headers/{name}"] for name in document["headers"]}


def _mcp(document: Mapping[str, Any], path: str, secrets: Mapping[str, str]) -> McpSpec:
    patterns = {name: tuple(document[name]) for name in ("include", "exclude")}
    program = None
    if (stored := document.get("program")) is not None:
        env = {name: secrets[f"{path}/program/env/{name}"] for name in stored["env"]}
        program = ProgramSpec(**{**stored, "command": tuple(stored["command"]), "env": env})
    return McpSpec(**{**document, **patterns, "headers": _headers(document, path, secrets), "program": program})


def _rule(document: Mapping[str, Any]) -> AccessRule:
    paths, operations, subjects = (tuple(document[name]) for name in ("paths", "operations", "applies_to"))
    return AccessRule(paths, document["decision"], operations, subjects)


def _default(option: Mapping[str, Any], number: int, secrets: Mapping[str, str]) -> str:
    if option["type"] == "secret":
        return secrets[f"/options/{number}/default"]
    return str(option["default"])


def _plain(value: Any) -> Any:
    """``value`` with tuples as lists, as JSON returns it, so that equal definitions give equal documents."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
