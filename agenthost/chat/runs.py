"""One request that makes the agent run, with its answer, however often the connection is cut.

A cut stream is joined again after the last event that came: nothing is missing, nothing comes twice. That, and sending a
request again without running it twice, are this project's additions to the protocol; with a server that lacks them a cut
ends the run here (CutOff), and the history tells what came of it.
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

from agenthost.chat.errors import ChatError, NotAAP, NotConnected, NotReached, Refused
from agenthost.chat.server import Server, chunks, read_json
from agenthost.chat.sse import Event, EventReader, EventTooLong

QUIET_SECONDS = 60.0
"""A stream whose server is known to send a comment every 15 seconds, and sent nothing for so long, is cut."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0


class CutOff(ChatError):
    """The rest of the answer cannot be had as a stream. The turn itself may go on at the server."""

    code = 3


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of the protocol."""

    name: str
    data: Mapping[str, Any]


class Run:
    """What became of it is in ``accepted``, ``turn`` and ``stopped`` when its happenings end."""

    def __init__(self, server: Server, session: str, mode: str, say: Callable[[str], None]) -> None:
        self._server = server
        self._session = session
        self._mode = mode
        self._say = say
        self._position = ""
        self._was_cut = False
        self.accepted = False
        """The server has taken the request: something runs there now."""
        self.turn = ""
        self.rate = ""
        """The field ``RateLimit``, if the server sent it."""
        self.stopped: Mapping[str, Any] | None = None
        """The data of ``turn_stop``, once it came."""

    async def sent(self, body: Mapping[str, Any]) -> AsyncGenerator[Happening]:
        """Send a turn; what happens in it. Refused and NotConnected: nothing of it has taken effect."""
        once = uuid.uuid4().hex
        clock = _Patience(self._server.patience)
        is_new = True
        while True:
            try:
                async with (
                    self._server.turn(self._session, {**body, "stream": self._mode}, once) as response,
                    aclosing(self._read(response)) as happenings,
                ):
                    async for happening in happenings:
                        yield happening
                lost: NotReached = NotReached("the stream ended before the turn did")
            except NotConnected as error:
                if is_new:
                    raise
                lost = error
            except NotReached as error:
                lost = error
            is_new = False
            if self.stopped is not None:
                return
            self._cut()
            if self._position:
                async with aclosing(self._followed(clock)) as happenings:
                    async for happening in happenings:
                        yield happening
                return
            if not self.turn and not await self._can_repeat(clock):
                raise self._unknown()
            await clock.pause(lost)

    async def joined(self) -> AsyncGenerator[Happening]:
        """What happens in the turn that runs there now, from its start; nothing if none runs, or the server cannot tell."""
        try:
            async with self._server.events(self._session, self._mode) as response:
                if response.status == 204:
                    return
                async with aclosing(self._read(response)) as happenings:
                    async for happening in happenings:
                        yield happening
        except Refused as refused:
            if refused.status in (404, 405, 422) and not self.accepted:
                return
            raise
        except NotReached:
            if not self._position:
                raise
        if self.stopped is None:
            self._cut()
            async with aclosing(self._followed(_Patience(self._server.patience))) as happenings:
                async for happening in happenings:
                    yield happening

    # --- reading ---

    async def _read(self, response: aiohttp.ClientResponse) -> AsyncGenerator[Happening]:
        self.accepted = True
        self.turn = response.headers.get("X-Turn-Id", self.turn)
        self.rate = response.headers.get("RateLimit", self.rate)
        if response.content_type == "application/json":
            for happening in of_answer(await read_json(response)):
                if happening.name == "turn_stop":
                    self.stopped = happening.data
                yield happening
            return
        reader = EventReader()
        async with aclosing(chunks(response, lambda: QUIET_SECONDS if self._position else None)) as arriving:
            async for chunk in arriving:
                for event in _events(reader, chunk):
                    self._position = event.id or self._position
                    happening = Happening(event.name, _data(event.data))
                    if event.name == "turn_stop":
                        self.stopped = happening.data
                    yield happening
                    if self.stopped is not None:
                        return

    # --- coming back ---

    def _cut(self) -> None:
        if not self._was_cut:
            self._say("The connection was cut. Joining again …")
        self._was_cut = True

    async def _followed(self, clock: _Patience) -> AsyncGenerator[Happening]:
        """The rest of the run from the position on."""
        while True:
            lost = NotReached("the stream ended before the turn did")
            try:
                async with self._server.events(self._session, self._mode, self._position) as response:
                    if response.status == 204:
                        raise CutOff("The turn is over, and its end was not among what the server still had to send.")
                    self._say("Joined again where it was cut.")
                    self._was_cut = False
                    clock.begin()
                    async with aclosing(self._read(response)) as happenings:
                        async for happening in happenings:
                            yield happening
            except NotReached as error:
                lost = error
            except Refused as refused:
                raise self._not_kept(refused) from None
            if self.stopped is not None:
                return
            self._cut()
            await clock.pause(lost)

    async def _can_repeat(self, clock: _Patience) -> bool:
        """Whether this server is one that joins a repeated request to the first. Waits until it can be asked."""
        while True:
            try:
                async with self._server.events(self._session, "delta" if self._mode == "none" else self._mode):
                    return True
            except Refused as refused:
                # It knows the address and does not like the mode, which no stranger would.
                return refused.status == 422
            except NotReached as error:
                await clock.pause(error)

    def _unknown(self) -> CutOff:
        if self.accepted:
            return CutOff("The connection was cut, and this server cannot continue a stream. The turn may go on there.")
        return CutOff("The connection was cut before the server answered: whether it has the message is not known.")

    def _not_kept(self, refused: Refused) -> ChatError:
        match refused.status:
            case 404:
                return CutOff("The connection was cut, and there is no stream to join again (404). The turn may go on there.")
            case 410:
                return CutOff("The server no longer keeps what came after the cut.")
        return refused


class _Patience:
    """How long, and how often, a server that does not answer is tried."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        self._until = asyncio.get_running_loop().time() + self._seconds
        self._pause = _FIRST_PAUSE

    async def pause(self, lost: NotReached) -> None:
        """Wait before the next try; raises what was lost when there is no time left."""
        if asyncio.get_running_loop().time() + self._pause > self._until:
            raise CutOff(f"The server did not come back within {self._seconds:g} s. {lost}")
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


