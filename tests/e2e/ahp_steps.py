"""Steps that many AHP tests share."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import Any

from tests.e2e.ahp_watcher import Watcher

_numbers = itertools.count(1)


def new_uri(agent: str = "echo") -> str:
    return f"{agent}:/{secrets.token_hex(6)}"


async def create_session(client: Watcher, agent: str = "echo", uri: str | None = None, **params: Any) -> str:
    """Create a session and subscribe to it, both requests at once (R21); returns its URI."""
    uri = uri or new_uri(agent)
    answers = (
        client.ask("createSession", {"session": uri, "provider": agent, **params}),
        client.ask("subscribe", {"resource": uri}),
    )
    await asyncio.gather(*answers)
    return uri


def start_action(uri: str, text: str, turn: str | None = None, **members: Any) -> dict[str, Any]:
    turn = f"turn-{next(_numbers)}" if turn is None else turn
    return {"type": "session/turnStarted", "session": uri, "turnId": turn, "userMessage": {"text": text}, **members}


async def start_turn(client: Watcher, uri: str, text: str) -> str:
    """Start a turn and wait until the host has accepted it; returns its id."""
    action = start_action(uri, text)
    echo = await client.echo(await client.dispatch(action))
    assert "rejectionReason" not in echo, echo
    return str(action["turnId"])


async def wait_for_end(client: Watcher, uri: str, turn: str) -> dict[str, Any]:
    """Wait for the end of the turn; returns it."""

    def found() -> dict[str, Any] | None:
        turns = client.state(uri)["turns"]
        return next((each for each in turns if each["id"] == turn), None)

    ended: dict[str, Any] = await client.until(found, 60)
    return ended


async def run_turn(client: Watcher, uri: str, text: str) -> dict[str, Any]:
    """Run a turn to its end; returns it."""
    return await wait_for_end(client, uri, await start_turn(client, uri, text))


async def rejection_reason(client: Watcher, action: dict[str, Any]) -> str:
    """Dispatch an action that the host rejects; returns the reason."""
    echo = await client.echo(await client.dispatch(action))
    assert echo["action"] == action
    return str(echo["rejectionReason"])


def text_of(turn: dict[str, Any]) -> str:
    return "".join(part["content"] for part in turn["responseParts"] if part["kind"] == "markdown")


def call_of(client: Watcher, uri: str, name: str) -> dict[str, Any] | None:
    """The newest call of this tool in the active turn."""
    turn = client.state(uri).get("activeTurn")
    parts = [] if turn is None else turn["responseParts"]
    calls = [part["toolCall"] for part in parts if part["kind"] == "toolCall" and part["toolCall"]["toolName"] == name]
    return calls[-1] if calls else None


async def wait_for_call(client: Watcher, uri: str, name: str, status: str) -> dict[str, Any]:
    """Wait until the call is in this state; returns it."""

    def found() -> dict[str, Any] | None:
        call = call_of(client, uri, name)
        return call if call is not None and call["status"] == status else None

    there: dict[str, Any] = await client.until(found, 60)
    return there


def call_action(kind: str, uri: str, turn: str, call: str, **members: Any) -> dict[str, Any]:
    return {"type": f"session/{kind}", "session": uri, "turnId": turn, "toolCallId": call, **members}
