"""Random sequences of all client actions, while processes are killed.

Each walker follows its own seed: it starts turns, answers calls or not, cancels, leaves and rejoins streams, and deletes
sessions. After each step the events it received must match the history, and at the end no turn may be stuck.
"""

from __future__ import annotations

import itertools
import logging
import random
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e import sse
from tests.e2e.client import deny, grant, tool, turn_body, user
from tests.e2e.sse import SseEvent
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.faults.clients import CLIENT_TOOL, Fault, Observations, RetryingClient, Run, acceptable, acceptable_requests
from tests.faults.cluster import Cluster

log = logging.getLogger(__name__)

ASKING = {"name": "pilot", "tools": [{"name": "tide_table", "trust": True}, {"name": "order_rope"}]}
REPLACED = "Tool call denied: the user sent a new message instead"
NOTES = ("Tool call denied", "Tool execution failed: interrupted")


@dataclass
class Walker:
    """Uses one session after the other, and keeps the expected history of the current one."""

    client: RetryingClient
    model: ModelServer
    seed: int
    done: list[str] = field(default_factory=list)
    session: str = ""
    seen: list[dict[str, Any] | None] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    """Calls that wait for an answer."""
    ropes: list[float] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def walk(self, count: int) -> None:
        self.create()
        for _ in range(count):
            step = self.chance.choice(self.possible())
            self.done.append(step.__name__)
            step()
            self.check()
        self.done.append("last turn")
        self.start()

    def possible(self) -> list[Any]:
        steps_ = [self.start, self.start, self.start_and_leave, self.start_and_cancel, self.start_twice]
        if self.waiting:
            steps_ += [self.answer] * 4 + [self.cancel_waiting]
        return [*steps_, self.delete] if self.chance.random() < 0.3 else steps_

    # --- steps ---

    def create(self) -> None:
        self.session = self.client.create(ASKING, tools=[CLIENT_TOOL])
        self.seen, self.waiting = [], []

    def start(self) -> None:
        self._finish(*self._begin())

    def start_and_leave(self) -> None:
        """Leaves the stream after some events and resumes it by position, at any web."""
        run, prompt = self._begin()
        run.leave_after = self.chance.randrange(1, 9)
        self._finish(run, prompt)

    def start_and_cancel(self) -> None:
        run, prompt = self._begin()
        run.act_after, run.act = self.chance.randrange(1, 9), self._cancel
        self._finish(run, prompt)
        # It was cancelled while it ran or while it waited.
        self.waiting = []

    def start_twice(self) -> None:
        """A second message during a turn is refused and does not disturb the turn."""
        run, prompt = self._begin()
        run.act_after, run.act, run.others_follow = 1, self._start_second, True
        self._finish(run, prompt)

    def answer(self) -> None:
        answers: list[dict[str, Any]] = []
        kept = []
        for call in self.waiting:
            if self.chance.random() < 0.25 and len(self.waiting) > 1:
                kept.append(call)
            elif call["name"] == "mine":
                answers.append(tool(call["toolCallId"], "mine, done"))
            elif self.chance.random() < 0.7:
                answers.append(grant(call["toolCallId"]))
            else:
                answers.append(deny(call["toolCallId"], "no rope"))
        if not answers:
            return
        run = Run(self.client, self.session, turn_body(*answers, stream="delta"))
        self.seen += [each for each in answers if each["role"] == "tool"]
        self.waiting = kept
        self._finish(run, None)

    def cancel_waiting(self) -> None:
        self._cancel()
        self.waiting = []

    def delete(self) -> None:
        """Deletes the session during a turn: its reader sees an end, and then the session does not exist."""
        run, _ = self._begin()
        gone = self.session
        run.act_after, run.act = self.chance.randrange(1, 6), self._delete
        run.may_vanish = True
        run.finish()
        for path in (f"/sessions/{gone}", f"/sessions/{gone}/history?type=full"):
            if (status := self.client.ask("GET", path).status_code) != 404:
                raise Fault(f"{path} is {status} after it was deleted")
        self.create()

    def _delete(self) -> None:
        # 404 if the response to the first DELETE was lost and it is repeated.
        if (status := self.client.ask("DELETE", f"/sessions/{self.session}").status_code) not in (204, 404):
            raise Fault(f"DELETE: {status}")

    def _cancel(self) -> None:
        self.client.ok("POST", f"/sessions/{self.session}/cancel")

    def _start_second(self) -> None:
        # The key makes a repeated request the same one: its first answer may be lost with a killed web.
        key = {"Idempotency-Key": secrets.token_hex(8)}
        response = self.client.ask("POST", f"/sessions/{self.session}/turns", turn_body("me first", stream="delta"), **key)
        if response.status_code == 200:
            # The first turn was already over, so this was a separate turn.
            events = sse.parse(response.content)
            self._second_turn = _as_stored("me first", events)
        elif response.status_code != 409:
            raise Fault(f"a second turn: {response.status_code}")

    # --- turns ---

    def _begin(self) -> tuple[Run, str]:
        self._second_turn: list[dict[str, Any]] = []
        tag = f"s{self.seed}.{next(self._count)}.{secrets.token_hex(3)}"
        pause = steps.pause(self.chance.choice([0.0, 0.01, 0.05]))
        answers: list[list[steps.Step]] = []
        for step in range(self.chance.randrange(0, 3)):
            said: list[steps.Step] = [steps.thinking("hm "), steps.text(f"{tag} "), pause]
            for number in range(self.chance.randrange(1, 4)):
                call_id = f"{tag}.{step}.{number}"
                kind = self.chance.choice(["tide_table", "tide_table", "mine", "order_rope"])
                if kind == "tide_table":
                    self.client.observed.harbours.append(call_id)
                    said.append(steps.call(kind, {"harbour": call_id}, id=call_id))
                elif kind == "order_rope":
                    metres = float(secrets.randbelow(10**9)) + 0.5
                    self.ropes.append(metres)
                    said.append(steps.call(kind, {"metres": metres}, id=call_id))
                else:
                    said.append(steps.call(kind, {}, id=call_id))
            answers.append(said)
        answers.append([piece for word in range(8) for piece in (steps.text(f"{tag}w{word} "), pause)])
        prompt = self.model.script(*answers, name=f"walk {tag}")
        return Run(self.client, self.session, turn_body(prompt, stream="delta")), prompt

    def _finish(self, run: Run, prompt: str | None) -> None:
        run.finish()
        if prompt is not None:
            self.seen += _as_stored(prompt, run.events)
            self.waiting = []
        else:
            self.seen += sse.rebuilt(run.events)
        if run.unseen:
            self.seen.append(None)
        else:
            self.waiting = [call for call in [*self.waiting, *_calls(run)] if call["toolCallId"] not in run.results]
            if run.stop != "tool_use":
                self.waiting = []
            if run.stop == "tool_use" and not self.waiting:
                raise Fault("stopped with tool_use, but no call is open")
        self.seen += self._second_turn
        if self._second_turn:
            self.waiting = []

    _second_turn: list[dict[str, Any]] = field(default_factory=list)

    def check(self) -> None:
        """The history equals the received events, except for results that close unanswered calls."""
        lines = self.client.history(self.session)
        acceptable(lines)
        place = 0
        for expected in self.seen:
            if expected is None:
                while place < len(lines) and lines[place]["role"] != "user":
                    place += 1
                continue
            while place < len(lines) and lines[place] != expected and _is_note(lines[place]):
                place += 1
            if place >= len(lines) or lines[place] != expected:
                found = lines[place] if place < len(lines) else "nothing"
                raise Fault(f"line {place} of the history is {found}, but {expected} was received")
            place += 1
        if left := [line for line in lines[place:] if not _is_note(line)]:
            raise Fault(f"the history has lines that were not received: {left}")


