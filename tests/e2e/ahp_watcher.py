"""The project's AHP client with checks: frames against the protocol, folded states against snapshots.

The law: a state at N, folded with the actions after N, equals the current state (R65, R70). It is checked at each new
subscription to a resource, because the snapshot has a position among the actions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sessions_app.ahp.client.client import Client, State
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.server import Server
from tests.faces.ahp.audit import Audit


class Watcher(Client):
    def __init__(self, url: str, key: str, client_id: str, **options: Any) -> None:
        super().__init__(url, key, client_id, on_frame=self._judge, **options)
        self.judged = 0
        self.codes: set[int] = set()
        """Of all errors that came."""
        self._audit = Audit()
        self._last = 0

    async def open(self) -> None:
        self._audit, self._last = Audit(), 0
        await super().open()

    async def send(self, frame: str | bytes) -> None:
        if isinstance(frame, str):
            self._audit.asked(frame)
        await super().send(frame)

    def _judge(self, frame: str) -> None:
        message = self._audit.heard(frame)
        if message.get("method") == "action":
            seq = message["params"]["serverSeq"]
            assert seq > self._last, f"envelope {seq} came after {self._last}"
            self._last = seq
        if "error" in message:
            self.codes.add(message["error"]["code"])

    def compare(self, uri: str, folded: State, received: State) -> None:
        self.judged += 1
        found = differences(without_clock(folded), without_clock(received))
        assert not found, f"the law is broken for {uri}: {'; '.join(found[:5])}"

    def all_answered(self) -> None:
        """Everything that was asked before the last answer."""
        self._audit.all_answered()

    async def check(self, uri: str) -> State:
        """Compare the folded state with a new snapshot of the host."""
        before = self.judged
        state = await self.subscribe(uri)
        assert self.judged == before + 1
        return state


def without_clock(state: Mapping[str, Any]) -> dict[str, Any]:
    """Each side stamps ``modifiedAt`` with its own clock (R70)."""
    if "summary" not in state:
        return dict(state)
    return {**state, "summary": {**state["summary"], "modifiedAt": 0}}


def differences(folded: Any, told: Any, place: str = "") -> list[str]:
    """Where two states differ, what was folded first."""
    if isinstance(folded, dict) and isinstance(told, dict):
        found = []
        for name in dict.fromkeys([*folded, *told]):
            if name not in folded or name not in told:
                found.append(f"{place}.{name}: {folded.get(name, 'nothing')!r} | {told.get(name, 'nothing')!r}")
            else:
                found += differences(folded[name], told[name], f"{place}.{name}")
        return found
    if isinstance(folded, list) and isinstance(told, list) and len(folded) == len(told):
        pairs = enumerate(zip(folded, told, strict=True))
        return [each for index, pair in pairs for each in differences(*pair, f"{place}[{index}]")]
    return [] if folded == told else [f"{place}: {folded!r} | {told!r}"]


def url_of(server: Server, index: int = 0) -> str:
    return server.origin(index).replace("http://", "ws://") + "/ahp"


@asynccontextmanager
async def watching(
    server: Server, key: str, client_id: str = "watcher", *subscriptions: str, index: int = 0, **options: Any
) -> AsyncIterator[Watcher]:
    """A client that has shaken hands."""
    client = Watcher(url_of(server, index), key, client_id, **options)
    await client.open()
    try:
        await client.initialize(*(subscriptions or (ROOT,)))
        yield client
        if client.broken is not None:
            raise client.broken
    finally:
        await client.close()
