"""One client's connection: what it may do, what it asks, and in which order that happens.

It knows no socket: the consumer gives it frames and takes what is to be sent. Frames are answered one after the other,
so their effects come in the order sent (R21, R84); a ping is answered at once (R52).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from django.conf import settings

from sessions_app.ahp import version as registry
from sessions_app.ahp.shapes import Misfit
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import Invalid, Notification, Request, Response
from sessions_app.ahp.transport.outbox import Outbox
from sessions_app.ahp.transport.rate_limit import Allowance
from sessions_app.ahp.version import AsOf, Handler
from sessions_app.ahp.versions.v0_1 import dispatch, errors
from sessions_app.ahp.versions.v0_1.wire import commands as wire
from sessions_app.core.base import byte_budget, database
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.tenancy.key_watch import Slot, Watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessions_app.ahp.tenant.switchboard import Switchboard

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

TOO_SLOW = NOT_NOW = 1013
_LARGE = 32 * 1024
"""Characters; a larger frame is taken apart in a thread, so that it stops nobody else."""
_MOST_FRAMES = 64
_MOST_WAITING = 1024 * 1024
_VERSION_WITHOUT_ONE = "0.1"


class Connection:
    """``key``: whose it is. ``close_code``: it is to be closed with this. ``client``: set by the handshake; "" before it."""

    def __init__(self, key: Watched | Slot, switchboard: Switchboard) -> None:
        self.id = new_id("conn")
        self._key = key
        self.switchboard = switchboard
        self.outbox = Outbox(settings.AGENTHOST_AHP_QUEUE_BYTES, self._on_news, switchboard.unsent)
        self.subscriptions: dict[int, str] = {}
        self.client = ""
        self.life = ""
        self.version = ""
        self.locale: str | None = None
        self.close_code: int | None = None
        self._farewell: int | None = None
        self._closing = asyncio.Event()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._frames: deque[tuple[str, Callable[[], object]]] = deque()
        self._waiting = 0
        self._came = asyncio.Event()
        self._allowance = Allowance(settings.AGENTHOST_AHP_DISPATCHES_PER_SECOND)

    @property
    def caller(self) -> Caller:
        """With the limits that the key has now."""
        return self._key.caller

    @property
    def is_open(self) -> bool:
        """The handshake is over."""
        return bool(self.version)

    async def in_database(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A core call, in a thread of the tenant's share, as a request of AAP has one (R385)."""
        return await database.serve(self.caller.tenant, None, copy_context(), fn, *args, **kwargs)

    # --- frames in ---

    async def take(self, frame: str, done: Callable[[], object] = lambda: None) -> None:
        """One text frame. Returns when the next one may come: a peer that sends faster than it is served has to wait.

        ``done`` is called when the frame is answered.
        """
        if _is_ping(frame):
            await self._roomy()
            await self._answer(jsonrpc.parse(frame))
            done()
            return
        while self._frames and (len(self._frames) >= _MOST_FRAMES or self._waiting > _MOST_WAITING) and not self._key.ended:
            self._room.clear()
            await self._room.wait()
        self._frames.append((frame, done))
        self._waiting += len(frame)
        self._came.set()

    async def work(self) -> None:
        """Answer frames, for as long as the connection and its key live: what still waits when the key ends is not done."""
        while True:
            while not self._frames:
                self._came.clear()
                await self._came.wait()
            frame, done = self._frames.popleft()
            size = len(frame)
            await self._roomy()
            if self._key.ended:
                return
            message = await asyncio.to_thread(jsonrpc.parse, frame) if size > _LARGE else jsonrpc.parse(frame)
            del frame
            await self._answer(message, large=size > _LARGE)
            del message
            self._waiting -= size
            self._room.set()
            done()

    async def _roomy(self) -> None:
        """Until the peer has read most of what it asked for."""
        while self.outbox.is_crowded and self.close_code is None:
            self._room.clear()
            await self._room.wait()

    async def _answer(self, message: jsonrpc.Message, *, large: bool = False) -> None:
        match message:
            case Invalid(id_, error):
                self.outbox.put(jsonrpc.error_response(id_, error))
            case Request():
                await self._answer_request(message, large=large)
            case Notification():
                await self._hear(message, large=large)
            case Response():
                pass  # Nothing was asked (R25).

    async def _answer_request(self, request: Request, *, large: bool) -> None:
        with byte_budget.answering(self.caller.tenant) as room:
            await self._answer_within(room, request, large=large)

    async def _answer_within(self, room: byte_budget.AnswerBytes, request: Request, *, large: bool) -> None:
        """``room``: for the answer until it is in the outbox, which counts it from then on."""
        held = False
        try:
            handler = self._handler(request.method)
            if handler.changes:
                self.caller.require(WRITE)
            params = await self._params(handler, request.params, large=large)
            if handler.holds:
                self.outbox.hold()
                held = True
            result = await handler.answer(self, params)
            if isinstance(result, AsOf):
                text = f'{{"jsonrpc":"2.0","id":{jsonrpc.encode(request.id)},"result":{result.result}}}'
                await self.switchboard.reached(max(result.floors.values(), default=0))
                if self.close_code is not None:
                    return  # It tells what is beyond the place at which the connection ended.
                room.end()
                self.outbox.release(text, result.floors, result.known)
            else:
                text = jsonrpc.response(request.id, result)
                room.end()
                self._put_answer(text, held=held)
        except Exception as error:
            told = errors.told(error)
            self._put_answer(jsonrpc.error_response(request.id, told), held=held)
        if self._farewell is not None:
            self.close(self._farewell)

    def _put_answer(self, text: str, *, held: bool) -> None:
        if held:
            self.outbox.release(text)
        else:
            self.outbox.put(text)

    def _handler(self, method: str) -> Handler:
        version = self.version or _VERSION_WITHOUT_ONE
        handler = registry.find(version, method)
        if method != "ping":
            opens = handler is not None and handler.opens
            if opens and self.is_open:
                raise jsonrpc.invalid_request("This connection is set up already.")
            if not opens and not self.is_open:
                raise jsonrpc.invalid_request("The first request is initialize or reconnect.")
        if handler is None:
            raise jsonrpc.method_not_found()
        return handler

    @staticmethod
    async def _params(handler: Handler, params: Any, *, large: bool) -> Any:
        if params is None and handler.bare:
            params = {}
        try:
            return await asyncio.to_thread(handler.params.read, params) if large else handler.params.read(params)
        except Misfit as misfit:
            raise jsonrpc.invalid_params(misfit) from None

    async def _hear(self, notice: Notification, *, large: bool) -> None:
        """A notification. Whatever is wrong with it, nobody is told (R22)."""
        if not self.is_open:
            return
        shape = wire.NOTICES.get(notice.method)
        if shape is None:
            return
        try:
            params = await asyncio.to_thread(shape.read, notice.params) if large else shape.read(notice.params)
        except Misfit:
            return
        if notice.method == "unsubscribe":
            self.unsubscribe(params["resource"])
            return
        await self._allowance.take()
        if self._key.ended:
            return
        try:
            await dispatch.take(self, params["clientSeq"], params["action"])
        except Exception as error:
            # Nothing was stored, and nothing can be said about it: the client comes back, and says it again.
            errors.told(error)
            self.close(NOT_NOW)

    def unsubscribe(self, uri: str) -> None:
        for key, subscribed in list(self.subscriptions.items()):
            if subscribed == uri:
                self.switchboard.unsubscribe(key, self)

    # --- frames out ---

    async def next(self) -> str | int:
        """The next text to send, after the one before it was sent; behind the last one the code to close with."""
        while True:
            text = self.outbox.next()
            if text is not None or self.close_code is not None:
                self._room.set()
                return text if text is not None else cast(int, self.close_code)
            self._news.clear()
            await self._news.wait()

    def close(self, code: int) -> None:
        """Close it as soon as the consumer comes by; what waits before that may still go out."""
        if self.close_code is None:
            self.close_code = code
            self._closing.set()
            self._on_news()
            self._room.set()

    async def closing(self) -> None:
        """Return when it is to be closed."""
        await self._closing.wait()

    def close_after_answer(self, code: int) -> None:
        """Close it when the request under way has been answered."""
        self._farewell = code

    def _on_news(self) -> None:
        self._news.set()
        if self.outbox.overflowed:
            # Now, because the writer may wait for a peer that reads nothing.
            self.close(TOO_SLOW)


def _is_ping(frame: str) -> bool:
    """Whether to look at it before everything that was sent earlier. Only short frames are looked into."""
    if len(frame) > 256 or '"ping"' not in frame:
        return False
    message = jsonrpc.parse(frame)
    return isinstance(message, Request) and message.method == "ping"
