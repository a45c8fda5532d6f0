"""An MCP server's address and headers for one set of option values, and the masking of their secrets."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agents_app import options
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec, McpSpec

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHORTEST_SECRET = 4
_ROOM_FOR_JSON = 4
_LEAST_ANSWER = 4_000_000


@dataclass(frozen=True, slots=True)
class Access:
    """The address and headers with which one conversation, or the catalogue, uses an MCP server.

    ``key``: a digest of the address, the headers and the owner. ``connect``: seconds. ``answer_bytes``: the size limit of
    one response.
    """

    server: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, hash=False)
    key: str
    connect: float
    answer_bytes: int

    @property
    def host(self) -> str:
        """The address without path and query, which may contain a secret of the operator."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def masked(self, text: str) -> str:
        """``text`` without the headers' values and their words, and without the address's query."""
        words = {self.url: self.host, urlsplit(self.url).query: "***"}
        for value in self.headers.values():
            words.update(dict.fromkeys([value, *value.split()], "***"))
        for word in sorted(words, key=len, reverse=True):
            if len(word) >= _SHORTEST_SECRET:
                text = text.replace(word, words[word])
        return text


def access(server: McpSpec, values: Mapping[str, str], limits: Limits, owner: str) -> Access:
    """``server`` with an agent's option values filled in. Two owners never share a connection."""
    url = options.fill(server.url, values)
    headers = {name: _CONTROL.sub("", options.fill(value, values)).strip() for name, value in server.headers.items()}
    # A header whose options have no value is omitted.
    headers = {name: value for name, value in headers.items() if value}
    said = json.dumps([owner, server.name, url, sorted(headers.items()), limits.connect, limits.tool_output_bytes])
    return Access(
        server=server.name,
        url=url,
        headers=headers,
        key=hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest(),
        connect=limits.connect,
        answer_bytes=max(_LEAST_ANSWER, _ROOM_FOR_JSON * limits.tool_output_bytes),
    )


def accesses(spec: AgentSpec, values: Mapping[str, str], owner: str) -> dict[str, Access]:
    """The accesses of all of an agent's servers, by the server's name."""
    return {server.name: access(server, values, spec.limits, owner) for server in spec.mcp}
