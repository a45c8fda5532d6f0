"""Clients that repeat no request: everything that fails is a fault. For upgrades, which must not be noticed.

Only streams that follow a session without end, and WebSockets, are opened again when a web that drains has closed them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.e2e.client import Client, client_tool, tool
from tests.e2e.sse import SseEvent
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

MODES: tuple[str | None, ...] = ("delta", "message", None)
PATIENCE = 120.0
WORDS = 10
OWN_TOOL = client_tool("mine")


@dataclass
class Observed:
    turns: Counter[str] = field(default_factory=Counter)
    """Turns that ended, by the client's stream mode."""
    reconnects: int = 0
    faults: list[str] = field(default_factory=list)


class Speaker(threading.Thread):
    """Sends turns to one session, in one stream mode, and compares each answer with what the model said."""

    def __init__(self, client: Client, model: ModelServer, observed: Observed, number: int) -> None:
        super().__init__(name=f"speaker {number}", daemon=True)
        self.client, self.model, self.observed, self.number = client, model, observed, number
        self.mode = MODES[number % len(MODES)]
        self.session = client.create("pilot", tools=[OWN_TOOL])
        self.texts: list[str] = []
        """What the model said, in order; each request for a turn has one."""
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            for count in itertools.count():
                if self.ended.is_set():
                    break
                self._turn(count)
        except Exception as error:
            self.observed.faults.append(f"{self.name} ({self.mode}), {self.session}: {type(error).__name__}: {error}")
        finally:
            self.client.close()

    def _turn(self, count: int) -> None:
        tag = f"{self.number}.{count}"
        words = [f"{tag}w{word} " for word in range(WORDS)]
        said = [step for word in words for step in (steps.text(word), steps.pause(0.02))]
        asks = count % 3 == 2
        first = [[steps.text("asking "), steps.call("mine", {}, id=f"call-{tag}")]] if asks else []
        prompt = self.model.script(*first, said, name=f"strictly {tag}")
        outcome = self.client.turn(self.session, prompt, stream=self.mode)
        if asks:
            self._check(outcome.stop, "tool_use", outcome.text, "asking ")
            outcome = self.client.turn(self.session, tool(f"call-{tag}", "answered"), stream=self.mode)
        self._check(outcome.stop, "end_turn", outcome.text, "".join(words))
        self.observed.turns[self.mode or "none"] += 1
        if count % 5 == 4:
            history = self.client.history(self.session)
            assert str(history[-1]["content"]) == "".join(words), history[-1]

    def _check(self, stop: str, wanted_stop: str, text: str, wanted: str) -> None:
        assert (stop, text) == (wanted_stop, wanted), f"{stop} with {text!r}, not {wanted_stop} with {wanted!r}"
        self.texts.append(wanted)


class Follower(threading.Thread):
    """Follows a session's stream without end; resumes it behind the last event when its web drains."""

    def __init__(self, client: Client, session: str, observed: Observed) -> None:
        super().__init__(name=f"follower of {session}", daemon=True)
        self.client, self.session, self.observed = client, session, observed
        self.events: list[SseEvent] = []
        self.failure: Exception | None = None
        self.connected = threading.Event()

    def run(self) -> None:
        after: str | None = None
        try:
            while True:
                try:
                    with self.client.join(self.session, follow=True, after=after) as stream:
                        self.connected.set()
                        for event in stream:
                            if after is not None and event.id <= after:
                                raise AssertionError(f"{event.name} {event.id} came after {after}")
                            after = event.id
                            self.events.append(event)
                except (httpx.RemoteProtocolError, httpx.ReadError):
                    # Its web ended before the stream did; what it had sent is complete events.
                    pass
                self.observed.reconnects += 1
        except Exception as error:
            self.failure = error

    def texts(self) -> list[str]:
        """The text of each run that has ended."""
        texts, text = [], ""
        for event in list(self.events):
            if event.name == "text_delta":
                text += event.data["delta"]
            elif event.name == "turn_stop":
                texts.append(text)
                text = ""
        return texts

    def wait_texts(self, wanted: list[str]) -> None:
        until = time.monotonic() + PATIENCE
        while len(self.texts()) < len(wanted):
            assert self.failure is None, self.failure
            assert time.monotonic() < until, f"{len(self.texts())} of {len(wanted)} turns arrived"
            time.sleep(0.05)
        assert self.texts() == wanted
