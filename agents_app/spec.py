"""What an agent is: the values an operator's description comes down to.

Frozen values, complete and checked (loader.py does the checking). ``to_document`` and
``from_document`` turn one into JSON and back, with its secrets split off, so that a definition can be
stored and a turn can go on by it after the file has changed. Nothing here imports a tool or a provider.
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

OPTION_TYPES: tuple[OptionType, ...] = get_args(OptionType)
HISTORY_KINDS: tuple[HistoryKind, ...] = get_args(HistoryKind)
STREAM_MODES: tuple[StreamMode, ...] = get_args(StreamMode)
IMAGE_KINDS: tuple[ImageKind, ...] = get_args(ImageKind)


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
    """A server tool. ``source`` says where its code is: ``python:module:function`` or ``builtin:name``.

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
class AgentSpec:
    """One agent. ``model``, ``api_key``, ``base_url``, header values, ``instructions`` and the strings in
    ``settings`` are templates: options.fill puts the session's option values in."""

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
    compaction: Literal["drop"] = "drop"
    limits: Limits = field(default_factory=Limits)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: tuple[OptionSpec, ...] = ()
    tools: tuple[ToolSpec, ...] = ()

    @property
    def exposed_tools(self) -> tuple[ToolSpec, ...]:
        """The tools clients may see and enable, in the operator's order."""
        return tuple(tool for tool in self.tools if tool.expose)

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def option(self, name: str) -> OptionSpec | None:
        return next((option for option in self.options if option.name == name), None)


def to_document(spec: AgentSpec) -> tuple[dict[str, Any], dict[str, str]]:
    """The definition as JSON values without its secrets, and the secrets by their path in it.

    A secret's place holds null, so that order survives the round trip.
    """
    document = dataclasses.asdict(spec)
    secrets: dict[str, str] = {}
    if spec.api_key is not None:
        secrets["/api_key"] = spec.api_key
        document["api_key"] = None
    for name, value in spec.headers.items():
        secrets[f"/headers/{name}"] = value
        document["headers"][name] = None
    for number, option in enumerate(spec.options):
        if option.type == "secret":
            secrets[f"/options/{number}/default"] = option.default
            document["options"][number]["default"] = None
    return _plain(document), secrets


def from_document(document: Mapping[str, Any], secrets: Mapping[str, str]) -> AgentSpec:
    """What ``to_document`` was given."""
    fields = dict(document)
    fields["api_key"] = secrets.get("/api_key")
    fields["headers"] = {name: secrets[f"/headers/{name}"] for name in document["headers"]}
    fields["limits"] = Limits(**document["limits"])
    fields["options"] = tuple(
        OptionSpec(**{**option, "options": tuple(option["options"]), "default": _default(option, number, secrets)})
        for number, option in enumerate(document["options"])
    )
    fields["tools"] = tuple(ToolSpec(**tool) for tool in document["tools"])
    for name in ("history", "stream", "images"):
        fields[name] = tuple(document[name])
    return AgentSpec(**fields)


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
