"""Reads the MCP servers of an agent from its file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from agents_app import options
from agents_app.loader import checks, headers, programs
from agents_app.loader.table import Table
from agents_app.spec import AgentSpec, McpSpec, OptionSpec

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_OF_ADDRESSES = ("headers", "transport")
_OWN_HEADERS = {"accept", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "user-agent"}


def read(table: Table, offered: Sequence[OptionSpec]) -> tuple[McpSpec, ...]:
    """The servers, with a check of which of the agent's options may be used in which value."""
    found: list[McpSpec] = []
    for entry in table.tables("mcp"):
        server = _server(entry)
        if server is None:
            continue
        if any(other.name == server.name for other in found):
            entry.fault("name", f"duplicate MCP server name {server.name}")
        _check_places(server, offered, entry)
        found.append(server)
    return tuple(found)


def _server(entry: Table) -> McpSpec | None:
    name, url, transport = entry.text("name", required=True) or "", entry.text("url"), entry.text("transport")
    program = programs.read(entry)
    if program is None and transport not in (None, "streamable-http", "http"):
        entry.fault("transport", f"{transport} is not supported; use streamable-http")
    if entry.has("command"):
        for key in ("url", *_OF_ADDRESSES):
            if entry.has(key):
                entry.fault(key, "there is a command already")
    elif url is None and not entry.has("url"):
        entry.fault("url", "is required, or command")
    include, exclude = entry.texts("include"), entry.texts("exclude")
    given = headers.read(entry)
    for header in given:
        if header.lower() in _OWN_HEADERS:
            entry.fault("headers", f"{header} is set by the server itself")
    server = McpSpec(
        name=name,
        url="" if program else url or "",
        headers=given,
        include=("*",) if include is None else include,
        exclude=exclude or (),
        expose=entry.flag("expose", default=True),
        timeout=entry.seconds("timeout"),
        program=program,
    )
    entry.refuse_unknown()
    if name and not _NAME.fullmatch(name):
        entry.fault("name", "must have 1 to 32 characters of A-Z a-z 0-9 _ -")
        return None
    return server if name and (url or program) else None


def _check_places(server: McpSpec, offered: Sequence[OptionSpec], entry: Table) -> None:
    by_name = {option.name: option for option in offered}
    for key, template in _templates(server):
        for name in options.places(template, by_name):
            option = by_name.get(name)
            if option is None:
                entry.fault(key, f"there is no option {name} (for the plain text write {{{{{name}}}}})")
            elif option.type != "select" and key == "url":
                entry.fault(key, f"the option {name} is a {option.type}; only select options are allowed here")
    if server.program is not None:
        programs.check_places(server.program, by_name, entry)
        return
    alone = AgentSpec("", "", options=tuple(offered))
    addresses = list(checks.fillings(alone, server.url))
    if any(not checks.is_address(url) for url in addresses):
        entry.fault("url", "must be an http or https address without user, password or fragment")
    elif any(urlsplit(url).path.rstrip("/").endswith("/sse") for url in addresses):
        entry.fault("url", "is an address of MCP's older transport (sse), which is not supported: give the streamable HTTP one")
    if not options.places(server.url, by_name):
        return
    used = {name for value in server.headers.values() for name in options.places(value, by_name)}
    for option in offered:
        if option.type == "secret" and option.default and option.name in used:
            entry.fault("url", f"the default of the secret {option.name} would be sent to a host that the client chooses")


def _templates(server: McpSpec) -> Iterator[tuple[str, str]]:
    yield "url", server.url
    for value in server.headers.values():
        yield "headers", value
