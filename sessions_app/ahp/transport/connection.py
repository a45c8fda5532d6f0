"""One client's connection: answers its requests in order and queues what is sent to it.

It has no socket: the consumer passes frames in and sends the frames that come out. A frame is answered after the one before it,
so frames take effect in the order in which they were sent (R21, R84); a ping is answered at once (R52).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from django.conf import settings

from agents_app import tracing
from sessions_app.ahp.transport import jsonrpc, traces
from sessions_app.ahp.transport.failures import error_for
from sessions_app.ahp.transport.jsonrpc import Invalid, Notification, Request, Response
from sessions_app.ahp.transport.outbox import Outbox
from sessions_app.ahp.transport.rate_limit import RateLimit
from sessions_app.ahp.version import EncodedResult, PositionedResult, returning_client
from sessions_app.core.base import byte_budget, database, metrics
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.small_events import SmallEvent
from sessions_app.core.records import handshakes
from sessions_app.core.tenancy.key_watch import Slot, Watched
from sessions_app.core.workspaces.access import Grants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sessions_app.ahp.tenant.switchboard import Switchboard
    from sessions_app.ahp.version import Channel, Command, Version, Versions

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

TOO_SLOW = TRY_AGAIN_LATER = 1013
_LARGE = 32 * 1024
"""Characters. Larger frames are parsed in a thread, so that they do not block the loop."""
_MAX_FRAMES = 64
_MAX_WAITING = 1024 * 1024
"""Characters of all received frames that are not answered yet."""

_calls: set[asyncio.Task[Any]] = set()
"""Calls on the loop that have not ended: the loop itself keeps no reference to them."""


class Connection:
    """One client's connection.

    ``version``: chosen by the handshake, fixed once ``is_open``. ``client``: the client's id, "" before the handshake.
    ``close_code``: set when the connection is to be closed. ``key``: the key that opened it. ``write``: see ``Outbox``.
    """

    def __init__(
        self, key: Watched | Slot, switchboard: Switchboard, versions: Versions, write: Callable[[str], bool] | None = None
    ) -> None:
        self.id = new_id("conn")
        self._key = key
        self.switchboard = switchboard
        self.versions = versions
        self.version = versions.default
        self.is_open = False
        self.remembered: Version | None = None
        """The version of an earlier handshake of the client that comes back; None: not known."""
        self.outbox = Outbox(settings.AGENTHOST_AHP_QUEUE_BYTES, self._on_news, switchboard.unsent, write)
        self.subscriptions: dict[Channel, None] = {}
        self.client = ""
        self.life = ""
        self.locale: str | None = None
        self.grants = Grants()
        self.is_asked = True
        """Whether the host may send requests to the client, which seems to answer them."""
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)
        self.close_code: int | None = None
        self._close_code_after_answer: int | None = None
        self._on_close: Callable[[], object] | None = None
        self._news = SmallEvent()
        self._room = SmallEvent()
        self._frames: list[tuple[str, Callable[[], object]]] = []
        self._waiting = 0
        self._answers_large = False
        """Whether the frame that is answered now is large: handling it would delay others of the loop."""
        self._received = SmallEvent()
        self._rate_limit = RateLimit(settings.AGENTHOST_AHP_DISPATCHES_PER_SECOND)
        self.trace: tracing.Context | None = None
        """That of the upgrade request, if its client sent one: the connection's requests continue its trace."""

    @property
    def caller(self) -> Caller:
        """With the key's current limits."""
        return self._key.caller

    def opened(self, locale: str | None = None) -> None:
        """The handshake has succeeded."""
        self.is_open = True
        self.locale = locale

    async def in_database(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A core call, in one of the tenant's share of threads, as for a request of AAP (R385)."""
        return await database.serve(self.caller.tenant, None, copy_context(), fn, *args, **kwargs)

    async def on_loop(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``in_database`` for a call that needs few round trips: on this loop, if possible."""
        if self._answers_large or not database.has_loop_calls():
            return await self.in_database(fn, *args, **kwargs)
        call = asyncio.create_task(database.serve_on_loop(self.caller.tenant, None, copy_context(), fn, *args, **kwargs))
        _calls.add(call)
        call.add_done_callback(_calls.discard)
        # If the client disconnects, the call continues to its end, as in a thread.
        return await asyncio.shield(call)

    # --- frames in ---

    async def receive(self, frame: str, done: Callable[[], object] = lambda: None) -> None:
        """Accept one text frame. Returns when the next may come: a client that sends faster than it is served has to wait.

        ``done`` is called when the frame is answered.
        """
        if self._asked and await self._take_response(frame):
            done()
            return
        if _is_ping(frame):
            await self._until_not_crowded()
            await self._answer(jsonrpc.parse(frame))
            done()
            return
        while self._frames and (len(self._frames) >= _MAX_FRAMES or self._waiting > _MAX_WAITING) and not self._key.ended:
            self._room.clear()
            await self._room.wait()
        self._frames.append((frame, done))
        self._waiting += len(frame)
        self._received.set()

    async def work(self) -> None:
        """Answer frames until the connection or its key ends. Frames that are still queued when the key ends are dropped."""
        while True:
            while not self._frames:
                self._received.clear()
                await self._received.wait()
            frame, done = self._frames.pop(0)
            size = len(frame)
            await self._until_not_crowded()
            if self._key.ended:
                return
            message = await asyncio.to_thread(jsonrpc.parse, frame) if size > _LARGE else jsonrpc.parse(frame)
            del frame
            await self._answer(message, large=size > _LARGE)
            del message
            self._waiting -= size
            self._room.set()
            done()

    async def _until_not_crowded(self) -> None:
        """Wait until the client has read most of what it asked for."""
        while self.outbox.is_crowded and self.close_code is None:
            self._room.clear()
            await self._room.wait()

    async def _answer(self, message: jsonrpc.Message, *, large: bool = False) -> None:
        if not tracing.is_on():
            await self._answer_now(message, large=large)
            return
        with traces.answering(message, self.version, self.trace):
            await self._answer_now(message, large=large)

    async def _answer_now(self, message: jsonrpc.Message, *, large: bool) -> None:
        match message:
            case Invalid(id_, error):
                self.outbox.put(jsonrpc.error_response(id_, error))
            case Request():
                await self._answer_request(message, large=large)
            case Notification():
                await self._take_notification(message, large=large)
            case Response():
                pass  # Nobody waits for it any more (R25).

    async def _answer_request(self, request: Request, *, large: bool) -> None:
        with byte_budget.answering(self.caller.tenant) as reserved:
            await self._answer_within(reserved, request, large=large)

    async def _answer_within(self, reserved: byte_budget.AnswerBytes, request: Request, *, large: bool) -> None:
        """``reserved``: for the answer until it is in the outbox, which counts it from then on."""
        version = self.version
        holding = False
        outcome = "ok"
        try:
            if not self.is_open:
                version = await self._version_of(request)
            command = self._command(request.method, version.commands)
            if command.is_handshake:
                self.version = version
            if command.needs_write:
                self.caller.require(WRITE)
            params = await self._params(command, request.params, large=large)
            if command.with_states:
                self.outbox.hold()
                holding = True
            result = await command.answer(self, params)
            if isinstance(result, PositionedResult):
                text = jsonrpc.response_of(request.id, result.text)
                await self.switchboard.reached(max(result.positions.values(), default=0))
                if self.close_code is not None:
                    return  # The result is newer than the last action that the connection was sent.
                reserved.end()
                self.outbox.release(text, result.positions, result.followed)
            else:
                is_encoded = isinstance(result, EncodedResult)
                text = jsonrpc.response_of(request.id, result.text) if is_encoded else jsonrpc.response(request.id, result)
                del result
                reserved.end()
                self._put_answer(text, holding=holding)
        except Exception as exception:
            error = error_for(exception, version.errors)
            outcome = str(error.code)
            traces.failed(error.code)
            if isinstance(request.params, dict) and (subject := version.subject(error.code, request.params)) is not None:
                error = error.about(subject)
            self._put_answer(jsonrpc.error_response(request.id, error), holding=holding)
        finally:
            method = request.method if request.method in version.commands else "unknown"
            metrics.AHP_REQUESTS.labels(method, outcome).inc()
        if self._close_code_after_answer is not None:
            self.close(self._close_code_after_answer)

    async def _version_of(self, request: Request) -> Version:
        self.remembered = None
        if client := returning_client(request):
            self.remembered = self.versions.named(await self.in_database(handshakes.last, self.caller, client))
        return self.versions.of_returning(self.remembered, request) or self.versions.of_handshake(request)

    def _put_answer(self, text: str, *, holding: bool) -> None:
        if holding:
            self.outbox.release(text)
        else:
            self.outbox.put(text)

    def _command(self, method: str, commands: Mapping[str, Command]) -> Command:
        command = commands.get(method)
        if command is None or not command.anytime:
            is_handshake = command is not None and command.is_handshake
            if is_handshake and self.is_open:
                raise jsonrpc.invalid_request("The handshake is already done; initialize and reconnect come once per connection.")
            if not is_handshake and not self.is_open:
                raise jsonrpc.invalid_request("The first request must be initialize or reconnect.")
        if command is None or not command.is_served():
            raise jsonrpc.method_not_found(method)
        return command

    @staticmethod
    async def _params(command: Command, params: Any, *, large: bool) -> Any:
        if params is None and command.params_optional:
            params = {}
        try:
            return await asyncio.to_thread(command.params.read, params) if large else command.params.read(params)
        except InvalidInput as error:
            raise jsonrpc.invalid_params(error) from None

    async def _take_notification(self, received: Notification, *, large: bool) -> None:
        """Notifications are never answered, not even malformed ones (R22)."""
        if not self.is_open:
            return
        notification = self.version.client_notifications.get(received.method)
        if notification is None:
            return
        read = notification.params.read
        try:
            params = await asyncio.to_thread(read, received.params) if large else read(received.params)
        except InvalidInput:
            return
        if notification.limited:
            await self._rate_limit.take()
            if self._key.ended:
                return
        self._answers_large = large
        try:
            await notification.take(self, params)
        except Exception as exception:
            # Nothing was stored, not even a refusal: the client reconnects and sends the action again.
            traces.failed(error_for(exception, self.version.errors).code)
            self.close(TRY_AGAIN_LATER)

    def unsubscribe(self, uri: str) -> None:
        for channel in [each for each in self.subscriptions if each.uri == uri]:
            self.switchboard.unsubscribe(channel, self)

    # --- requests to the client ---

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request to the client, and return its result; RPCError if the client refuses. No time limit (R34)."""
        id_ = next(self._ids)
        answer = self._asked[id_] = asyncio.get_running_loop().create_future()
        try:
            self.outbox.put(jsonrpc.request(id_, method, params))
            return await answer
        finally:
            del self._asked[id_]

    async def _take_response(self, frame: str) -> bool:
        """Whether the frame is a response. It is taken before earlier frames, one of which waits for it."""
        if '"result"' not in frame and '"error"' not in frame:
            return False
        message = await asyncio.to_thread(jsonrpc.parse, frame) if len(frame) > _LARGE else jsonrpc.parse(frame)
        if not isinstance(message, Response):
            return False
        answer = self._asked.get(message.id) if isinstance(message.id, int) else None
        if answer is not None and not answer.done():
            if message.error is None:
                answer.set_result(message.result)
            else:
                answer.set_exception(message.error)
        return True

    # --- frames out ---

    async def next(self) -> str | int:
        """The next text to send, after the one before it was sent; after the last one, the code to close with."""
        while True:
            text = self.outbox.next()
            if text is not None or self.close_code is not None:
                self._room.set()
                return text if text is not None else cast(int, self.close_code)
            self._news.clear()
            await self._news.wait()

    def close(self, code: int) -> None:
        """Ask the consumer to close the connection. Frames in the outbox may still be sent before."""
        if self.close_code is None:
            self.close_code = code
            if self._on_close is not None:
                self._on_close()
            self._on_news()
            self._room.set()

    def on_close(self, call: Callable[[], object]) -> None:
        """Call this when the connection is to be closed; immediately if it is."""
        self._on_close = call
        if self.close_code is not None:
            call()

    def close_after_answer(self, code: int) -> None:
        """Close the connection after the answer to the current request."""
        self._close_code_after_answer = code

    def _on_news(self) -> None:
        self._news.set()
        if self.outbox.overflowed:
            # Now, because the writer may wait for a client that reads nothing.
            self.close(TOO_SLOW)


def _is_ping(frame: str) -> bool:
    """Pings are answered before earlier frames. Only short frames are parsed to find them."""
    if len(frame) > 256 or '"ping"' not in frame:
        return False
    message = jsonrpc.parse(frame)
    return isinstance(message, Request) and message.method == "ping"
