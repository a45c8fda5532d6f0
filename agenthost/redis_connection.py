"""A connection of an event loop to the Redis broker, which is opened again whenever it is lost.

redis-py's asynchronous client takes about twice the CPU (docs/decisions/0006) and kombu's has none. Commands are sent as they
are packed, and answers, which have no other connection to them than their order, are passed on as they come.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any, cast

import hiredis
import kombu

from sessions_app.core.base import supervision

_CONNECT_SECONDS = 1.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.05, 1.0
_TLS_OPTIONS = {"ssl_cert_reqs", "ssl_check_hostname", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}


def can_connect(broker: kombu.Connection) -> bool:
    """Whether the broker is a Redis, without options of kombu that are not implemented here."""
    return (
        broker.transport.driver_type == "redis"
        and "://" not in (broker.hostname or "")
        and broker.credential_provider is None
        and not broker.alt
        and (not broker.ssl or (isinstance(broker.ssl, dict) and set(broker.ssl) <= _TLS_OPTIONS))
    )


def pack(*words: str | bytes) -> bytes:
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub says a tuple of one word
    return packed


class RedisConnection:
    """Calls ``opened``, ``answered`` with each answer, and ``lost`` with the reason, all in its loop.

    ``lost`` is also called after an attempt to connect that failed. An answer that is an error, and one that is missing for
    ``patience`` seconds, end a connection. ``broker`` says how to connect, and is not connected itself.
    """

    def __init__(
        self,
        name: str,
        broker: kombu.Connection,
        *,
        patience: float,
        opened: Callable[[], None],
        answered: Callable[[Any], None],
        lost: Callable[[BaseException], None],
    ) -> None:
        self._name, self._broker, self._patience = name, broker, patience
        self._opened, self._answered, self._lost = opened, answered, lost
        self._open: _Protocol | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def unanswered(self) -> int:
        """How many commands have no answer yet. Inside ``lost``: how many will get none."""
        return 0 if self._open is None else self._open.unanswered

    def start(self) -> None:
        self._keeper = supervision.task(self._keep_open(), self._name)

    async def close(self) -> None:
        """Close after everything that was sent is written."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    def send(self, *commands: bytes) -> None:
        """Send commands. The connection must be open."""
        assert self._open is not None
        self._open.send(commands)

    async def _keep_open(self) -> None:
        retry = _FIRST_RETRY_SECONDS
        while True:
            protocol = _Protocol(self._answered, self._patience)
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await self._connect(protocol)
                self._open = protocol
                self._opened()
                error: BaseException = await protocol.lost
            except Exception as failed:  # Whatever it is, the next attempt may succeed.
                error = failed
            finally:
                protocol.close()
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # this is one
                    self._open = None
            self._lost(error)
            # One that connects but refuses commands (a replica, or because it is full) is not asked more often than others.
            if self._open is not None and not isinstance(error, hiredis.ReplyError):
                retry = _FIRST_RETRY_SECONDS
            self._open = None
            await asyncio.sleep(retry * random.uniform(0.5, 1.0))  # noqa: S311  # so that processes do not reconnect all at once
            retry = min(retry * 2, _LAST_RETRY_SECONDS)

    async def _connect(self, protocol: _Protocol) -> None:
        broker = self._broker
        await asyncio.get_running_loop().create_connection(
            lambda: protocol,
            broker.hostname or "127.0.0.1",
            broker.port or 6379,
            ssl=_tls_context(broker.ssl) if isinstance(broker.ssl, dict) else None,
        )
        if broker.password:
            await protocol.ask("AUTH", *([broker.userid] if broker.userid else []), broker.password)
        database = str(broker.virtual_host or "").strip("/") or "0"
        if database != "0":
            await protocol.ask("SELECT", database)


class _Protocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, answered: Callable[[Any], None], patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._answered, self._patience = answered, patience
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._asked: asyncio.Future[object] | None = None
        self._answers = 0
        self._check: asyncio.TimerHandle | None = None
        self.unanswered = 0
        self.lost: asyncio.Future[BaseException] = self._loop.create_future()

    def ask(self, *words: str) -> asyncio.Future[object]:
        """Send one command and return its answer. It raises if that is an error."""
        asked: asyncio.Future[object] = self._loop.create_future()
        self._asked = asked
        if self._transport is not None:
            self._transport.write(pack(*words))
        return asked

    def send(self, commands: tuple[bytes, ...]) -> None:
        self.unanswered += len(commands)
        if self._check is None:
            self._check = self._loop.call_later(self._patience, self._check_answers, -1)
        if self._transport is not None:
            self._transport.write(b"".join(commands))

    def close(self) -> None:
        """Close when everything is written. A Redis that reads nothing gets one second."""
        if self._check is not None:
            self._check.cancel()
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._loop.call_later(1.0, self._transport.abort)
            self._transport.close()

    def _check_answers(self, answers_before: int) -> None:
        """End the connection if no answer has arrived between two checks.

        Between two, because after a pause of the loop itself the first check runs before the answers are read.
        """
        self._check = None
        if self.unanswered:
            if self._answers == answers_before:
                self._lose(TimeoutError("no answer"))
            else:
                self._check = self._loop.call_later(self._patience / 2, self._check_answers, self._answers)

    # Called by asyncio's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                self._take(answer)
        except hiredis.ProtocolError as error:
            self._lose(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionError("the connection was closed"))

    def _take(self, answer: object) -> None:
        if isinstance(answer, hiredis.ReplyError):
            self._lose(answer)
        elif self._asked is not None:
            asked, self._asked = self._asked, None
            if not asked.done():
                asked.set_result(answer)
        elif not self.lost.done():
            self._answers += 1
            self.unanswered -= 1
            self._answered(answer)

    def _lose(self, error: BaseException) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(error)


def _tls_context(options: dict[str, Any]) -> ssl.SSLContext:
    """From kombu's TLS options, with the defaults of redis-py, which gets them from kombu."""
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_certfile"):
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    verify = options.get("ssl_cert_reqs", ssl.CERT_REQUIRED)
    context.check_hostname = verify != ssl.CERT_NONE and options.get("ssl_check_hostname", True)
    context.verify_mode = verify
    return context
