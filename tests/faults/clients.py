"""Well-behaved AAP clients for fault tests: they resume streams, respect Retry-After, and check everything they receive.

Each drives one session through turns of several kinds until it is stopped. The events must match the model's script,
the history and earlier events; any difference is a Fault.
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

READ_TIMEOUT = httpx.Timeout(30.0, connect=15.0)
"""A stream sends something every half second. Longer silence is a fault, not a reason to reconnect."""
PILOT = {"name": "pilot", "tools": [{"name": name, "trust": True} for name in ("tide_table", "block")]}
CLIENT_TOOL = client_tool("mine")


class Fault(AssertionError):
    """Behaviour that no client of a correct server sees."""


@dataclass
class Observations:
    """What all clients of a test have received."""

    events: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    turns: int = 0
    stops: dict[str, int] = field(default_factory=dict)
    reconnects: int = 0
    refused: int = 0
    lost_positions: int = 0
    harbours: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, session: str, event: SseEvent) -> None:
        """Fails if a position is used for two events."""
        with self._lock:
            # A joined stream begins with the same turn_start event.
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
            f"{self.turns} turns {self.stops}, {len(self.events)} events, {self.reconnects} reconnects,"
            f" 503 {self.refused} times, positions lost {self.lost_positions}"
        )


class RetryingClient:
    """A client with one key that sends a request to another web when one does not answer."""

    def __init__(self, server: Server, observed: Observations, *, key: str | None = None, patience: float = 120.0) -> None:
        self._server = server
        self.observed = observed
        self.patience = patience
        self._turn = random.randrange(2)
        headers = {"Authorization": f"Bearer {key or server.keys.alice}"}
        self.http = httpx.Client(headers=headers, timeout=READ_TIMEOUT, trust_env=False, verify=False)

    def close(self) -> None:
        self.http.close()

    def address(self, path: str) -> str:
        ports = self._server.ports
        return f"http://127.0.0.1:{ports[self._turn % len(ports)]}/aap/v3{path}"

    def other_web(self) -> None:
        self._turn += 1

    def wait_retry_after(self, response: httpx.Response) -> None:
        check_problem(response)
        self.observed.count("refused")
        seconds = int(response.headers["Retry-After"])
        if not 0 < seconds <= 30:
            raise Fault(f"Retry-After: {seconds}")
        time.sleep(min(seconds, 1.0))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request that may be repeated, until a web answers with something other than 503."""
        until = time.monotonic() + self.patience
        while True:
            try:
                response = self.http.request(method, self.address(path), json=body, headers=headers)
            except httpx.ReadTimeout as error:
                raise Fault(f"no answer to {method} {path} within {READ_TIMEOUT.read} s") from error
            except httpx.TransportError:
                self.other_web()
                time.sleep(0.05)
            else:
                if response.status_code != 503:
                    if response.status_code >= 400:
                        check_problem(response)
                    return response
                self.wait_retry_after(response)
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
        """Post a turn and read it to its end, across lost connections."""
        run = Run(self, session, turn_body(*messages, stream="delta"))
        run.finish()
        return run


class Run:
    """One request for a turn and the events that its client received."""

    def __init__(self, client: RetryingClient, session: str, body: dict[str, Any]) -> None:
        self.client, self.session, self.body = client, session, body
        self.key = secrets.token_hex(8)
        self.events: list[SseEvent] = []
        self.accepted = False
        self.over = False
        self.unseen = False
        """The turn has ended, but its last events were lost; only the history has the text."""
        self.until: float = 0.0
        self.leave_after: int | None = None
        """Leave the stream once, after this many events, and join it again."""
        self.act_after: int | None = None
        self.act: Callable[[], None] = lambda: None
        """Called once, after this many events; the stream is left for it."""
        self.others_follow = False
        """Another turn may start after this one, and a late reconnect shows both."""
        self.may_vanish = False
        """The session may be deleted meanwhile, which also ends the turn."""

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
        self.until = time.monotonic() + self.client.patience
        while not self.over:
            try:
                self._read_on()
                self._act_if_due()
            except httpx.ReadTimeout as error:
                raise Fault(f"a stream of {self.session} was silent for {READ_TIMEOUT.read} s") from error
            except httpx.TransportError:
                self.client.other_web()
                time.sleep(0.05)
            if time.monotonic() > self.until:
                raise Fault(f"the turn of {self.session} did not end within {self.client.patience:g} s")
        if not self.unseen:
            sse.check_turn(self.events)
        self.client.observed.ended(self.stop)

    def _act_if_due(self) -> None:
        if self.act_after is not None and (self.over or len(self.events) >= self.act_after):
            self.act_after = None
            self.act()

    def _read_on(self) -> None:
        client = self.client
        if self.events or self.accepted:
            client.observed.count("reconnects")
            headers = {"Last-Event-ID": self.events[-1].id} if self.events else {}
            path = f"/sessions/{self.session}/events/stream?stream=delta"
            self._read("GET", path, None, headers)
        else:
            self._read("POST", f"/sessions/{self.session}/turns", self.body, {"Idempotency-Key": self.key})

    def _read(self, method: str, path: str, body: Any, headers: dict[str, str]) -> None:
        client = self.client
        with client.http.stream(method, client.address(path), json=body, headers=headers) as response:
            if response.status_code == 204:
                if self.events:
                    raise Fault(f"nothing follows {self.events[-1].name} in {self.session}")
                # The position was lost, and the turn has ended meanwhile.
                self.over = self.unseen = True
                return
            if response.status_code != 200:
                response.read()
                if response.status_code == 503:
                    client.wait_retry_after(response)
                    return
                if response.status_code == 410:
                    client.observed.count("lost_positions")
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
                # A lost stream is resumed. A web that drains in time must not cause this (see Observations.reconnects).
                client.other_web()

    def _take(self, event: SseEvent) -> None:
        if self.over and self.others_follow:
            return
        if self.over:
            raise Fault(f"{event.name} after the end in {self.session}")
        if any(event.id == seen.id for seen in self.events):
            raise Fault(f"{event.name} {event.id} came twice in {self.session}")
        if self.events and event.id <= self.events[-1].id:
            raise Fault(f"{event.id} came after {self.events[-1].id} in {self.session}")
        self.client.observed.record(self.session, event)
        self.events.append(event)
        self.over = event.name == "turn_stop"


