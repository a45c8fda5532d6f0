"""Steps of tests with terminals, for clients of every version."""

from __future__ import annotations

from typing import Any

from sessions_app.ahp.client.client import Client, Envelope


def claim_of(client: Client) -> dict[str, Any]:
    return {"kind": "client", "clientId": client.client_id}


def named(client: Client, uri: str) -> dict[str, Any]:
    """The member of params and 0.1's actions that names a terminal."""
    return {"channel" if client.version.has_channels else "terminal": uri}


async def create_terminal(client: Client, uri: str, **params: Any) -> None:
    """Create a terminal and subscribe to it."""
    wanted = {**named(client, uri), "claim": claim_of(client), **params}
    assert await client.request("createTerminal", wanted) is None
    await client.subscribe(uri)


def screen_of(client: Client, uri: str) -> str:
    """All output that the client shows."""
    parts = client.state(uri)["content"]
    return "".join(part["value"] if part["type"] == "unclassified" else part["output"] for part in parts)


async def send(client: Client, uri: str, name: str, **members: Any) -> int:
    """Dispatch an action of a terminal; returns its number."""
    action = {"type": f"terminal/{name}", **members}
    if client.version.has_channels:
        return await client.dispatch(action, uri)
    return await client.dispatch({**action, "terminal": uri})


async def told(client: Client, uri: str, name: str, **members: Any) -> Envelope:
    """Dispatch an action of a terminal; returns its echo, which may be a rejection."""
    return await client.echo(await send(client, uri, name, **members))


async def type_into(client: Client, uri: str, text: str) -> int:
    return await send(client, uri, "input", data=text)


async def shows(client: Client, uri: str, text: str, seconds: float = 30) -> None:
    """Wait until the terminal shows a text."""
    await client.until(lambda: text in screen_of(client, uri), seconds)


def listed(client: Client) -> dict[str, dict[str, Any]]:
    """The terminals of the root state, by URI."""
    return {each["resource"]: each for each in client.state(client.version.root)["terminals"]}


def has_exited(client: Client, uri: str) -> bool:
    return any(each["action"]["type"] == "terminal/exited" and client.version.channel_of(each) == uri for each in client.seen)
