"""The project's client of AHP 0.9 and 1.0 with checks: frames against the protocol, folded states against snapshots.

The law (V56): a snapshot at N, folded with the envelopes after N, equals a later snapshot. It is checked at each new subscription
to a channel. No action sets a session's activity bits and a chat's title.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.client.client import Client, Envelope, State
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.for_clients import V0_9, V1_0
from sessions_app.ahp.versions.v0_9.spelling import chat_uri
from sessions_app.ahp.versions.v0_9.wire import commands as commands_0_9
from sessions_app.ahp.versions.v0_9.wire import envelopes as envelopes_0_9
from sessions_app.ahp.versions.v0_9.wire.state import ROOT
from sessions_app.ahp.versions.v1_0.wire import commands as commands_1_0
from sessions_app.ahp.versions.v1_0.wire import envelopes as envelopes_1_0
from tests.e2e.ahp_watcher import differences

__all__ = ["ROOT", "V0_9", "V1_0", "Mirror", "chat_uri", "mirroring"]

STARTED = "2026-01-01T10:00:00.000Z"
_numbers = itertools.count(1)


class Mirror(Client):
    def __init__(self, url: str, key: str, client_id: str, version: ClientVersion = V1_0, **options: Any) -> None:
        super().__init__(url, key, client_id, on_frame=self._judge, version=version, **options)
        self.judged = 0
        is_0_9 = version is V0_9
        self._faults = envelopes_0_9.envelope_faults if is_0_9 else envelopes_1_0.envelope_faults
        self._known = envelopes_0_9.KNOWN if is_0_9 else envelopes_1_0.KNOWN
        self._commands = commands_0_9.COMMANDS if is_0_9 else commands_1_0.COMMANDS
        self._methods: dict[Any, str] = {}
        self._last: dict[str, int] = {}

    async def open(self) -> None:
        self._last = {}
        await super().open()

    async def send(self, frame: str | bytes) -> None:
        if isinstance(frame, str) and frame.startswith("{"):
            message = exact_json.loads(frame)
            if "id" in message and "method" in message:
                self._methods[message["id"]] = message["method"]
        await super().send(frame)

    def _judge(self, frame: str) -> None:
        message = exact_json.loads(frame)
        if message.get("method") == "action":
            self._judge_envelope(message["params"])
        elif "result" in message and (command := self._commands.get(self._methods.get(message["id"], ""))) is not None:
            faults = command.result.faults(message["result"])
            assert not faults, (self._methods[message["id"]], [fault.describe("result") for fault in faults])

    def _judge_envelope(self, envelope: Envelope) -> None:
        faults = self._faults(envelope)
        assert not faults, (envelope, [fault.describe("params") for fault in faults])
        seq, channel = envelope["serverSeq"], envelope["channel"]
        if "rejectionReason" not in envelope:
            assert envelope["action"]["type"] in self._known, envelope
            assert seq > self._last.get(channel, 0), f"{channel}: {seq} came after {self._last[channel]}"
            self._last[channel] = seq

    def compare(self, uri: str, folded: State, received: State) -> None:
        self.judged += 1
        found = differences(comparable(folded), comparable(received))
        assert not found, f"the law is broken for {uri}: {'; '.join(found[:5])}"

    async def check(self, uri: str) -> State:
        """Compare the folded state with a new snapshot of the host."""
        before = self.judged
        state = await self.subscribe(uri)
        assert self.judged == before + 1
        return state

    async def create(self, agent: str = "echo", uri: str | None = None, **params: Any) -> tuple[str, str]:
        """Create a session and subscribe to it and its chat, all at once; returns their URIs."""
        uri = uri or f"ahp-session:/{secrets.token_hex(8)}"
        answers = (
            self.ask("createSession", {"channel": uri, "provider": agent, **params}),
            self.ask("subscribe", {"channel": uri}),
            self.ask("subscribe", {"channel": chat_uri(uri)}),
        )
        await asyncio.gather(*answers)
        return uri, chat_uri(uri)

    async def act(self, channel: str, type_: str, **members: Any) -> Envelope:
        """Dispatch an action and wait for its echo, which must not be a rejection."""
        echo = await self.echo(await self.dispatch({"type": type_, **members}, channel), 60)
        assert "rejectionReason" not in echo, echo
        return echo

    async def refused(self, channel: str, type_: str, **members: Any) -> str:
        """Dispatch an action that the host rejects; returns the reason."""
        action = {"type": type_, **members}
        echo = await self.echo(await self.dispatch(action, channel), 60)
        assert (echo["action"], echo["channel"]) == (action, channel)
        assert echo["rejectionReason"]
        return str(echo["rejectionReason"])

    async def code_of(self, method: str, **params: Any) -> int:
        """The code of the error of this request."""
        with pytest.raises(RPCError) as failed:
            await self.request(method, params)
        assert failed.value.message
        return failed.value.code

    async def start(self, chat: str, text: str, **members: Any) -> str:
        turn = f"turn-{next(_numbers)}"
        message = {"text": text, "origin": {"kind": "user"}}
        await self.act(chat, "chat/turnStarted", turnId=turn, **{"startedAt": STARTED, "message": message, **members})
        return turn

    async def turn_ended(self, chat: str, turn: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((each for each in self.state(chat)["turns"] if each["id"] == turn), None)

        turn_: dict[str, Any] = await self.until(found, 60)
        return turn_

    async def needed(self, session: str, kind: str) -> dict[str, Any]:
        """Wait for an entry of ``inputNeeded``."""

        def found() -> dict[str, Any] | None:
            entries = self.state(session).get("inputNeeded", [])
            return next((each for each in entries if each["kind"] == kind), None)

        entry: dict[str, Any] = await self.until(found, 60)
        return entry

    def types(self, *channels: str) -> list[str]:
        """The types of all actions that came on these channels, in order."""
        return [each["action"]["type"] for each in self.seen if each["channel"] in channels]


def comparable(state: Any) -> Any:
    """Without nulls, a session's activity bits and a chat's title."""
    shown = _without_nulls(state)
    if "lifecycle" in shown and "chats" in shown:
        shown = {**shown, "status": shown["status"] & ~31}
    elif "turns" in shown:
        shown = {name: value for name, value in shown.items() if name != "title"}
    return shown


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


@asynccontextmanager
async def mirroring(
    url: str, key: str, client_id: str = "mirror", *subscriptions: str, version: ClientVersion = V1_0, **options: Any
) -> AsyncIterator[Mirror]:
    """A client after its handshake, subscribed to the root unless ``subscriptions`` are named."""
    client = Mirror(url, key, client_id, version, **options)
    await client.open()
    try:
        await client.initialize(*(subscriptions or (ROOT,)))
        yield client
        if client.broken is not None:
            raise client.broken
    finally:
        await client.close()