# --- sessions with many turns ---

Kind = str
KINDS: tuple[Kind, ...] = ("talk", "work", "ask")


@dataclass
class DrivenSession:
    """One session and the expected content of its history."""

    client: RetryingClient
    model: ModelServer
    number: int
    session: str = ""
    expected: list[Any] = field(default_factory=list)
    """Expected lines of the history; None for a turn whose last events were lost."""
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def begin(self) -> None:
        self.session = self.client.create(PILOT, tools=[CLIENT_TOOL])

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
            self.client.observed.harbours.append(harbour)
            first = [steps.text("looking "), steps.pause(pause), steps.call("tide_table", {"harbour": harbour}, id=call)]
            self._one(self.model.script(first, talk, name=name), name, ["looking ", whole])
        else:
            asked = self._one(self.model.script([steps.call("mine", {}, id=call)], talk, name=name), name, [""])
            if asked.stop == "tool_use":
                self._one(tool(asked.calls[0], f"answer {tag}"), None, [whole])

    def _one(self, message: Any, prompt: str | None, texts: list[str]) -> Run:
        run = self.client.turn(self.session, message)
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
        """The history equals the received events. A turn whose last events were lost may have any content."""
        lines = self.client.history(self.session)
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
    """A model API accepts this history: every call has exactly one result, before any other message."""
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
    """The same check for all requests that were sent to the model."""
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


class Clients:
    """Several clients at once, each with a session, until the block ends. Then everything they received is checked."""

    def __init__(
        self, server: Server, model: ModelServer, count: int, *, words: int = 12, pause: float = 0.02, patience: float = 120.0
    ) -> None:
        self.observed = Observations()
        self._server, self._model = server, model
        self._words, self._pause = words, pause
        self._stop = threading.Event()
        self._sessions = [
            DrivenSession(RetryingClient(server, self.observed, patience=patience), model, number) for number in range(count)
        ]
        self._threads = [threading.Thread(target=self._run, args=(driven,), daemon=True) for driven in self._sessions]
        self.patience = patience

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(self.patience + 30)
        for driven in self._sessions:
            driven.client.close()
        if kind is None:
            assert not self.observed.faults, "\n".join([str(self.observed), *self.observed.faults])
            assert not any(thread.is_alive() for thread in self._threads), "somebody is still waiting"
            acceptable_requests(self._model)
            for harbour in self.observed.harbours:
                assert self._server.tools.executions("tide_table", harbour=harbour) <= 1, harbour

    def _run(self, driven: DrivenSession) -> None:
        kinds = itertools.cycle(KINDS[driven.number % len(KINDS) :] + KINDS[: driven.number % len(KINDS)])
        try:
            driven.begin()
            while not self._stop.is_set():
                driven.take_turn(next(kinds), words=self._words, pause=self._pause)
            driven.take_turn("talk", words=3)
            driven.check()
        except Exception as error:
            self.observed.failed(f"client {driven.number}, {driven.session}: {type(error).__name__}: {error}")

    def wait_turns(
        self,
        more: int,
        timeout: float = 180.0,
        *,
        condition: Callable[[], bool] = lambda: True,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait until this many more turns have ended. ``meanwhile`` is called repeatedly."""
        wanted = self.observed.turns + more
        until = time.monotonic() + timeout
        while self.observed.turns < wanted or not condition():
            assert not self.observed.faults, "\n".join([str(self.observed), *self.observed.faults])
            assert time.monotonic() < until, f"{self.observed.turns} of {wanted} turns within {timeout:g} s: {self.observed}"
            meanwhile()
            time.sleep(0.05)
