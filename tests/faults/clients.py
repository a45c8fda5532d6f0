"""Clients that behave well: they come back where they stopped, wait when told to, and keep an eye on what they are given.

Each drives one session through turns of several kinds until it is told to stop. What it sees is held
against what the script says, what the history has and what it saw before; anything else is a fault.
"""

from __future__ import annotations

import itertools
import json
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.e2e import sse
from tests.e2e.client import check_problem, client_tool, tool, turn_body, user
from tests.e2e.server import Server
from tests.e2e.sse import SseEvent, SseParser
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SILENCE = httpx.Timeout(30.0, connect=15.0)
"""A stream says something every half second: longer silence is a fault, not a reason to come again."""
PILOT = {"name": "pilot", "tools": [{"name": name, "trust": True} for name in ("tide_table", "block")]}
MINE = client_tool("mine")


class Fault(AssertionError):
    """Something that no client of a sound server sees."""


@dataclass
class Told:
    """What all clients of a test saw together."""

    events: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    turns: int = 0
    stops: dict[str, int] = field(default_factory=dict)
    came_again: int = 0
    refused: int = 0
    lost_positions: int = 0
    harbours: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def saw(self, session: str, event: SseEvent) -> None:
        """A position means one event for ever: a number given twice shows here."""
        with self._lock:
            # A turn_start comes as the first event of a joined stream too, and is the same event.
            before = self.events.setdefault((session, event.id), (event.name, event.written))
        if before != (event.name, event.written):
            raise Fault(f"position {event.id} of {session} was {before}, and is {(event.name, event.written)}")

    def count(self, name: str, by: int = 1) -> None:
        with self._lock:
            setattr(self, name, getattr(self, name) + by)

    def ended(self, stop: str) -> None:
        with self._lock:
            self.turns += 1
            self.stops[stop] = self.stops.get(stop, 0) + 1

    def failed(self, words: str) -> None:
        with self._lock:
            self.faults.append(words)

    def __str__(self) -> str:
        return (
            f"{self.turns} turns {self.stops}, {len(self.events)} events, came again {self.came_again} times,"
            f" 503 {self.refused} times, positions lost {self.lost_positions}"
        )


