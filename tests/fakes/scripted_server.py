"""What scripted model servers of all wire formats have in common: sockets, scripts, gates, records.

What a server says to a request is chosen by the text of the last user message: a test registers a script and
sends its name as the message. A script is a list of answers, one for each step of the turn: the answer is
the one numbered like the model's messages that stand after the last user message. So a script needs no
memory of its own, and a repeated or taken-over model call gets the same answer again. Where attempts must
differ (a 429, then success) an answer is ``attempts(first, second, …)``.
After scripts come the queue, then the API key's own script, then an echo of the user's words.

A vendor's server finds its place in the conversation, refuses what the vendor refuses, and writes the
answer in the vendor's words.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.fakes.speech import Speech
from tests.fakes.steps import Answer, Step, text

DEFAULT_WAIT = 60.0
Refusal = tuple[int, Any]
"""A status and the JSON of its body."""


@dataclass
class Attempts:
    """Answers of one step that differ from request to request; the last one stays."""

    answers: list[Answer]


def attempts(*answers: Answer) -> Attempts:
    return Attempts(list(answers))


ScriptAnswer = Answer | Attempts


@dataclass
class RecordedRequest:
    """A request as it arrived, with what became of it."""

    number: int
    headers: dict[str, str]
    body: dict[str, Any]
    script: str
    answer: int
    connection: int
    path: str = ""
    state: str = "open"
    """``open``, then ``done`` (all was said), ``closed`` (the client hung up first) or ``cut`` (we did)."""
    ended_at: float | None = None
    refused: str = ""
    """The refusal, where the vendor would have refused it."""

    @property
    def api_key(self) -> str:
        return _key(self.headers)

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body.get("messages", [])
        return messages

    @property
    def tool_names(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]


class NotInTimeError(AssertionError):
    """What a test waited for did not happen in time."""


@dataclass
class _State:
    """What the server's thread and the test share; every access holds ``changed``."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    scripts: dict[str, list[ScriptAnswer]] = field(default_factory=dict)
    key_scripts: dict[str, str] = field(default_factory=dict)
    queue: deque[Answer] = field(default_factory=deque)
    tries: Counter[tuple[str, int]] = field(default_factory=Counter)
    requests: list[RecordedRequest] = field(default_factory=list)
    gates_open: set[str] = field(default_factory=set)
    gates_reached: Counter[str] = field(default_factory=Counter)
    connections: int = 0


