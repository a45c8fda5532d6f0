"""AHP clients that behave well while everything around them dies: they come back to any web and send again what was not heard.

Each mirrors sessions that others act in too. What it is told is held against the protocol by the watcher it is; what
all of them are told together is held here: a number means one thing for ever, an accepted turn is there once.
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
PATIENCE = 120.0
AHEAD = 2**40
"""No number that a host has given: whoever says it has seen this gets snapshots."""
LOST = (OSError, Disconnected, WebSocketException)
"""A timeout is an OSError too."""


@dataclass
class Told:
    """What all clients of a test were told together."""

    envelopes: dict[int, Any] = field(default_factory=dict)
    accepted: dict[tuple[str, str], str] = field(default_factory=dict)
    """The text of the user's message of each turn that the host has taken, by session and turn."""
    queued: dict[tuple[str, str], str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    """What the model says to a message, when it says all of it."""
    replays: int = 0
    snapshots: int = 0
    said_again: int = 0
    refused: int = 0

    def heard(self, envelope: Envelope) -> None:
        """A number that is given twice shows here."""
        said = {name: value for name, value in envelope.items() if name != "serverSeq"}
        before = self.envelopes.setdefault(envelope["serverSeq"], said)
        assert before == said, f"number {envelope['serverSeq']} was {before}, and is {said}"

    def __str__(self) -> str:
        return (
            f"{len(self.accepted)} turns, {len(self.queued)} messages queued, {len(self.envelopes)} numbers, came back by replay"
            f" {self.replays} times, by snapshot {self.snapshots}, said again {self.said_again}, refused {self.refused}"
        )


class Sailor:
    """One client and the sessions it looks at, in the first of which it acts."""

    def __init__(self, server: Server, model: ModelServer, told: Told, name: str, uris: list[str], seed: int) -> None:
        self.told, self.name, self.uris = told, name, uris
        self._server, self._model = server, model
        self._chance = random.Random(f"{seed} {name}")
        self._unheard: dict[int, dict[str, Any]] = {}
        self._doubtful: dict[int, set[int]] = {}
        """What was said again after snapshots, by the number of what was said after it."""
        self._count = 0
        self.client = Watcher(url_of(server, 0), server.keys.alice, name, on_envelope=told.heard)

    # --- the connection ---

    async def come(self) -> None:
        while True:
            self.client.url = url_of(self._server, self._chance.randrange(2))
            try:
                await self.client.open()
                await self.client.initialize(ROOT, *self.uris)
            except (*LOST, RPCError):
                await self.client.close()
                await asyncio.sleep(0.05)
            else:
                return

    async def come_back(self) -> None:
        """By replay, or now and then by snapshots; then say again what nobody has answered."""
        how = await self._back()
        self._settle()
        with suppress(*LOST):
            await self._say_again(how)

    async def _back(self) -> str:
        async with asyncio.timeout(PATIENCE):
            while True:
                if self.client.broken is not None:
                    raise self.client.broken
                self.client.url = url_of(self._server, self._chance.randrange(2))
                if self._chance.random() < 0.2:
                    self.client.last_seq = AHEAD
                try:
                    how = await self.client.reconnect()
                    break
                except (*LOST, RPCError):
                    await asyncio.sleep(0.05)
        if how == "replay":
            self.told.replays += 1
        else:
            self.told.snapshots += 1
        return how

    async def _say_again(self, how: str) -> None:
        again = dict(self._unheard)
        for seq, action in again.items():
            self.told.said_again += 1
            await self.client.notify("dispatchAction", {"clientSeq": seq, "action": action})
        if again and how == "snapshot":
            # What was handled before has its echo in what nobody will tell again. This comes after it, and is new.
            action = {"type": "session/isReadChanged", "session": self.uris[0], "isRead": True}
            self._doubtful[await self._dispatch(action)] = set(again)

    async def leave(self) -> None:
        await self.client.close()

    # --- what it does ---

    async def live(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._act()
                # People think before they speak: what is wanted is many at once, not a race of their commands.
                await asyncio.sleep(self._chance.uniform(0.3, 1.2))
            except LOST as lost:
                if isinstance(lost, TimeoutError) and self.client.is_connected:
                    raise
                await self.come_back()

    async def settled(self) -> None:
        """Nothing of its is on its way, and nothing runs in its sessions."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.client.request("ping")
                    self._settle()
                    await self.client.until(lambda: not self._still_unheard() and not any(map(self._active, self.uris)), PATIENCE)
                    return
                except LOST:
                    if self.client.is_connected:
                        raise
                    await self.come_back()

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
                await self.client.until(lambda: self._active(uri) is None, PATIENCE)
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
        self.told.answers[name] = "".join(words)
        return name

    async def _say(self, action: dict[str, Any]) -> None:
        seq = await self._dispatch(action)
        await self.client.until(lambda: seq not in self._still_unheard(), PATIENCE)

    async def _dispatch(self, action: dict[str, Any]) -> int:
        dispatching = self.client.dispatch(action)
        try:
            seq = await dispatching
        except LOST:
            # Its number is the last of those that its mirror shows ahead of the host.
            seq = self.client.mirrors[action["session"]].ahead[-1][0]
            self._unheard[seq] = action
            raise
        self._unheard[seq] = action
        return seq

    # --- what became of it ---

    def _still_unheard(self) -> dict[int, dict[str, Any]]:
        self._settle()
        return self._unheard

    def _settle(self) -> None:
        """Strike off what was echoed or refused; after snapshots, what the state shows or the host has handled before."""
        for seq, action in list(self._unheard.items()):
            echo = self.client._echo_of(seq)
            if echo is None and not self._is_shown(action):
                continue
            del self._unheard[seq]
            if echo is not None and "rejectionReason" in echo:
                self.told.refused += 1
                continue
            uri = action["session"]
            if action["type"] == "session/turnStarted":
                self.told.accepted[uri, action["turnId"]] = action["userMessage"]["text"]
            elif action["type"] == "session/pendingMessageSet":
                self.told.queued[uri, action["id"]] = action["userMessage"]["text"]
        for after, seqs in list(self._doubtful.items()):
            if self.client._echo_of(after) is not None:
                for seq in seqs:
                    self._unheard.pop(seq, None)
                del self._doubtful[after]

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


def check_turns(told: Told, uri: str, state: dict[str, Any], turns: list[dict[str, Any]]) -> None:
    """Each accepted turn is there once, each queued message is waiting or was a turn once, and no word came twice."""
    ids = [turn["id"] for turn in turns]
    assert len(ids) == len(set(ids)), f"a turn is in {uri} twice"
    texts = [turn["userMessage"]["text"] for turn in turns]
    for (where, turn), text in told.accepted.items():
        if where == uri:
            assert ids.count(turn) == 1, f"turn {turn} of {uri} was accepted and is there {ids.count(turn)} times"
            assert texts.count(text) == 1, f"{text!r} was said once in {uri} and is there {texts.count(text)} times"
    waiting = [each["id"] for each in state.get("queuedMessages", [])]
    for (where, message), text in told.queued.items():
        if where == uri:
            times = texts.count(text) + waiting.count(message)
            assert times == 1, f"message {message} of {uri} was accepted and is there {times} times"
    for each in turns:
        whole, said = told.answers[each["userMessage"]["text"]], text_of(each)
        if each["state"] == "complete":
            assert said == whole, f"turn {each['id']} says {said!r} instead of {whole!r}"
        else:
            assert whole.startswith(said), f"turn {each['id']} says {said!r}, which is no beginning of {whole!r}"