class Person:
    """One key in front of all webs. Sends a request to another web when one does not answer."""

    def __init__(self, server: Server, told: Told, *, key: str | None = None, patience: float = 120.0) -> None:
        self._server = server
        self.told = told
        self.patience = patience
        self._turn = random.randrange(2)
        headers = {"Authorization": f"Bearer {key or server.keys.alice}"}
        self.http = httpx.Client(headers=headers, timeout=SILENCE, trust_env=False)

    def close(self) -> None:
        self.http.close()

    def address(self, path: str) -> str:
        ports = self._server.ports
        return f"http://127.0.0.1:{ports[self._turn % len(ports)]}/aap/v3{path}"

    def other_web(self) -> None:
        self._turn += 1

    def wait_as_told(self, response: httpx.Response) -> None:
        check_problem(response)
        self.told.count("refused")
        seconds = int(response.headers["Retry-After"])
        if not 0 < seconds <= 30:
            raise Fault(f"Retry-After: {seconds}")
        time.sleep(min(seconds, 1.0))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """A request that may be sent twice, until somebody answers it with more than 503."""
        until = time.monotonic() + self.patience
        while True:
            try:
                response = self.http.request(method, self.address(path), json=body, headers=headers)
            except httpx.ReadTimeout as error:
                raise Fault(f"no answer to {method} {path} within {SILENCE.read} s") from error
            except httpx.TransportError:
                self.other_web()
                time.sleep(0.05)
            else:
                if response.status_code != 503:
                    if response.status_code >= 400:
                        check_problem(response)
                    return response
                self.wait_as_told(response)
            if time.monotonic() > until:
                raise Fault(f"nobody answered {method} {path} within {self.patience:g} s")

    def ok(self, method: str, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
        response = self.ask(method, path, body, **headers)
        if response.status_code != status:
            raise Fault(f"{method} {path}: {response.status_code} {response.text[:300]}")
        return response.json() if response.content else None

    def create(self, agent: Any = "echo", **body: Any) -> str:
        given = agent if isinstance(agent, dict) else {"name": agent}
        key = secrets.token_hex(8)
        made: str = self.ok("POST", "/sessions", {"agent": given, **body}, status=201, **{"Idempotency-Key": key})["sessionId"]
        return made

    def history(self, session: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.ok("GET", f"/sessions/{session}/history?type=full")["history"]["full"]
        return lines

    def turn(self, session: str, *messages: Any) -> Run:
        """Post a turn and read it to its end, whatever happens between."""
        run = Run(self, session, turn_body(*messages, stream="delta"))
        run.finish()
        return run


class Run:
    """One accepted request for a turn, as its client saw it."""

    def __init__(self, person: Person, session: str, body: dict[str, Any]) -> None:
        self.person, self.session, self.body = person, session, body
        self.key = secrets.token_hex(8)
        self.events: list[SseEvent] = []
        self.accepted = False
        self.over = False
        self.unseen = False
        """The end is known, but its events were not given again: the history alone has the words."""
        self.until: float = 0.0
        self.leave_after: int | None = None
        """Leave the stream once, after so many events, and come back."""
        self.act_after: int | None = None
        self.act: Callable[[], None] = lambda: None
        """What is done once, after so many events; the stream is left for it."""
        self.others_follow = False
        """Another turn may begin behind this one, and who comes back late is shown both."""
        self.may_vanish = False
        """The session may be deleted meanwhile; that is an end, too."""

    @property
    def stop(self) -> str:
        return str(self.events[-1].data["stopReason"]) if not self.unseen else "unseen"

    @property
    def text(self) -> str:
        return "".join(event.data["delta"] for event in self.events if event.name == "text_delta")

    @property
    def calls(self) -> list[str]:
        return [event.data["toolCallId"] for event in self.events if event.name == "tool_call"]

    @property
    def results(self) -> list[str]:
        return [event.data["toolCallId"] for event in self.events if event.name == "tool_result"]

    def finish(self) -> None:
        self.until = time.monotonic() + self.person.patience
        while not self.over:
            try:
                self._read_on()
                self._act_if_due()
            except httpx.ReadTimeout as error:
                raise Fault(f"a stream of {self.session} was silent for {SILENCE.read} s") from error
            except httpx.TransportError:
                self.person.other_web()
                time.sleep(0.05)
            if time.monotonic() > self.until:
                raise Fault(f"the turn of {self.session} did not end within {self.person.patience:g} s")
        if not self.unseen:
            sse.check_turn(self.events)
        self.person.told.ended(self.stop)

    def _act_if_due(self) -> None:
        if self.act_after is not None and (self.over or len(self.events) >= self.act_after):
            self.act_after = None
            self.act()

    def _read_on(self) -> None:
        person = self.person
        if self.events or self.accepted:
            person.told.count("came_again")
            headers = {"Last-Event-ID": self.events[-1].id} if self.events else {}
            path = f"/sessions/{self.session}/events/stream?stream=delta"
            self._read("GET", path, None, headers)
        else:
            self._read("POST", f"/sessions/{self.session}/turns", self.body, {"Idempotency-Key": self.key})

    def _read(self, method: str, path: str, body: Any, headers: dict[str, str]) -> None:
        person = self.person
        with person.http.stream(method, person.address(path), json=body, headers=headers) as response:
            if response.status_code == 204:
                if self.events:
                    raise Fault(f"nothing follows {self.events[-1].name} in {self.session}")
                # Its position was lost, and meanwhile the turn has ended.
                self.over = self.unseen = True
                return
            if response.status_code != 200:
                response.read()
                if response.status_code == 503:
                    person.wait_as_told(response)
                    return
                if response.status_code == 410:
                    person.told.count("lost_positions")
                    self.events.clear()
                    self.accepted = True
                    return
                if response.status_code == 404 and self.may_vanish and self.accepted:
                    self.over = self.unseen = True
                    return
                raise Fault(f"{method} {path}: {response.status_code} {response.text[:300]}")
            self.accepted = True
            parser = SseParser()
            for chunk in response.iter_raw():
                for event in parser.feed(chunk):
                    self._take(event)
                if time.monotonic() > self.until:
                    raise Fault(f"the turn of {self.session} did not end in time; its last event: {self.events[-1:]}")
                if not self.over and self.leave_after is not None and len(self.events) >= self.leave_after:
                    self.leave_after = None
                    break
                if not self.over and self.act_after is not None and len(self.events) >= self.act_after:
                    break
            if not self.over:
                # Whoever is cut off comes again: a web that is stopped in time must not do this (see Told.came_again).
                person.other_web()

    def _take(self, event: SseEvent) -> None:
        if self.over and self.others_follow:
            return
        if self.over:
            raise Fault(f"{event.name} after the end in {self.session}")
        if any(event.id == seen.id for seen in self.events):
            raise Fault(f"{event.name} {event.id} came twice in {self.session}")
        if self.events and event.id <= self.events[-1].id:
            raise Fault(f"{event.id} came after {self.events[-1].id} in {self.session}")
        self.person.told.saw(self.session, event)
        self.events.append(event)
        self.over = event.name == "turn_stop"


# --- sessions that go on and on ---

Kind = str
KINDS: tuple[Kind, ...] = ("talk", "work", "ask")


@dataclass
class Journey:
    """One session and everything that was said in it."""

    person: Person
    model: ModelServer
    number: int
    session: str = ""
    expected: list[Any] = field(default_factory=list)
    """What the history must hold: lines, or a check of several."""
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def begin(self) -> None:
        self.session = self.person.create(PILOT, tools=[MINE])

    def take_turn(self, kind: Kind, *, words: int = 12, pause: float = 0.02) -> None:
        tag = f"{self.number}.{next(self._count)}"
        talk = [step for word in range(words) for step in (steps.text(f"{tag}w{word} "), steps.pause(pause))]
        whole = "".join(f"{tag}w{word} " for word in range(words))
        call = f"call-{tag}-{secrets.token_hex(3)}"
        name = f"turn {tag} {secrets.token_hex(3)}"
        if kind == "talk":
            self._one(self.model.script(talk, name=name), name, [whole])
        elif kind == "work":
            harbour = f"harbour {tag} {secrets.token_hex(3)}"
            self.person.told.harbours.append(harbour)
            first = [steps.text("looking "), steps.pause(pause), steps.call("tide_table", {"harbour": harbour}, id=call)]
            self._one(self.model.script(first, talk, name=name), name, ["looking ", whole])
        else:
            asked = self._one(self.model.script([steps.call("mine", {}, id=call)], talk, name=name), name, [""])
            if asked.stop == "tool_use":
                self._one(tool(asked.calls[0], f"answer {tag}"), None, [whole])

    def _one(self, message: Any, prompt: str | None, texts: list[str]) -> Run:
        run = self.person.turn(self.session, message)
        self.expected.append(user(prompt) if prompt is not None else message)
        self._check(run, texts)
        return run

    def _check(self, run: Run, texts: list[str]) -> None:
        if run.unseen:
            self.expected.append(None)
            return
        said = "".join(texts)
        if run.stop in ("end_turn", "tool_use"):
            if run.text != said:
                raise Fault(f"of {said!r} came {run.text!r}")
        elif run.stop != "error":
            raise Fault(f"stopped with {run.stop}")
        elif not said.startswith(run.text):
            raise Fault(f"{run.text!r} is not the beginning of {said!r}")
        self.expected += sse.rebuilt(run.events)

    def check(self) -> None:
        """The history is what was seen; a turn whose end was lost may stand in it with anything."""
        lines = self.person.history(self.session)
        acceptable(lines)
        place = 0
        for expected in self.expected:
            if expected is None:
                while place < len(lines) and lines[place]["role"] != "user":
                    place += 1
                continue
            if place >= len(lines) or lines[place] != expected:
                found = lines[place] if place < len(lines) else "nothing"
                raise Fault(f"the history of {self.session} has {found} where {expected} was seen (line {place} of {len(lines)})")
            place += 1
        if place != len(lines):
            raise Fault(f"the history of {self.session} has {lines[place:]} that nobody saw")


def acceptable(lines: list[dict[str, Any]]) -> None:
    """A model's API takes it: every call has exactly one result, before anything else is said."""
    open_calls: set[str] = set()
    for line in lines:
        if line["role"] == "tool":
            if line["toolCallId"] not in open_calls:
                raise Fault(f"a result without a call: {line}")
            open_calls.remove(line["toolCallId"])
            continue
        if open_calls:
            raise Fault(f"calls {open_calls} have no result before {line}")
        if line["role"] == "assistant" and isinstance(line["content"], list):
            for block in line["content"]:
                if block["type"] == "tool_use":
                    if block["toolCallId"] in open_calls:
                        raise Fault(f"a call id came twice: {block}")
                    open_calls.add(block["toolCallId"])
    if open_calls and not (lines and lines[-1]["role"] in ("assistant", "tool")):
        raise Fault(f"open calls {open_calls}")


def acceptable_requests(model: ModelServer) -> None:
    """The same of everything that was really sent to the model."""
    for request in model.requests:
        open_calls: set[str] = set()
        for message in request.messages:
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    raise Fault(f"the model got a result without a call: {json.dumps(message)[:300]}")
                open_calls.remove(message["tool_call_id"])
                continue
            if open_calls:
                raise Fault(f"the model got calls {open_calls} without results")
            open_calls |= {call["id"] for call in message.get("tool_calls") or []}
        if open_calls:
            raise Fault(f"the model was asked with open calls {open_calls}")


class Crowd:
    """Several people at once, each with a session, until the block ends; then all they saw is checked."""

    def __init__(
        self, server: Server, model: ModelServer, people: int, *, words: int = 12, pause: float = 0.02, patience: float = 120.0
    ) -> None:
        self.told = Told()
        self._server, self._model = server, model
        self._words, self._pause = words, pause
        self._stop = threading.Event()
        self._journeys = [Journey(Person(server, self.told, patience=patience), model, number) for number in range(people)]
        self._threads = [threading.Thread(target=self._live, args=(journey,), daemon=True) for journey in self._journeys]
        self.patience = patience

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(self.patience + 30)
        for journey in self._journeys:
            journey.person.close()
        if kind is None:
            assert not self.told.faults, "\n".join([str(self.told), *self.told.faults])
            assert not any(thread.is_alive() for thread in self._threads), "somebody is still waiting"
            acceptable_requests(self._model)
            for harbour in self.told.harbours:
                assert self._server.tools.executions("tide_table", harbour=harbour) <= 1, harbour

    def _live(self, journey: Journey) -> None:
        kinds = itertools.cycle(KINDS[journey.number % len(KINDS) :] + KINDS[: journey.number % len(KINDS)])
        try:
            journey.begin()
            while not self._stop.is_set():
                journey.take_turn(next(kinds), words=self._words, pause=self._pause)
            journey.take_turn("talk", words=3)
            journey.check()
        except Exception as error:
            self.told.failed(f"person {journey.number}, {journey.session}: {type(error).__name__}: {error}")

    def wait_turns(self, more: int, timeout: float = 180.0, *, condition: Callable[[], bool] = lambda: True) -> None:
        """Until this many more turns have ended."""
        wanted = self.told.turns + more
        until = time.monotonic() + timeout
        while self.told.turns < wanted or not condition():
            assert not self.told.faults, "\n".join([str(self.told), *self.told.faults])
            assert time.monotonic() < until, f"{self.told.turns} of {wanted} turns within {timeout:g} s: {self.told}"
            time.sleep(0.05)