def _as_stored(prompt: str, events: Sequence[SseEvent]) -> list[dict[str, Any]]:
    """The stored lines of a new message and its turn, after the results that close calls of the replaced turn."""
    closed = [event for event in events if event.name == "tool_result" and event.data["content"] == REPLACED]
    said = [event for event in events if event not in closed]
    return [*({"role": "tool", **event.data} for event in closed), user(prompt), *sse.rebuilt(said)]


def _calls(run: Run) -> list[dict[str, Any]]:
    return [event.data for event in run.events if event.name == "tool_call"]


def _is_note(line: dict[str, Any]) -> bool:
    return line["role"] == "tool" and isinstance(line["content"], str) and line["content"].startswith(NOTES)


def walks(cluster: Cluster, model: ModelServer, *, seed: int, walkers: int, length: int, kills: int) -> None:
    observed = Observations()
    party = [
        Walker(RetryingClient(cluster.server, observed, patience=240), model, seed * 1000 + number) for number in range(walkers)
    ]

    def walk(walker: Walker) -> None:
        try:
            walker.walk(length)
        except Exception as error:
            observed.failed(f"seed {walker.seed}, {walker.session}, {walker.done}: {type(error).__name__}: {error}")
        finally:
            walker.client.close()

    threads = [threading.Thread(target=walk, args=(walker,), daemon=True) for walker in party]
    for thread in threads:
        thread.start()
    chance = random.Random(seed)
    for _ in range(kills):
        time.sleep(chance.uniform(0.2, 2.0))
        index = chance.randrange(2)
        if chance.random() < 0.7:
            cluster.kill_worker(index)
        else:
            cluster.kill_web(index)
            cluster.server.wait_ready(index)
    for thread in threads:
        thread.join(240 + 10 * length)
    assert not observed.faults, "\n".join([str(observed), *observed.faults])
    assert not any(thread.is_alive() for thread in threads), [walker.done for walker in party]
    acceptable_requests(model)
    tools = cluster.server.tools
    for harbour in observed.harbours:
        assert tools.executions("tide_table", harbour=harbour) <= 1, harbour
    for walker in party:
        for metres in walker.ropes:
            assert tools.executions("order_rope", metres=metres) <= 1, metres
    log.info("seed %s: %s; %s steps", seed, observed, sum(len(walker.done) for walker in party))


@pytest.mark.rule("A78", "A66", "A72", "A90", "A98", "A120", "A121")
def test_a_short_random_walk(cluster: Cluster, model: ModelServer) -> None:
    walks(cluster, model, seed=1, walkers=3, length=8, kills=1)


@pytest.mark.slow
@pytest.mark.rule("A78", "A66", "A72", "A90", "A98", "A120", "A121")
@pytest.mark.parametrize("seed", range(100, 106))
def test_long_random_walks(cluster: Cluster, model: ModelServer, seed: int) -> None:
    walks(cluster, model, seed=seed, walkers=6, length=25, kills=seed % 3 * 4)
