"""An MCP server's address and headers, or its program, for one set of option values, and the masking of their secrets."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agents_app import options
from agents_app.mcp.programs import Program
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec, McpSpec, ProgramSpec

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHORTEST_SECRET = 4
_ROOM_FOR_JSON = 4
_LEAST_ANSWER = 4_000_000


@dataclass(frozen=True, slots=True)
class Access:
    """How one conversation, or the catalogue, uses an MCP server: with an address and headers, or as a program.

    ``key``: a digest of all that and the owner. ``connect``: seconds. ``answer_bytes``: the size limit of
    one response.
    """

    server: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, hash=False)
    key: str
    connect: float
    answer_bytes: int
    program: Program | None = None

    @property
    def host(self) -> str:
        """The address without path and query, or the program without arguments: they may contain a secret of the operator."""
        if self.program is not None:
            return f"command {self.program.command[0]}"
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def masked(self, text: str) -> str:
        """``text`` without the values of headers and variables and their words, and without the address's query."""
        words = {self.url: self.host, urlsplit(self.url).query: "***"}
        for value in (*self.headers.values(), *(self.program.env.values() if self.program is not None else ())):
            words.update(dict.fromkeys([value, *value.split()], "***"))
        for word in sorted(words, key=len, reverse=True):
            if len(word) >= _SHORTEST_SECRET:
                text = text.replace(word, words[word])
        return text


def access(server: McpSpec, values: Mapping[str, str], limits: Limits, owner: str, tenant: int | None = None) -> Access:
    """``server`` with an agent's option values filled in. Two owners never share a connection.

    ``tenant``: the tenant of the session that is the owner; None if the owner is no session.
    """
    url = options.fill(server.url, values)
    headers = {name: _CONTROL.sub("", options.fill(value, values)).strip() for name, value in server.headers.items()}
    # A header whose options have no value is omitted.
    headers = {name: value for name, value in headers.items() if value}
    program = None if server.program is None else _program(server.name, server.program, values, owner, tenant)
    said: list[object] = [owner, server.name, url, sorted(headers.items()), limits.connect, limits.tool_output_bytes]
    if program is not None:
        if program.per == "tenant" and tenant is not None:
            said[0] = ["tenant", tenant]
        said.append(dataclasses.asdict(program))
    return Access(
        server=server.name,
        url=url,
        headers=headers,
        key=hashlib.sha256(json.dumps(said).encode("utf-8", "surrogatepass")).hexdigest(),
        connect=limits.connect,
        answer_bytes=max(_LEAST_ANSWER, _ROOM_FOR_JSON * limits.tool_output_bytes),
        program=program,
    )


def _program(server: str, spec: ProgramSpec, values: Mapping[str, str], owner: str, tenant: int | None) -> Program:
    filled = {name: options.fill(template, values).replace("\x00", "") for name, template in spec.env.items()}
    # A variable whose options have no value is omitted, and so is one that was written empty: programs see no difference.
    env = {name: value for name, value in filled.items() if value}
    lacking = [name for name in filled.keys() - env.keys() if options.places(spec.env[name], values)]
    return Program(
        server=server,
        command=spec.command,
        env=env,
        per=spec.per,
        tenant=tenant,
        session=owner if tenant is not None and spec.per == "session" else "",
        workspace=spec.workspace,
        network=spec.network,
        memory_bytes=spec.memory_bytes,
        processes=spec.processes,
        start_seconds=spec.start_seconds,
        idle_seconds=spec.idle_seconds,
        lacks_secrets=bool(lacking),
    )


def accesses(spec: AgentSpec, values: Mapping[str, str], owner: str, tenant: int | None = None) -> dict[str, Access]:
    """The accesses of all of an agent's servers, by the server's name."""
    return {server.name: access(server, values, spec.limits, owner, tenant) for server in spec.mcp}
