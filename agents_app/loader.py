"""From an agents file to specs, or to everything that is wrong with it.

All faults are collected, each with its table, key and reason, because an operator mends a file once and
not once per fault. Python tools are imported here: what cannot run is found at the start.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from agents_app import options, providers, spec
from agents_app.errors import AgentsFileError, FileFault
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec, OptionSpec, ToolSpec
from agents_app.tools import questions
from agents_app.tools.signature import NoSchema, describe
from agents_app.tools.source import NoFunction, resolve

T = TypeVar("T")
W = TypeVar("W", bound=str)

MAX_NAME = 200
_TOP = "file"
# More combinations of choices than anyone wants to read; beyond it the rest is checked when a turn runs.
MAX_COMBINATIONS = 1_000
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = {
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "accept-encoding",
}
_OWN_SETTINGS = {"model", "messages", "stream", "tools", "n"}
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def load(path: Path) -> list[AgentSpec]:
    """The agents of the file, in its order. ``AgentsFileError`` with all that is wrong, if anything is."""
    faults: list[FileFault] = []
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AgentsFileError(str(path), [FileFault(_TOP, "", error.strerror or "cannot be read")]) from error
    except UnicodeDecodeError as error:
        raise AgentsFileError(str(path), [FileFault(_TOP, "", "is not UTF-8")]) from error
    except tomllib.TOMLDecodeError as error:
        raise AgentsFileError(str(path), [FileFault(_TOP, "", f"is not TOML: {error}")]) from error
    specs = _agents(document, path.parent, faults)
    if faults:
        raise AgentsFileError(str(path), faults)
    return specs


class _Table:
    """One table of the file while it is read: hands out typed values, writes down faults, knows what was asked for.

    A value that is wrong gives a fault and counts as missing.
    """

    def __init__(self, values: Mapping[str, Any], place: str, owner: str, faults: list[FileFault]) -> None:
        self._values, self._place, self._owner, self._faults = values, place, owner, faults
        self._asked: set[str] = set()

    def fault(self, key: str, reason: str) -> None:
        table = f"{self._place} ({self._owner})" if self._owner else self._place
        self._faults.append(FileFault(table, key, reason))

    def has(self, key: str) -> bool:
        return key in self._values

    def refuse_unknown(self) -> None:
        for key in self._values:
            if key not in self._asked:
                self.fault(key, "unknown key")

    def text(self, key: str, *, required: bool = False) -> str | None:
        value = self._typed(key, str, "a string", required=required)
        if value is not None and "\x00" in value:
            self.fault(key, "must not contain U+0000")
            return None
        return value

    def line(self, key: str, *, required: bool = False) -> str | None:
        """A text that is a name: not blank, one line, not too long."""
        value = self.text(key, required=required)
        if value is None:
            return None
        if not value.strip() or _CONTROL.search(value) or len(value) > MAX_NAME:
            self.fault(key, f"must be one line of 1 to {MAX_NAME} characters")
            return None
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._typed(key, bool, "true or false")
        return default if value is None else value

    def whole(self, key: str, default: int, least: int = 1) -> int:
        value = self._typed(key, int, "a whole number")
        if value is None:
            return default
        if value < least:
            self.fault(key, f"must be at least {least}")
            return default
        return value

    def seconds(self, key: str) -> float | None:
        value = self._typed(key, (int, float), "a number of seconds")
        if value is None:
            return None
        if not 0 < value < math.inf:
            self.fault(key, "must be more than 0 seconds")
            return None
        return float(value)

    def word(self, key: str, allowed: Sequence[W], *, required: bool = False) -> W | None:
        value = self._typed(key, str, "a string", required=required)
        if value is None or value in allowed:
            return cast("W | None", value)
        self.fault(key, f"must be one of {', '.join(allowed)}")
        return None

    def words(self, key: str, allowed: Sequence[W], default: tuple[W, ...]) -> tuple[W, ...]:
        values = self._typed(key, list, "a list")
        if values is None:
            return default
        wrong = [value for value in values if value not in allowed]
        if wrong:
            self.fault(key, f"may hold only {', '.join(allowed)}")
        elif len(set(values)) != len(values):
            self.fault(key, "holds a value twice")
        return tuple(value for value in values if value in allowed)

    def texts(self, key: str) -> tuple[str, ...] | None:
        values = self._typed(key, list, "a list of strings")
        if values is None:
            return None
        if not all(isinstance(value, str) and "\x00" not in value for value in values):
            self.fault(key, "must be a list of strings")
            return None
        return tuple(values)

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self._typed(key, dict, "a table")
        return {} if value is None else value

    def table(self, key: str) -> _Table:
        return _Table(self.mapping(key), f"{self._place}.{key}", self._owner, self._faults)

    def tables(self, key: str, *, owner: str = "") -> Iterator[_Table]:
        values = self._typed(key, list, f"a list of tables ([[{key}]])")
        prefix = key if self._place == _TOP else f"{self._place}.{key}"
        for number, value in enumerate(values or ()):
            table = _Table(value if isinstance(value, dict) else {}, f"{prefix}[{number}]", owner or self._owner, self._faults)
            if isinstance(value, dict):
                yield table
            else:
                table.fault("", "must be a table")

    def named(self, owner: str) -> None:
        """From now on faults name the agent too."""
        self._owner = owner

    def _typed(self, key: str, kind: type[T] | tuple[type[T], ...], wanted: str, *, required: bool = False) -> T | None:
        self._asked.add(key)
        if key not in self._values:
            if required:
                self.fault(key, "is required")
            return None
        value = self._values[key]
        # bool is an int in Python, not in TOML.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fault(key, f"must be {wanted}")
            return None
        return value


def _agents(document: Mapping[str, Any], folder: Path, faults: list[FileFault]) -> list[AgentSpec]:
    top = _Table(document, _TOP, "", faults)
    specs: list[AgentSpec] = []
    names: set[str] = set()
    for table in top.tables("agents"):
        agent = _agent(table, folder)
        if agent.name and agent.name in names:
            table.fault("name", f"there is another agent of the name {agent.name}")
        names.add(agent.name)
        specs.append(agent)
    if not specs and not faults:
        faults.append(FileFault(_TOP, "agents", "holds no [[agents]]"))
    faults.extend(FileFault(_TOP, key, "unknown key") for key in document if key != "agents")
    return specs


def _agent(table: _Table, folder: Path) -> AgentSpec:
    name = table.line("name", required=True) or ""
    if name:
        table.named(name)
    version = table.text("version") or "0.0.0"
    if not _SEMVER.fullmatch(version):
        table.fault("version", "must be a semantic version such as 1.2.0")
    agent_options = _options(table)
    agent = AgentSpec(
        name=name,
        model=table.text("model", required=True) or "",
        version=version,
        title=table.text("title"),
        description=table.text("description"),
        api_key=table.text("api_key"),
        base_url=table.text("base_url"),
        headers=_headers(table),
        instructions=_instructions(table, folder),
        history=table.words("history", spec.HISTORY_KINDS, spec.HISTORY_KINDS),
        stream=table.words("stream", spec.STREAM_MODES, spec.STREAM_MODES),
        client_tools=table.flag("client_tools", default=False),
        images=table.words("images", spec.IMAGE_KINDS, ()),
        context_tokens=table.whole("context_tokens", 0) or None,
        compaction=table.word("compaction", _COMPACTIONS) or "drop",
        limits=_limits(table),
        settings=_settings(table),
        options=agent_options,
        tools=_tools(table),
    )
    table.refuse_unknown()
    _check_templates(agent, table)
    _check_model(agent, table)
    _check_base_url(agent, table)
    return agent


_COMPACTIONS: tuple[Literal["drop"], ...] = ("drop",)


def _instructions(table: _Table, folder: Path) -> str:
    text, file = table.text("instructions"), table.text("instructions_file")
    if file is None:
        return text or ""
    if text is not None:
        table.fault("instructions_file", "there are instructions already")
        return text
    try:
        return (folder / file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        table.fault("instructions_file", f"{file} is not UTF-8")
    except (OSError, ValueError) as error:
        table.fault("instructions_file", f"{file} cannot be read: {getattr(error, 'strerror', None) or 'not a path'}")
    return ""


def _headers(table: _Table) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in table.mapping("headers").items():
        if not _HEADER_NAME.fullmatch(name):
            table.fault("headers", f"{name!r} is not a header's name")
        elif name.lower() in _OWN_HEADERS:
            table.fault("headers", f"{name} is set by the server itself")
        elif not isinstance(value, str):
            table.fault("headers", f"{name} must be a string")
        elif _CONTROL.search(value):
            table.fault("headers", f"{name} must be one line")
        else:
            headers[name] = value
    return headers


def _limits(table: _Table) -> Limits:
    own = Limits()
    max_steps = table.whole("max_steps", own.max_steps)
    limits = table.table("limits")
    made = Limits(
        connect=limits.seconds("connect") or own.connect,
        first_output=limits.seconds("first_output") or own.first_output,
        between_outputs=limits.seconds("between_outputs") or own.between_outputs,
        run=limits.seconds("run") or own.run,
        max_steps=max_steps,
        tool_seconds=limits.seconds("tool_seconds") or own.tool_seconds,
        tool_output_bytes=limits.whole("tool_output_bytes", own.tool_output_bytes),
        retries=limits.whole("retries", own.retries, least=0),
    )
    limits.refuse_unknown()
    return made


def _settings(table: _Table) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        match value:
            case dict():
                return {name: plain(item) for name, item in value.items()}
            case list():
                return [plain(item) for item in value]
            case float() if not math.isfinite(value):
                raise ValueError("holds a number that is not JSON")
            case str() if "\x00" in value:
                raise ValueError("must not contain U+0000")
            case str() | bool() | int() | float():
                return value
            case _:
                raise ValueError("holds a date or time, which is not JSON")

    settings = table.mapping("settings")
    for name in settings:
        if name in _OWN_SETTINGS:
            table.fault("settings", f"{name} is set by the server itself")
    try:
        return cast("dict[str, Any]", plain(settings))
    except ValueError as error:
        table.fault("settings", str(error))
        return {}


def _options(table: _Table) -> tuple[OptionSpec, ...]:
    found: list[OptionSpec] = []
    for entry in table.tables("options"):
        name = entry.line("name", required=True) or ""
        if "{" in name or "}" in name:
            entry.fault("name", "must not contain braces")
        elif name and any(option.name == name for option in found):
            entry.fault("name", f"there is another option of the name {name}")
        kind = entry.word("type", spec.OPTION_TYPES, required=True)
        default, choices = entry.text("default"), entry.texts("options")
        if kind == "select":
            default = _select_default(entry, default, choices)
        elif choices is not None:
            entry.fault("options", "only a select has them")
        found.append(
            OptionSpec(
                type=kind or "text",
                name=name,
                title=entry.text("title"),
                description=entry.text("description"),
                default=default or "",
                options=(choices or ()) if kind == "select" else (),
            )
        )
        entry.refuse_unknown()
    return tuple(found)


def _select_default(entry: _Table, default: str | None, choices: tuple[str, ...] | None) -> str | None:
    if not choices:
        if choices is not None or not entry.has("options"):
            entry.fault("options", "a select needs at least one choice")
        return default
    if len(set(choices)) != len(choices):
        entry.fault("options", "holds a choice twice")
    if default is None and not entry.has("default"):
        return choices[0]
    if default is not None and default not in choices:
        entry.fault("default", "is not one of the options")
    return default


def _tools(table: _Table) -> tuple[ToolSpec, ...]:
    found: list[ToolSpec] = []
    for entry in table.tables("tools"):
        tool = _tool(entry)
        if tool is None:
            continue
        if any(other.name == tool.name for other in found):
            entry.fault("name", f"there is another tool of the name {tool.name}")
        found.append(tool)
    return tuple(found)


def _tool(entry: _Table) -> ToolSpec | None:
    python, builtin = entry.text("python"), entry.text("builtin")
    name, description = entry.text("name"), entry.text("description")
    made: Callable[[str, str, str, dict[str, Any]], ToolSpec] = _tool_maker(entry)
    entry.refuse_unknown()
    if entry.has("python") == entry.has("builtin"):
        entry.fault("python", "a tool has either python or builtin")
        return None
    if python is None and builtin is None:
        return None
    key = "python" if python is not None else "builtin"
    source = f"{key}:{python if python is not None else builtin}"
    try:
        function = resolve(source)
        own_description, parameters = describe(function)
        if source == questions.SOURCE:
            parameters = questions.PARAMETERS
    except (NoFunction, NoSchema) as error:
        entry.fault(key, str(error))
        return None
    if name is None:
        name = builtin or getattr(function, "__name__", "") or source.rpartition(":")[2].rpartition(".")[2]
    if not _TOOL_NAME.fullmatch(name):
        entry.fault("name", "must have 1 to 64 characters of A-Z a-z 0-9 _ -")
        return None
    return made(name, source, own_description if description is None else description, parameters)


def _tool_maker(entry: _Table) -> Callable[[str, str, str, dict[str, Any]], ToolSpec]:
    """Reads what does not depend on the function now, so that its faults show even if the function is missing."""
    title, timeout = entry.text("title"), entry.seconds("timeout")
    expose, idempotent = entry.flag("expose", default=True), entry.flag("idempotent", default=False)
    confirm_result = entry.flag("confirm_result", default=False)

    def make(name: str, source: str, description: str, parameters: dict[str, Any]) -> ToolSpec:
        return ToolSpec(
            name=name,
            source=source,
            title=title,
            description=_UNSTORABLE.sub("\ufffd", description),
            parameters=parameters,
            expose=expose,
            timeout=timeout,
            idempotent=idempotent,
            confirm_result=confirm_result,
        )

    return make


def _templates(agent: AgentSpec) -> Iterator[tuple[str, str]]:
    """(key, template) of everything that options fill."""
    yield "model", agent.model
    yield "base_url", agent.base_url or ""
    yield "api_key", agent.api_key or ""
    yield "instructions", agent.instructions
    for value in agent.headers.values():
        yield "headers", value
    for text in _strings(agent.settings):
        yield "settings", text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _check_templates(agent: AgentSpec, table: _Table) -> None:
    by_name = {option.name: option for option in agent.options}
    for key, template in _templates(agent):
        for name in options.places(template, by_name):
            option = by_name.get(name)
            if option is None:
                table.fault(key, f"there is no option {name} (for the plain text write {{{{{name}}}}})")
            elif option.type == "secret" and key not in ("api_key", "headers"):
                table.fault(key, f"the option {name} is a secret: those may stand only in api_key and headers")
            elif option.type == "text" and key in ("model", "base_url"):
                table.fault(key, f"the option {name} is free text: only a select may stand here")


def _check_model(agent: AgentSpec, table: _Table) -> None:
    if not agent.model:
        return
    seen: set[str] = set()
    for model in _fillings(agent, agent.model):
        provider, colon, name = model.partition(":")
        if not colon:
            reason = f"{model!r} must be written as provider:model"
        elif providers.find(provider) is None:
            reason = f"there is no provider {provider!r}; there are {', '.join(providers.NAMES)}"
        elif not name.strip() and provider != "demo":
            reason = f"{model!r} names no model"
        else:
            continue
        if reason not in seen:
            table.fault("model", reason)
        seen.add(reason)


def _check_base_url(agent: AgentSpec, table: _Table) -> None:
    if agent.base_url is None:
        return
    if any(not _is_base_url(url) for url in _fillings(agent, agent.base_url)):
        table.fault("base_url", "must be an http or https address without user, password or fragment")
    chosen = _placed(agent, agent.base_url)
    if not chosen:
        return
    if agent.api_key and not _placed(agent, agent.api_key):
        table.fault("api_key", f"the operator's key would go to a host the client chooses ({', '.join(chosen)})")
    used = {name for key, template in _templates(agent) if key in ("api_key", "headers") for name in _placed(agent, template)}
    for option in agent.options:
        if option.type == "secret" and option.default and option.name in used:
            table.fault("base_url", f"the default of the secret {option.name} would go to a host the client chooses")


def _placed(agent: AgentSpec, template: str) -> list[str]:
    return options.places(template, {option.name: option for option in agent.options})


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if _CONTROL.search(url) or " " in url or port == 0:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and not parts.fragment


def _fillings(agent: AgentSpec, template: str) -> Iterator[str]:
    """All that a template can become by its selects; nothing if something else is wrong with it already."""
    by_name = {option.name: option for option in agent.options}
    names = options.places(template, by_name)
    if any(name not in by_name or by_name[name].type != "select" for name in names):
        return
    choices = itertools.product(*(by_name[name].options for name in names))
    for combination in itertools.islice(choices, MAX_COMBINATIONS):
        yield options.fill(template, dict(zip(names, combination, strict=True)))
