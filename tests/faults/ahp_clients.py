"""Well-behaved AHP clients for fault tests: they reconnect to any web and resend actions that were not acknowledged.

Each mirrors sessions that others act in too. The Watcher checks each client's messages against the protocol. This module
checks all clients together: a sequence number has one meaning, and an accepted turn exists exactly once.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.exceptions import WebSocketException

from sessions_app.ahp.client.client import Disconnected, Envelope
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_steps import text_of
from tests.e2e.ahp_watcher import Watcher, url_of
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

WORDS = 8
TIMEOUT = 120.0
UNSEEN_SEQ = 2**40
"""A sequence number that no host has given; clients that claim to have seen it get snapshots."""
CONNECTION_ERRORS = (OSError, Disconnected, WebSocketException)
"""A timeout is an OSError too."""


@dataclass
class Observations:
    """What all clients of a test have received."""

    envelopes: dict[int, Any] = field(default_factory=dict)
    accepted: dict[tuple[str, str], str] = field(default_factory=dict)
    """The user message of each accepted turn, by session and turn."""
    queued: dict[tuple[str, str], str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    """The model's complete answer to each message."""
    replays: int = 0
    snapshots: int = 0
    resent: int = 0
    refused: int = 0

    def record(self, envelope: Envelope) -> None:
        """Fails if a sequence number is used twice."""
        said = {name: value for name, value in envelope.items() if name != "serverSeq"}
        before = self.envelopes.setdefault(envelope["serverSeq"], said)
        assert before == said, f"number {envelope['serverSeq']} was {before}, and is {said}"

    def __str__(self) -> str:
        return (
            f"{len(self.accepted)} turns, {len(self.queued)} messages queued, {len(self.envelopes)} envelopes,"
            f" reconnected by replay {self.replays} times,"
            f" by snapshot {self.snapshots}, resent {self.resent}, refused {self.refused}"
        )


