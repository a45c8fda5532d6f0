"""One request that runs the agent, and its events, across lost connections.

After a lost connection the stream resumes after the last received event, without gaps or repeats. Resuming, and repeating
a request safely (Idempotency-Key), are this project's additions to the protocol. With a server that lacks them, a lost
connection ends the run here (StreamLost), and the history has the result.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import aiohttp

from agenthost.client.errors import ClientError, ConnectionFailed, ConnectionLost, ProtocolError, Refused, StreamLost
from agenthost.client.server import Server, chunks, read_json
from agenthost.client.sse import Event, EventReader, EventTooLong

QUIET_SECONDS = 60.0
"""A stream without data for this long counts as lost. Servers with resumable streams send a comment every 15 seconds."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """An AAP event of a turn."""

    name: str
    data: Mapping[str, Any]


class Run:
    """One run of a turn. After its events, ``accepted``, ``turn`` and ``stopped`` hold the outcome."""

    def __init__(
        self,
        server: Server,
        session: str,
        mode: str,
        notify: Callable[[str], None],
        *,
        headers: Mapping[str, str] | None = None,
        after: str = "",
    ) -> None:
        """``headers`` are sent with each request. ``after`` is the position after which ``join`` begins."""
        self._server = server
        self._headers = headers or {}
        self._session = session
        self._mode = mode
        self._notify = notify
        self.position = after
        """The id of the last event, after which another client can continue."""
        self._is_lost = False
        self.accepted = False
        """The server has accepted the request and runs it."""
        self.turn = ""
        self.rate = ""
        """The ``RateLimit`` header, if the server sent it."""
        self.stopped: Mapping[str, Any] | None = None
        """The data of ``turn_stop``, when it has arrived."""

    async def send(
        self, body: Mapping[str, Any], idempotency_key: str = "", *, is_first: bool = True
    ) -> AsyncGenerator[TurnEvent]:
        """Send a turn and yield its events. After Refused or ConnectionFailed nothing of it has taken effect.

        ``is_first`` False: the server was there a moment ago, so one that cannot be reached is waited for.
        """
        key = idempotency_key or uuid.uuid4().hex
        retry = RetryTimer(self._server.retry_seconds)
        is_new = is_first
        while True:
            try:
                async with (
                    self._server.turn(self._session, {**body, "stream": self._mode}, key, self._headers) as response,
                    aclosing(self._read(response)) as turn_events,
                ):
                    async for turn_event in turn_events:
                        yield turn_event
                lost: ConnectionLost = ConnectionLost("the stream ended before the turn did")
            except ConnectionFailed as error:
                if is_new:
                    raise
                lost = error
            except ConnectionLost as error:
                lost = error
            is_new = False
            if self.stopped is not None:
                return
            self._report_loss()
            if self.position:
                async with aclosing(self._resume(retry)) as turn_events:
                    async for turn_event in turn_events:
                        yield turn_event
                return
            if not self.turn and not await self._can_repeat(retry):
                raise self._outcome_unknown()
            await retry.pause(lost)

    async def join(self) -> AsyncGenerator[TurnEvent]:
        """The events of the session's running turn, from its start or a position.

        There are none if no turn runs or the server does not support this.
        """
        try:
            async with self._server.events(self._session, self._mode, self.position, self._headers) as response:
                if response.status == 204:
                    return
                async with aclosing(self._read(response)) as turn_events:
                    async for turn_event in turn_events:
                        yield turn_event
        except Refused as refused:
            if refused.status in (404, 405, 422) and not self.accepted:
                return
            raise
        except ConnectionLost:
            if not self.position:
                raise
        if self.stopped is None:
            self._report_loss()
            async with aclosing(self._resume(RetryTimer(self._server.retry_seconds))) as turn_events:
                async for turn_event in turn_events:
                    yield turn_event

    # --- reading ---

    async def _read(self, response: aiohttp.ClientResponse) -> AsyncGenerator[TurnEvent]:
        self.accepted = True
        self.turn = response.headers.get("X-Turn-Id", self.turn)
        self.rate = response.headers.get("RateLimit", self.rate)
        if response.content_type == "application/json":
            for turn_event in events_of_response(await read_json(response)):
                if turn_event.name == "turn_stop":
                    self.stopped = turn_event.data
                yield turn_event
            return
        reader = EventReader()
        async with aclosing(chunks(response, lambda: QUIET_SECONDS if self.position else None)) as arriving:
            async for chunk in arriving:
                for event in _events(reader, chunk):
                    self.position = event.id or self.position
                    turn_event = TurnEvent(event.name, _data(event.data))
                    if event.name == "turn_stop":
                        self.stopped = turn_event.data
                    yield turn_event
                    if self.stopped is not None:
                        return

    # --- resuming ---

    def _report_loss(self) -> None:
        if not self._is_lost:
            self._notify("Connection lost. Reconnecting …")
        self._is_lost = True

    async def _resume(self, retry: RetryTimer) -> AsyncGenerator[TurnEvent]:
        """The rest of the run, from the current position."""
        while True:
            lost = ConnectionLost("the stream ended before the turn did")
            try:
                async with self._server.events(self._session, self._mode, self.position, self._headers) as response:
                    if response.status == 204:
                        raise StreamLost("The turn is over, but the server no longer has its last events.")
                    self._notify("Reconnected; nothing was missed.")
                    self._is_lost = False
                    retry.reset()
                    async with aclosing(self._read(response)) as turn_events:
                        async for turn_event in turn_events:
                            yield turn_event
            except ConnectionLost as error:
                lost = error
            except Refused as refused:
                raise self._resume_error(refused) from None
            if self.stopped is not None:
                return
            self._report_loss()
            await retry.pause(lost)

    async def _can_repeat(self, retry: RetryTimer) -> bool:
        """Whether the server recognizes repeated requests. Waits until the server can be reached."""
        while True:
            try:
                async with self._server.events(self._session, "delta" if self._mode == "none" else self._mode):
                    return True
            except Refused as refused:
                # 422 means that the server has this endpoint, and rejects only the mode.
                return refused.status == 422
            except ConnectionLost as error:
                await retry.pause(error)

    def _outcome_unknown(self) -> StreamLost:
        if self.accepted:
            return StreamLost("Connection lost, and this server cannot resume a stream. The turn may still be running.")
        return StreamLost("Connection lost before the server responded: it is unknown whether the message has arrived.")

    def _resume_error(self, refused: Refused) -> ClientError:
        match refused.status:
            case 404:
                return StreamLost("Connection lost, and the server has no stream to resume (404). The turn may still be running.")
            case 410:
                return StreamLost("Connection lost, and the server no longer has the events that were missed.")
        return refused


class RetryTimer:
    """Pauses between attempts to reach the server, with a limit on the total time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        self._until = asyncio.get_running_loop().time() + self._seconds
        self._pause = _FIRST_PAUSE

    async def pause(self, lost: ConnectionLost) -> None:
        """Wait before the next attempt; raises StreamLost when the time is over."""
        if asyncio.get_running_loop().time() + self._pause > self._until:
            raise StreamLost(f"The server could not be reached for {self._seconds:g} s. {lost}")
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