class ScriptedServer(ABC):
    """A server in a thread of its own. All public methods are for the test's thread."""

    # --- what a vendor's server says of itself ---

    retry_header = True
    """When to come back stands in a header."""

    @abstractmethod
    def _speaks(self, method: str, path: str) -> bool:
        """Whether model calls go there."""

    @abstractmethod
    def _place(self, body: dict[str, Any]) -> tuple[str, int]:
        """The text of the last user message, and how many answers of the model stand after it."""

    @abstractmethod
    def _speech(self, writer: asyncio.StreamWriter, request: RecordedRequest, steps: Answer) -> Speech:
        """Who answers."""

    @abstractmethod
    def _failure(self, step: Step) -> Refusal:
        """An error before the answer begins: a ``status`` or an ``overflow``."""

    def _complaint(self, request: RecordedRequest) -> Refusal | None:
        """What the vendor refuses in this request, if anything."""
        return None

    # --- what it does ---

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self.port = port
        self._state = _State()
        self._names = itertools.count(1)
        self._call_ids = itertools.count(1)
        self._connection_ids = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event | None = None
        self._gate_opened: asyncio.Condition | None = None

    # --- life ---

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="model-server", daemon=True)
        self._thread.start()
        if not ready.wait(60):
            raise NotInTimeError("the model server did not start")

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(10)

    @property
    def origin(self) -> str:
        return f"http://{self._host}:{self.port}"

    @property
    @abstractmethod
    def url(self) -> str:
        """What an agent's ``base_url`` is set to."""

    # --- what it will say ---

    def script(self, *answers: ScriptAnswer, name: str | None = None) -> str:
        """Register a script; returns the user message that runs it."""
        name = name if name is not None else f"script {next(self._names)}"
        with self._state.changed:
            self._state.scripts[name] = list(answers)
            for key in [key for key in self._state.tries if key[0] == name]:
                del self._state.tries[key]
        return name

    def script_for_key(self, api_key: str, *answers: ScriptAnswer) -> None:
        """What is said to requests with this API key whose user message names no script."""
        name = self.script(*answers, name=f"key {api_key}")
        with self._state.changed:
            self._state.key_scripts[api_key] = name

    def enqueue(self, *answers: Answer) -> None:
        """One answer for each of the next requests whose user message names no script."""
        with self._state.changed:
            self._state.queue.extend(answers)

    def open_gate(self, name: str) -> None:
        with self._state.changed:
            self._state.gates_open.add(name)
            self._state.changed.notify_all()
        self._wake_gates()

    def close_gate(self, name: str) -> None:
        with self._state.changed:
            self._state.gates_open.discard(name)
            self._state.gates_reached.pop(name, None)

    def forget(self) -> None:
        """Drop the records and close all gates; scripts stay."""
        with self._state.changed:
            self._state.requests.clear()
            self._state.gates_open.clear()
            self._state.gates_reached.clear()

    # --- what it saw ---

    @property
    def requests(self) -> list[RecordedRequest]:
        with self._state.changed:
            return list(self._state.requests)

    def requests_of(self, script: str) -> list[RecordedRequest]:
        return [request for request in self.requests if request.script == script]

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        with self._state.changed:
            return self._state.connections

    @property
    def streams(self) -> int:
        """Answers that are being given now."""
        with self._state.changed:
            return sum(request.state == "open" for request in self._state.requests)

    def wait_until(self, condition: Callable[[], bool], *, what: str, timeout: float = DEFAULT_WAIT) -> None:
        with self._state.changed:
            if not self._state.changed.wait_for(condition, timeout):
                raise NotInTimeError(f"not within {timeout} s: {what}")

    def wait_gate(self, name: str, *, times: int = 1, timeout: float = DEFAULT_WAIT) -> None:
        """Until an answer stands (or stood) at the gate for the ``times``-th time."""
        self.wait_until(lambda: self._state.gates_reached[name] >= times, what=f"gate {name} reached", timeout=timeout)

    def wait_request(self, script: str, *, count: int = 1, timeout: float = DEFAULT_WAIT) -> RecordedRequest:
        """The ``count``-th request for this script."""

        def found() -> list[RecordedRequest]:
            return [request for request in self._state.requests if request.script == script]

        self.wait_until(lambda: len(found()) >= count, what=f"request {count} of {script}", timeout=timeout)
        return self.requests_of(script)[count - 1]

    def wait_ended(self, request: RecordedRequest, *, timeout: float = DEFAULT_WAIT) -> str:
        """How the answer to this request ended: ``done``, ``closed`` or ``cut``."""
        self.wait_until(lambda: request.state != "open", what=f"end of request {request.number}", timeout=timeout)
        return request.state

    # --- the server's own side ---

    def _wake_gates(self) -> None:
        loop, condition = self._loop, self._gate_opened
        if loop is None or condition is None:
            return

        async def notify() -> None:
            async with condition:
                condition.notify_all()

        asyncio.run_coroutine_threadsafe(notify(), loop)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._gate_opened = asyncio.Condition()
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._connection(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, self._host, self.port, backlog=1024, limit=2**20)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stopping.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(self._connection_ids)
        self._count_connection(1)
        try:
            while (head := await self._read_head(reader)) is not None:
                method, path, headers = head
                body = await self._read_body(reader, headers)
                if not await self._respond(reader, writer, method, path, headers, body, number):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._count_connection(-1)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _count_connection(self, by: int) -> None:
        with self._state.changed:
            self._state.connections += by
            self._state.changed.notify_all()

    async def _read_head(self, reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]] | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        return method, path, headers

    async def _read_body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await reader.readline()).split(b";")[0], 16):
                body += await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readline()
            return body
        return await reader.readexactly(int(headers.get("content-length", "0")))

    async def _respond(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        connection: int,
    ) -> bool:
        """Answer one request; False ends the connection."""
        if path.startswith("/control/"):
            answer = await asyncio.to_thread(self._control, path, body)
            await self._plain(writer, *answer)
            return True
        if not self._speaks(method, path):
            await self._plain(writer, 404, {"error": {"message": f"no such path: {path}"}})
            return True
        request, steps = self._choose(path, headers, json.loads(body), connection)
        if (refusal := self._complaint(request)) is not None:
            request.refused = json.dumps(refusal[1], ensure_ascii=False)
            self._end(request, "done")
            await self._plain(writer, *refusal)
            return True
        speaking = asyncio.create_task(self._speak(writer, request, steps))
        watching = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({speaking, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not speaking.done():
                # Nothing may come from a client before its answer is complete, except its goodbye.
                speaking.cancel()
                self._end(request, "closed")
                return False
            return speaking.result()
        except ConnectionError:
            self._end(request, "closed")
            return False
        except asyncio.CancelledError:
            self._end(request, "cut")
            raise
        finally:
            for task in (speaking, watching):
                task.cancel()
            await asyncio.gather(speaking, watching, return_exceptions=True)

    async def _plain(
        self, writer: asyncio.StreamWriter, status: int, answer: Any, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        body = json.dumps(answer).encode()
        lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    def _choose(
        self, path: str, headers: dict[str, str], body: dict[str, Any], connection: int
    ) -> tuple[RecordedRequest, Answer]:
        name, number = self._place(body)
        with self._state.changed:
            if name not in self._state.scripts:
                key_script = self._state.key_scripts.get(_key(headers))
                if self._state.queue:
                    script, steps = "(queue)", self._state.queue.popleft()
                elif key_script is not None:
                    script, steps = key_script, self._scripted(key_script, number)
                else:
                    script, steps = name, [text(f"echo: {name}")]
            else:
                script, steps = name, self._scripted(name, number)
            request = RecordedRequest(len(self._state.requests) + 1, headers, body, script, number, connection, path)
            self._state.requests.append(request)
            self._state.changed.notify_all()
        return request, steps

    def _scripted(self, name: str, number: int) -> Answer:
        answers = self._state.scripts[name]
        if number >= len(answers):
            return [text(f"(script {name!r} has no answer {number})")]
        answer = answers[number]
        if isinstance(answer, Attempts):
            tried = self._state.tries[name, number]
            self._state.tries[name, number] += 1
            return answer.answers[min(tried, len(answer.answers) - 1)]
        return answer

    def _end(self, request: RecordedRequest, state: str) -> None:
        with self._state.changed:
            if request.state == "open":
                request.state, request.ended_at = state, time.monotonic()
            self._state.changed.notify_all()

    async def _speak(self, writer: asyncio.StreamWriter, request: RecordedRequest, steps: Answer) -> bool:
        if steps and steps[0]["do"] in ("status", "overflow"):
            step = steps[0]
            asked = self.retry_header and step.get("retry_after") is not None
            extra = [("Retry-After", step["retry_after"])] if asked else []
            self._end(request, "done")
            await self._plain(writer, *self._failure(step), extra)
            return True
        speech = self._speech(writer, request, steps)
        if steps and steps[0]["do"] not in ("gate", "hang", "drop", "cut_every"):
            await speech.open()
        for step in steps:
            match step["do"]:
                case "gate":
                    await self._stand_at(step["name"])
                case "pause":
                    await asyncio.sleep(step["seconds"])
                case "hang":
                    await asyncio.Event().wait()
                case "drop":
                    self._end(request, "cut")
                    writer.transport.abort()
                    return False
                case "close":
                    self._end(request, "done")
                    await speech.end_response()
                    return True
                case "cut_every":
                    speech.cut_every = step["bytes"]
                case "raw":
                    await speech.raw(base64.b64decode(step["data"]))
                case "error_object":
                    await speech.fail(step["message"], step["code"])
                    self._end(request, "done")
                    await speech.end_response()
                    return True
                case _:
                    await speech.say(step)
        await speech.finish()
        # The record is complete before the client can know it: a test that has the answer may look at once.
        self._end(request, "done")
        await speech.end_response()
        return True

    async def _stand_at(self, name: str) -> None:
        condition = self._gate_opened
        assert condition is not None
        with self._state.changed:
            self._state.gates_reached[name] += 1
            self._state.changed.notify_all()
        async with condition:
            await condition.wait_for(lambda: name in self._state.gates_open)

    # --- control by HTTP ---

    def _control(self, path: str, body: bytes) -> tuple[int, Any]:
        """One request of a RemoteModelServer; runs in a thread, so it may wait."""
        action = path.removeprefix("/control/")
        given = json.loads(body or b"{}")
        timeout = float(given.get("timeout", DEFAULT_WAIT))
        try:
            match action:
                case "script":
                    answers = [Attempts(a["attempts"]) if isinstance(a, dict) else a for a in given["answers"]]
                    return 200, {"name": self.script(*answers, name=given.get("name"))}
                case "enqueue":
                    self.enqueue(*given["answers"])
                case "open_gate":
                    self.open_gate(given["name"])
                case "close_gate":
                    self.close_gate(given["name"])
                case "wait_gate":
                    self.wait_gate(given["name"], times=given.get("times", 1), timeout=timeout)
                case "wait_request":
                    return 200, _written(self.wait_request(given["script"], count=given.get("count", 1), timeout=timeout))
                case "wait_ended":
                    request = self.requests[given["number"] - 1]
                    return 200, {"state": self.wait_ended(request, timeout=timeout)}
                case "requests":
                    return 200, {"requests": [_written(request) for request in self.requests]}
                case "counts":
                    return 200, {"connections": self.connections, "streams": self.streams}
                case "forget":
                    self.forget()
                case _:
                    return 404, {"error": "no such control"}
        except NotInTimeError as error:
            return 408, {"error": str(error)}
        return 200, {}


def _key(headers: dict[str, str]) -> str:
    given = headers.get("authorization", "").removeprefix("Bearer ")
    return given or headers.get("x-api-key", "") or headers.get("x-goog-api-key", "")


def _written(request: RecordedRequest) -> dict[str, Any]:
    return {
        "number": request.number,
        "headers": request.headers,
        "body": request.body,
        "script": request.script,
        "answer": request.answer,
        "connection": request.connection,
        "path": request.path,
        "state": request.state,
        "refused": request.refused,
    }
