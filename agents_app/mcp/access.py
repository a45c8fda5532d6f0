"""Where an MCP server is for one set of option values: its address, the headers, what must not be seen of them."""

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
    """An MCP server as one conversation, or the catalogue, speaks to it.

    ``key`` tells accesses apart and shows nothing of them: the address, the headers and whose they are. ``connect``
    is in seconds; ``answer_bytes`` the most that is read of one answer.
    """

    server: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, hash=False)
    key: str
    connect: float
    answer_bytes: int

    @property
    def host(self) -> str:
        """What may be said of the address: anything behind it could be a secret of its operator's."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def masked(self, text: str) -> str:
        """``text`` without the headers' values, whole or in words, and without the address's query."""
        words = {self.url: self.host, urlsplit(self.url).query: "***"}
        for value in self.headers.values():
            words.update(dict.fromkeys([value, *value.split()], "***"))
        for word in sorted(words, key=len, reverse=True):
            if len(word) >= _SHORTEST_SECRET:
                text = text.replace(word, words[word])
        return text


def access(server: McpSpec, values: Mapping[str, str], limits: Limits, owner: str) -> Access:
    """``server`` with an agent's option values filled in. Accesses of two owners never share a connection."""
    url = options.fill(server.url, values)
    headers = {name: _CONTROL.sub("", options.fill(value, values)).strip() for name, value in server.headers.items()}
    # A header of which nobody has given the value is better not sent than sent empty.
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
    """All of an agent's, by the server's name."""
    return {server.name: access(server, values, spec.limits, owner) for server in spec.mcp}