# --- events from JSON documents: no I/O ---


def events_of_response(response: Any) -> list[TurnEvent]:
    """The events of a turn's JSON response."""
    if not isinstance(response, dict) or not isinstance(response.get("stopReason"), str):
        raise ProtocolError("The server's response to the turn is not valid AAP.")
    events = [turn_event for message in response.get("messages") or [] for turn_event in events_of_message(message)]
    return [TurnEvent("turn_start", {}), *events, TurnEvent("turn_stop", response)]


def events_of_message(message: Any) -> list[TurnEvent]:
    """The events of an assistant or tool message; none for other messages."""
    if not isinstance(message, dict):
        return []
    content = message.get("content")
    if message.get("role") == "tool":
        return [TurnEvent("tool_result", message)]
    if message.get("role") != "assistant":
        return []
    if isinstance(content, str):
        return [TurnEvent("text", {"text": content})]
    events = []
    for block in content if isinstance(content, list) else []:
        match block.get("type") if isinstance(block, dict) else None:
            case "text" | "thinking" as kind:
                events.append(TurnEvent(kind, block))
            case "tool_use":
                events.append(TurnEvent("tool_call", block))
            case "image":
                events.append(TurnEvent("image", block))
    return events


def _events(reader: EventReader, chunk: bytes) -> list[Event]:
    try:
        return reader.feed(chunk)
    except EventTooLong:
        raise ProtocolError("The server sent an event that is too large.") from None


def _data(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
