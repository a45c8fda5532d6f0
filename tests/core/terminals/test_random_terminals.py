"""Random histories of terminals: what a client of any version saw at any time leads to what a new client gets.

No program runs: the test appends what a service would. Checked for the terminal and for the root's list, in 0.1, 0.9, 1.0, and as
an editor sees it that finds agents in URIs.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_1.projection import actions as v0_1
from sessions_app.ahp.versions.v0_1.projection import terminals as v0_1_terminals
from sessions_app.ahp.versions.v0_1.reducers import reduce_root, reduce_terminal
from sessions_app.ahp.versions.v0_9 import reducers as v0_9
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import terminals
from sessions_app.ahp.versions.v0_9.projection.actions import Projection
from sessions_app.ahp.versions.v1_0 import reducers as v1_0
from sessions_app.core.base import journal_keys
from sessions_app.core.base.caller import EVERYTHING
from sessions_app.core.base.errors import DomainError
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Event, NewEvent
from sessions_app.core.records import addresses
from sessions_app.core.terminals import changing, checkpoints, creating, ending, listing, services, state
from sessions_app.core.terminals.types import Claim
from sessions_app.core.workspaces import volume
from sessions_app.models import Session, Terminal
from tests.core.client_actions import make
from tests.core.conftest import World
from tests.core.dispatching import action

URI = "term:/one"
STEPS = 60
FACES: list[tuple[Face, Any]] = [(Face("0.9"), v0_9), (Face("1"), v1_0), (Face("1", dialect="by provider"), v1_0)]

States = list[dict[str, Any]]
"""What each version shows, 0.1 first: the root's list and the terminal."""


