"""Steps of tests with terminals."""

from __future__ import annotations

from typing import Any

from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_watcher import Watcher


def claim_of(client: Watcher) -> dict[str, Any]:
    return {"kind": "client", "clientId": client.client_id}


async def create_terminal(client: Watcher, uri: str, **params: Any) -> None:
    """Create a terminal and subscribe to it."""
    wanted = {"terminal": uri, "claim": claim_of(client), **params}
    assert await client.request("createTerminal", wanted) is None
    await client.subscribe(uri)


def screen_of(client: Watcher, uri: str) -> str:
    """All output that the client shows."""
    parts = client.state(uri)["content"]
    return "".join(part["value"] if part["type"] == "unclassified" else part["output"] for part in parts)


async def type_into(client: Watcher, uri: str, text: str) -> int:
    return await client.dispatch({"type": "terminal/input", "terminal": uri, "data": text})


async def shows(client: Watcher, uri: str, text: str, seconds: float = 30) -> None:
    """Wait until the terminal shows a text."""
    await client.until(lambda: text in screen_of(client, uri), seconds)


def listed(client: Watcher) -> dict[str, dict[str, Any]]:
    """The terminals of the root state, by URI."""
    return {each["resource"]: each for each in client.state(ROOT)["terminals"]}


def has_exited(client: Watcher, uri: str) -> bool:
    return any(each["action"]["type"] == "terminal/exited" and each["action"]["terminal"] == uri for each in client.seen)
