"""Prepared statements in one round trip, on a psycopg connection, in a thread or on the event loop.

psycopg's own pipelines and cursors cost two to three times as much CPU for the small statements of a turn: they flush and
poll for each statement, and inspect every parameter. Here all statements are sent with one write, parameters and results are
text, and the server finds the parameters' types (docs/decisions/0050).
"""

from __future__ import annotations

import asyncio
import itertools
import select
from collections.abc import Generator, Sequence
from datetime import date, datetime
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus

from sessions_app.core.base import loop_calls

Rows = list[tuple[Any, ...]]
T = TypeVar("T")
Reading = Generator[bool, None, T]
"""Reads an answer; yields when the socket has to be waited for, and whether it has to become writable."""

_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR)
_BEGIN, _COMMIT = "begin", "commit"
_PREPARED = "_agenthost_prepared"
_MOST_PREPARED = 300
"""Statements of a connection; further ones are parsed each time, such as those of steps with unusual numbers of calls."""


class _Prepared:
    """The prepared statements of one connection: their names by their SQL."""

    def __init__(self) -> None:
        self.names: dict[str, bytes] = {}
        self._numbers = itertools.count()

    def new(self, sql: str) -> bytes | None:
        """A name that was never used on this connection; None if there are too many."""
        if len(self.names) >= _MOST_PREPARED:
            return None
        name = self.names[sql] = b"ah%d" % next(self._numbers)
        return name


def _text(value: Any) -> bytes | None:
    """A parameter as the text that Postgres reads."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case bool():
            return b"t" if value else b"f"
        case bytes():
            return b"\\x" + value.hex().encode()
        case list() | tuple():
            return b"{" + b",".join(map(_element, value)) + b"}"
        case datetime() | date():
            return value.isoformat().encode()
    return str(value).encode()


def _element(value: Any) -> bytes:
    if value is None:
        return b"null"
    text = _text(value)
    assert text is not None
    if isinstance(value, str):
        return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    return text


class Pipeline:
    """Statements that are sent together. ``add`` them, ``sync`` at the end of each group, then take each group's ``rows``.

    An error fails the rest of its group. A transaction that the connection wants is begun before the first statement.
    """

    def __init__(self, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._conn, self._pgconn = conn, conn.pgconn
        self._prepared: _Prepared = conn.__dict__.setdefault(_PREPARED, _Prepared())
        self._groups: list[list[tuple[str, bool]]] = [[]]
        """The statements of each group, and whether each is only prepared."""
        self._begins = not conn.autocommit and self._pgconn.transaction_status == TransactionStatus.IDLE
        if self._pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the connection is lost")
        self._pgconn.enter_pipeline_mode()
        if self._begins:
            self.add(_BEGIN)

    def add(self, sql: str, params: Sequence[Any] = ()) -> None:
        values = [_text(each) for each in params]
        name = self._prepared.names.get(sql)
        if name is None and (name := self._prepared.new(sql)) is not None:
            self._pgconn.send_prepare(name, _numbered(sql))
            self._groups[-1].append((sql, True))
        if name is None:
            self._pgconn.send_query_params(_numbered(sql), values)
        else:
            self._pgconn.send_query_prepared(name, values)
        self._groups[-1].append((sql, False))

    def sync(self) -> None:
        """End a group: its statements are executed even if nothing follows."""
        self._pgconn.pipeline_sync()
        self._groups.append([])

    def rows(self) -> list[Rows]:
        """The rows of each statement of the next group. If one failed, the answers of later groups are dropped."""
        reading = self._read()
        try:
            while True:
                _wait(self._pgconn.socket, writing=next(reading))
        except StopIteration as done:
            found: list[Rows] = done.value
            return found

    async def rows_async(self) -> list[Rows]:
        """``rows`` for coroutines."""
        reading = self._read()
        try:
            while True:
                await _ready(self._pgconn.socket, writing=next(reading))
        except StopIteration as done:
            found: list[Rows] = done.value
            return found

    def _read(self) -> Reading[list[Rows]]:
        found, failed = yield from self._answers(self._groups.pop(0))
        while failed is not None and len(self._groups) > 1:
            yield from self._answers(self._groups.pop(0))
        if len(self._groups) == 1:
            self._pgconn.exit_pipeline_mode()
        if failed is not None:
            raise failed
        begins, self._begins = self._begins, False
        return found[1:] if begins else found

    def _answers(self, group: list[tuple[str, bool]]) -> Reading[tuple[list[Rows], psycopg.Error | None]]:
        found: list[Rows] = []
        failed: psycopg.Error | None = None
        for sql, is_preparation in group:
            result = yield from self._result()
            assert result is not None
            after = yield from self._result()
            assert after is None, "one result for each statement"
            if result.status in _FAILED or result.status == ExecStatus.PIPELINE_ABORTED:
                if is_preparation:
                    self._prepared.names.pop(sql, None)
                if failed is None:
                    failed = error_from_result(result, encoding="utf-8")
            elif not is_preparation:
                found.append(self._loaded(result))
        end = yield from self._result()
        assert end is not None
        assert end.status == ExecStatus.PIPELINE_SYNC
        return found, failed

    def _loaded(self, result: psycopg.pq.abc.PGresult) -> Rows:
        if result.status != ExecStatus.TUPLES_OK or not result.ntuples:
            return []
        transformer = Transformer(self._conn)
        transformer.set_pgresult(result, set_loaders=True, format=psycopg.pq.Format.TEXT)
        return transformer.load_rows(0, result.ntuples, tuple)

    def _result(self) -> Reading[psycopg.pq.abc.PGresult | None]:
        pgconn = self._pgconn
        while pgconn.flush():
            yield True
            pgconn.consume_input()
        while pgconn.is_busy():
            yield False
            pgconn.consume_input()
        return pgconn.get_result()


def _numbered(sql: str) -> bytes:
    """The statement with Postgres' numbered parameters instead of ``%s``."""
    pieces = sql.split("%s")
    text = pieces[0]
    for number, piece in enumerate(pieces[1:], 1):
        text += f"${number}{piece}"
    return text.replace("%%", "%").encode()


def _wait(fileno: int, *, writing: bool) -> None:
    if loop_calls.current() is not None:
        loop_calls.wait_for(_ready(fileno, writing=writing))
        return
    poll = select.poll()
    poll.register(fileno, select.POLLOUT | select.POLLIN if writing else select.POLLIN)
    poll.poll()


async def _ready(fileno: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fileno, _resolve, ready)
    if writing:
        loop.add_writer(fileno, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fileno)
        if writing:
            loop.remove_writer(fileno)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