class History:
    """One terminal, the clients that use it, and its program."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.caller = world, world.caller
        self.random = random.Random(seed)
        self.session: Session = make(world)
        services.renew("mine")
        uri = addresses.of(self.session)
        first = self.random.choice([Claim(client="c1"), Claim(session=uri, turn="t", call="c"), Claim(session=uri)])
        creating.create(self.caller, creating.Wanted(URI, first), "c1")
        services.claim("mine", 10)
        self.row = Terminal.objects.get()
        self.commands: list[str] = []
        self.seen: list[tuple[int, States]] = []

    def say(self, *happenings: Happening) -> None:
        with journal.transaction() as tx:
            for each in happenings:
                tx.append(NewEvent(self.row.tenant_id, journal_keys.of_terminal(self.row.pk), each, 1))

    # --- the program ---

    def print(self) -> None:
        self.say(Happening(Kind.TERMINAL_DATA, {"delta": f"{self.random.random()}\r\n\x1b[1m€"}, "output"))

    def start_command(self) -> None:
        self.commands.append(f"c{len(self.commands)}")
        payload = {"command": self.commands[-1], "line": "ls -l", "at": 1_700_000_000_000}
        self.say(Happening(Kind.TERMINAL_COMMANDS_AVAILABLE, {}), Happening(Kind.TERMINAL_COMMAND_STARTED, payload))

    def end_command(self) -> None:
        if self.commands:
            outcome: dict[str, Any] = self.random.choice([{}, {"code": 0, "ms": 4}, {"code": 7}])
            payload = {"command": self.random.choice(self.commands), **outcome}
            self.say(Happening(Kind.TERMINAL_COMMAND_ENDED, payload))

    def retitle(self) -> None:
        ending.retitle(self.row.pk, 1, self.random.choice(["", "vim", "top"]))

    def move(self) -> None:
        ending.change_directory(self.row.pk, 1, self.random.choice(["file:///a", "file:///b"]))

    def exit(self) -> None:
        if self.random.random() < 0.1:
            ending.exited(self.row.pk, 1, self.random.choice([None, 0, 3]), message=self.random.choice(["", "the end"]))

    # --- clients ---

    def type(self) -> None:
        changing.type_into(self.caller, self._found(), "ls\n", dispatched=action())

    def resize(self) -> None:
        size = self.random.randint(1, 1000), self.random.randint(1, 1000)
        changing.resize(self.caller, self._found(), *size, dispatched=action())

    def rename(self) -> None:
        changing.rename(self.caller, self._found(), self.random.choice(["mine", "ours"]), dispatched=action())

    def clear(self) -> None:
        changing.clear(self.caller, self._found(), dispatched=action())

    def claim(self) -> None:
        uri = addresses.of(self.session)
        wanted = [Claim(client="c1"), Claim(client="c2"), Claim(session=uri), Claim(session=uri, turn="t", call="c")]
        changing.claim(self.caller, self._found(), self.random.choice(wanted), "c1", dispatched=action())

    def _found(self) -> Terminal:
        return Terminal.objects.get(pk=self.row.pk)

    # --- the server ---

    def checkpoint(self) -> None:
        checkpoints.store(self.row.pk)

    def act(self) -> None:
        often = [self.print, self.type, self.start_command, self.end_command]
        rare = [
            *(self.retitle, self.move, self.exit, self.resize, self.rename, self.clear, self.claim, self.checkpoint),
        ]
        with suppress(DomainError, journal.StaleFence):
            self.random.choice(often if self.random.random() < 0.6 else rare)()
        self.seen.append(self.see())

    def see(self) -> tuple[int, States]:
        view = state.read(self.caller, self._found())
        _, _, _, entries = listing.root(self.caller)
        shown: States = [{"list": [v0_1_terminals.info_of(each) for each in entries], "terminal": v0_1_terminals.state_of(view)}]
        for face, _ in FACES:
            infos = [terminals.info_of(each, face) for each in entries]
            shown.append({"list": infos, "terminal": terminals.state_of(view, face)})
        return view.seq, json.loads(json.dumps(shown))


def fold(before: States, events: list[Event], tenant: int) -> States:
    """What the clients that had these states have now; each event is at most one action for each."""
    old, *others = json.loads(json.dumps(before))
    for event in events:
        if event.session == journal_keys.of_tenant(tenant):
            if (text := v0_1.root_envelope(event, EVERYTHING)) is not None:
                old["list"] = reduce_root({"agents": [], "terminals": old["list"]}, exact_json.loads(text)["action"], 0)[
                    "terminals"
                ]
        elif (found := v0_1.action_of(event, URI)) is not None:
            old["terminal"] = reduce_terminal(old["terminal"], found, 0)
    for (face, reducers), held in zip(FACES, others, strict=True):
        projection, channel = Projection(face), Channel(journal_keys.of_terminal(Terminal.objects.get().pk), URI, "terminal")
        for event in events:
            if event.session == journal_keys.of_tenant(tenant):
                if (text := projection.root_envelope(event, EVERYTHING)) is not None:
                    held["list"] = reducers.reduce({"terminals": held["list"]}, exact_json.loads(text)["action"])["terminals"]
            elif (found := projection.action_of(event, channel)) is not None:
                held["terminal"] = reducers.reduce(held["terminal"], found)
    return [without_nulls(each) for each in (old, *others)]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.rule("V56", "V54", "V230", "V231", "V232", "V305", "V400", "V401", "R65")
@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 14))])
def test_every_state_of_a_terminal_leads_to_the_present_one_in_every_version(
    seed: int, alice: World, tmp_path: Path, settings: Any
) -> None:
    settings.AGENTHOST_WORKSPACES_DIR, settings.AGENTHOST_TERMINALS = tmp_path / "workspaces", True
    volume.forget()
    history = History(alice, seed)
    for _ in range(STEPS):
        history.act()
    upto, now = history.see()
    tenant = alice.caller.tenant
    keys = journal_keys.of_tenant(tenant), journal_keys.of_terminal(history.row.pk)
    events = sorted((each for key in keys for each in journal.events_of(key, 0)), key=lambda each: each.seq)
    for seq, shown in history.seen:
        assert fold(shown, [each for each in events if seq < each.seq <= upto], tenant) == without_nulls(now)
