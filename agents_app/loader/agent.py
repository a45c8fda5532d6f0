"""Reads one agent of an agents file."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, cast

from agents_app import queue_names, spec
from agents_app.loader import access, agent_options, checks, headers, mcp, prices, python_agents, summary, templates, tools
from agents_app.loader.table import Table
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_OWN_SETTINGS = {"model", "messages", "stream", "tools", "n", "input", "contents"}


def read(table: Table, folder: Path) -> AgentSpec:
    name = table.line("name", required=not table.has("python")) or ""
    if name:
        table.named(name)
    own = python_agents.read(table)
    name = own.named(table, name)
    version = table.text("version") or "0.0.0"
    if not _SEMVER.fullmatch(version):
        table.fault("version", "must be a semantic version such as 1.2.0")
    offered = own.options_with(table, agent_options.read(table))
    files = templates.read(table, folder)
    agent = AgentSpec(
        name=name,
        model=own.model_or(table),
        version=version,
        title=own.either(table, "title", own.title),
        description=own.either(table, "description", own.description),
        api_key=table.text("api_key"),
        base_url=table.text("base_url"),
        headers=own.joined(table, "headers", own.headers, headers.read(table), offered),
        instructions=own.instructions_or(table, _instructions(table, folder), offered),
        history=table.words("history", spec.HISTORY_KINDS, spec.HISTORY_KINDS),
        stream=table.words("stream", spec.STREAM_MODES, spec.STREAM_MODES),
        client_tools=table.flag("client_tools", default=False),
        images=table.words("images", spec.IMAGE_KINDS, ()),
        context_tokens=table.whole("context_tokens", 0) or None,
        compaction=table.word("compaction", spec.COMPACTION_KINDS) or "drop",
        limits=_limits(table),
        settings=own.joined(table, "settings", own.settings, _settings(table), offered),
        options=offered,
        tools=own.tools_with(table, tools.read(table)),
        mcp=mcp.read(table, offered),
        summary=summary.read(table),
        prices=prices.read(table),
        python=own.reference,
        template=files.template,
        network=files.network,
        access=access.read(table),
        client_files=table.flag("client_files", default=False),
        queue=_queue(table),
    )
    table.refuse_unknown()
    checks.check(agent, table)
    return agent


def _queue(table: Table) -> str:
    name = table.text("queue")
    if name is None:
        return queue_names.DEFAULT
    if (reason := queue_names.fault(name)) is not None:
        table.fault("queue", reason)
        return queue_names.DEFAULT
    return name


def _instructions(table: Table, folder: Path) -> str:
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


def _limits(table: Table) -> Limits:
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


def _settings(table: Table) -> dict[str, Any]:
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