class AhpClient:
    """One client and the sessions that it watches; it acts in the first one."""

    def __init__(self, server: Server, model: ModelServer, observed: Observations, name: str, uris: list[str], seed: int) -> None:
        self.observed, self.name, self.uris = observed, name, uris
        self._server, self._model = server, model
        self._chance = random.Random(f"{seed} {name}")
        self._unacknowledged: dict[int, dict[str, Any]] = {}
        self._uncertain: dict[int, set[int]] = {}
        """Actions resent after a snapshot, by the sequence number of the action sent after them."""
        self._count = 0
        self.client = Watcher(url_of(server, 0), server.keys.alice, name, on_envelope=observed.record)

    # --- the connection ---

    async def connect(self) -> None:
        while True:
            self.client.url = url_of(self._server, self._chance.randrange(2))
            try:
                await self.client.open()
                await self.client.initialize(ROOT, *self.uris)
            except (*CONNECTION_ERRORS, RPCError):
                await self.client.close()
                await asyncio.sleep(0.05)
            else:
                return

    async def reconnect(self) -> None:
        """By replay, or sometimes by snapshots; then resend unacknowledged actions."""
        how = await self._reconnect()
        self._settle()
        with suppress(*CONNECTION_ERRORS):
            await self._resend(how)

    async def _reconnect(self) -> str:
        async with asyncio.timeout(TIMEOUT):
            while True:
                if self.client.broken is not None:
                    raise self.client.broken
                self.client.url = url_of(self._server, self._chance.randrange(2))
                if self._chance.random() < 0.2:
                    self.client.last_seq = UNSEEN_SEQ
                try:
                    how = await self.client.reconnect()
                    break
                except (*CONNECTION_ERRORS, RPCError):
                    await asyncio.sleep(0.05)
        if how == "replay":
            self.observed.replays += 1
        else:
            self.observed.snapshots += 1
        return how

    async def _resend(self, how: str) -> None:
        again = dict(self._unacknowledged)
        for seq, action in again.items():
            self.observed.resent += 1
            await self.client.notify("dispatchAction", {"clientSeq": seq, "action": action})
        if again and how == "snapshot":
            # Echoes from before the snapshot are not sent again. The echo of this new action comes after all of them.
            action = {"type": "session/isReadChanged", "session": self.uris[0], "isRead": True}
            self._uncertain[await self._dispatch(action)] = set(again)

    async def close(self) -> None:
        await self.client.close()

    # --- actions ---

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._act()
                # A pause between actions: the test needs many clients at once, not races of their commands.
                await asyncio.sleep(self._chance.uniform(0.3, 1.2))
            except CONNECTION_ERRORS as lost:
                if isinstance(lost, TimeoutError) and self.client.is_connected:
                    raise
                await self.reconnect()

    async def wait_idle(self) -> None:
        """Wait until no action is unacknowledged and no turn runs in its sessions."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                try:
                    await self.client.request("ping")
                    self._settle()
                    await self.client.until(self._is_idle, TIMEOUT)
                    return
                except CONNECTION_ERRORS:
                    if self.client.is_connected:
                        raise
                    await self.reconnect()

    def _is_idle(self) -> bool:
        return not self._still_unacknowledged() and not any(map(self._active, self.uris))

    def _active(self, uri: str) -> Any:
        return self.client.state(uri).get("activeTurn")

    async def _act(self) -> None:
        uri = self.uris[0]
        self._count += 1
        match self._chance.choices(("turn", "queue", "title", "read", "cancel", "cut", "wait"), (6, 2, 2, 1, 1, 1, 3))[0]:
            case "turn":
                turn = f"{self.name}.{self._count}"
                said = {"turnId": turn, "userMessage": {"text": self._prompt()}}
                await self._say({"type": "session/turnStarted", "session": uri, **said})
                await self.client.until(lambda: self._active(uri) is None, TIMEOUT)
            case "queue" if not self.client.state(uri).get("queuedMessages"):
                said = {"kind": "queued", "id": f"{self.name}.q{self._count}", "userMessage": {"text": self._prompt()}}
                await self._say({"type": "session/pendingMessageSet", "session": uri, **said})
            case "title":
                await self._say({"type": "session/titleChanged", "session": uri, "title": f"{self.name} {self._count}"})
            case "read":
                await self._say({"type": "session/isReadChanged", "session": uri, "isRead": self._count % 2 == 0})
            case "cancel":
                if (active := self._active(uri)) is not None:
                    await self._say({"type": "session/turnCancelled", "session": uri, "turnId": active["id"]})
            case "cut":
                self.client.cut()
                await self.client.until(lambda: False)
            case "wait":
                seen = len(self.client.seen)
                with suppress(TimeoutError):
                    await self.client.until(lambda: len(self.client.seen) > seen, 0.3)

    def _prompt(self) -> str:
        words = [f"{self.name}.{self._count}w{word} " for word in range(WORDS)]
        name = f"{self.name} says {self._count}"
        self._model.script([step for word in words for step in (steps.text(word), steps.pause(0.02))], name=name)
        self.observed.answers[name] = "".join(words)
        return name

    async def _say(self, action: dict[str, Any]) -> None:
        seq = await self._dispatch(action)
        await self.client.until(lambda: seq not in self._still_unacknowledged(), TIMEOUT)

    async def _dispatch(self, action: dict[str, Any]) -> int:
        dispatching = self.client.dispatch(action)
        try:
            seq = await dispatching
        except CONNECTION_ERRORS:
            # Its sequence number is the newest of those that the mirror applied before the host confirmed them.
            seq = self.client.mirrors[action["session"]].ahead[-1][0]
            self._unacknowledged[seq] = action
            raise
        self._unacknowledged[seq] = action
        return seq

    # --- outcomes ---

    def _still_unacknowledged(self) -> dict[int, dict[str, Any]]:
        self._settle()
        return self._unacknowledged

    def _settle(self) -> None:
        """Remove actions that were echoed or refused or, after a snapshot, that the state shows."""
        for seq, action in list(self._unacknowledged.items()):
            echo = self.client._echo_of(seq)
            if echo is None and not self._is_shown(action):
                continue
            del self._unacknowledged[seq]
            if echo is not None and "rejectionReason" in echo:
                self.observed.refused += 1
                continue
            uri = action["session"]
            if action["type"] == "session/turnStarted":
                self.observed.accepted[uri, action["turnId"]] = action["userMessage"]["text"]
            elif action["type"] == "session/pendingMessageSet":
                self.observed.queued[uri, action["id"]] = action["userMessage"]["text"]
        for after, seqs in list(self._uncertain.items()):
            if self.client._echo_of(after) is not None:
                for seq in seqs:
                    self._unacknowledged.pop(seq, None)
                del self._uncertain[after]

    def _is_shown(self, action: dict[str, Any]) -> bool:
        state = self.client.state(action["session"])
        turns = [*state["turns"], *([state["activeTurn"]] if "activeTurn" in state else [])]
        match action["type"]:
            case "session/turnStarted":
                return any(turn["id"] == action["turnId"] for turn in turns)
            case "session/pendingMessageSet":
                waiting = state.get("queuedMessages", [])
                text = action["userMessage"]["text"]
                return any(each["id"] == action["id"] for each in waiting) or any(t["userMessage"]["text"] == text for t in turns)
        return False


async def all_turns(client: Any, uri: str) -> list[dict[str, Any]]:
    """All pages of a session's turns."""
    turns: list[dict[str, Any]] = []
    while True:
        before = {"before": turns[0]["id"]} if turns else {}
        page = await client.request("fetchTurns", {"session": uri, "limit": 200, **before})
        turns = page["turns"] + turns
        if not page["hasMore"]:
            return turns


def check_turns(observed: Observations, uri: str, state: dict[str, Any], turns: list[dict[str, Any]]) -> None:
    """Each accepted turn exists once, each queued message waits or became a turn once, and no text was repeated."""
    ids = [turn["id"] for turn in turns]
    assert len(ids) == len(set(ids)), f"a turn is in {uri} twice"
    texts = [turn["userMessage"]["text"] for turn in turns]
    for (where, turn), text in observed.accepted.items():
        if where == uri:
            assert ids.count(turn) == 1, f"turn {turn} of {uri} was accepted and is there {ids.count(turn)} times"
            assert texts.count(text) == 1, f"{text!r} was said once in {uri} and is there {texts.count(text)} times"
    waiting = [each["id"] for each in state.get("queuedMessages", [])]
    for (where, message), text in observed.queued.items():
        if where == uri:
            times = texts.count(text) + waiting.count(message)
            assert times == 1, f"message {message} of {uri} was accepted and is there {times} times"
    for each in turns:
        whole, said = observed.answers[each["userMessage"]["text"]], text_of(each)
        if each["state"] == "complete":
            assert said == whole, f"turn {each['id']} says {said!r} instead of {whole!r}"
        else:
            assert whole.startswith(said), f"turn {each['id']} says {said!r}, which is no beginning of {whole!r}"