# --- happenings out of documents: pure ---


def of_answer(answer: Any) -> list[Happening]:
    """The happenings that the JSON form of a turn comes to."""
    if not isinstance(answer, dict) or not isinstance(answer.get("stopReason"), str):
        raise NotAAP("The server's answer to the turn has not the form that the protocol gives it.")
    found = [happening for message in answer.get("messages") or [] for happening in of_message(message)]
    return [Happening("turn_start", {}), *found, Happening("turn_stop", answer)]


def of_message(message: Any) -> list[Happening]:
    """The happenings that a message of an agent comes to; of anything else nothing."""
    if not isinstance(message, dict):
        return []
    content = message.get("content")
    if message.get("role") == "tool":
        return [Happening("tool_result", message)]
    if message.get("role") != "assistant":
        return []
    if isinstance(content, str):
        return [Happening("text", {"text": content})]
    found = []
    for block in content if isinstance(content, list) else []:
        match block.get("type") if isinstance(block, dict) else None:
            case "text" | "thinking" as kind:
                found.append(Happening(kind, block))
            case "tool_use":
                found.append(Happening("tool_call", block))
            case "image":
                found.append(Happening("image", block))
    return found


def _events(reader: EventReader, chunk: bytes) -> list[Event]:
    try:
        return reader.feed(chunk)
    except EventTooLong:
        raise NotAAP("The server sent an event larger than anything it should have to say.") from None


def _data(written: str) -> Mapping[str, Any]:
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
