"""`ops/bench --against URL`: any server that speaks OpenAI's chat completions or AAP, under the same load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ops.benchmark.installation import Server
from ops.benchmark.load import Aap, Address, Chat

KEY_VARIABLE = "BENCH_KEY"
_AAP_PATH, _CHAT_PATH = "/aap/v3", "/v1"


class AgainstError(Exception):
    """The options do not describe a server. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Peer:
    """How to reach another server. With ``own_model``, its own model or agent of this name answers."""

    address: Address
    is_aap: bool
    own_model: str | None = None

    def target(self, key: str) -> Aap | Chat:
        if self.is_aap:
            return Aap([self.address], key, own_agent=self.own_model)
        return Chat(self.address, key, self.own_model)


def peer(url: str, own_model: str | None) -> Peer:
    """The server at a URL. A path with `aap` in it is AAP's; without a path it is chat completions under /v1."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise AgainstError(f"{parts.netloc.rpartition('@')[2]} is not a host and a port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AgainstError("the URL must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None or parts.query:
        raise AgainstError(f"the URL must not contain a key; set {KEY_VARIABLE} or use --key-file")
    tls = parts.scheme == "https"
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/sessions")
    is_aap = "aap" in path.split("/")
    if path == "/aap":
        path = _AAP_PATH
    address = Address(parts.hostname, port or (443 if tls else 80), path or _CHAT_PATH, tls)
    return Peer(address, is_aap, own_model)


def key(file: Path | None) -> str:
    """The key from a file or from the environment; empty if there is none."""
    if file is None:
        return os.environ.get(KEY_VARIABLE, "").strip()
    try:
        return file.read_text().strip()
    except OSError as error:
        raise AgainstError(f"--key-file {file}: {error.strerror}") from None


class PeerServer(Server):
    """Another server. Its costs are those of the processes that were named, with their descendants."""

    def __init__(self, target: Aap | Chat, pids: Sequence[int]) -> None:
        self._target, self._pids = target, list(pids)

    def parts(self) -> dict[str, list[int]]:
        return {"server": self._pids} if self._pids else {}

    def target(self, *keys: str) -> Aap | Chat:
        assert not keys, "there is one key"
        return self._target
