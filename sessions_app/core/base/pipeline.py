"""Prepared statements in one round trip, on a psycopg connection, in a thread or on the event loop.

psycopg's own pipelines and cursors cost two to three times as much CPU for the small statements of a turn: they flush and
poll for each statement, and inspect every parameter. Here all statements are sent with one write, parameters and results are
text, and the server finds the parameters' types (docs/decisions/0050).
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from sessions_app.core.base import loop_calls

Rows = list[tuple[Any, ...]]
T = TypeVar("T")
Reading = Generator[bool, None, T]
"""Reads an answer; yields when the socket has to be waited for, and whether it has to become writable."""

_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR)
_BEGIN, _ROLLBACK = "begin", "rollback"
_PREPARED = "_agenthost_prepared"
_MOST_PREPARED = 300
"""The statements of this project are fewer. Others of a connection are planned each time."""
_INVALIDATED = ("26000", "0A000")
"""SQLSTATEs: the statement is not prepared (any more), and its result has other types since a table was changed."""


def _text(value: Any) -> bytes | None:
    """A parameter as the text that Postgres reads. DataError for U+0000, at which libpq would cut the text off."""
    match value:
        case None:
            return None
        case str():
            if "\0" in value:
                raise psycopg.DataError("PostgreSQL text cannot contain U+0000")
            return value.encode()
        case bool():
            return b"t" if value else b"f"
        case bytes() | bytearray() | memoryview():
            return b"\\x" + value.hex().encode()
        case list() | tuple():
            return b"{" + b",".join(map(_element, value)) + b"}"
        case datetime() | date():
            return value.isoformat().encode()
    return str(value).encode()


def _element(value: Any) -> bytes:
    text = _text(value)
    if text is None:
        return b"null"
    if isinstance(value, str | bytes | bytearray | memoryview):
        return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    return text


@dataclass(slots=True)
class _Prepared:
    """The statements that are prepared on a connection, by their SQL."""

    names: dict[str, bytes] = field(default_factory=dict)
    _last: int = 0

    def new_name(self) -> bytes:
        """A name that no other statement has had: one that failed to be prepared may be followed by one that did not."""
        self._last += 1
        return b"ah%d" % self._last


@dataclass(slots=True)
class _Group:
    """Statements that are answered together. ``is_synced``: their transaction ends with them."""

    statements: list[tuple[str, list[bytes | None]]] = field(default_factory=list)
    is_synced: bool = True


class Pipeline:
    """Statements that are sent together. ``add`` them, ``sync`` at the end of each group, then take each group's ``rows``.

    ``flush`` ends a group too, but not its transaction: the server sends the answers, and the next group continues it. So
    these answers can be read while the transaction's end waits for the disk, or more statements be added after them. Whoever
    adds none calls ``roll_back``.

    An error fails the rest of its transaction. A transaction that the connection wants is begun before the first statement.
    Nothing is sent before the next ``rows``, so a parameter that cannot be sent leaves the connection as it was.
    """

    def __init__(self, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._conn, self._pgconn = conn, conn.pgconn
        prepared: _Prepared | None = conn.__dict__.get(_PREPARED)
        if prepared is None:
            prepared = conn.__dict__[_PREPARED] = _Prepared()
        self._prepared = prepared
        self._added: list[_Group] = [_Group()]
        self._groups: list[tuple[list[tuple[str, bool]], bool]] = []
        """Of each group that was sent and not read: its statements and whether each is only prepared; whether it ends a
        transaction."""
        self._is_open = self._is_reading = False
        if self._pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the connection is lost")
        self._begins = not conn.autocommit and self._pgconn.transaction_status == TransactionStatus.IDLE
        if self._begins:
            self.add(_BEGIN)

    def add(self, sql: str, params: Sequence[Any] = ()) -> None:
        self._added[-1].statements.append((sql, [_text(each) for each in params]))

    def sync(self) -> None:
        """End a group: its statements are executed even if nothing follows."""
        self._added.append(_Group())

    def flush(self) -> None:
        """End a group, but not its transaction, which ends with the next ``sync``."""
        self._added[-1].is_synced = False
        self._added.append(_Group())

    @property
    def is_open(self) -> bool:
        """Whether a transaction was flushed and not ended."""
        return self._is_open

    @property
    def is_answered(self) -> bool:
        """Whether the server has answered everything that was sent; False if the connection is lost."""
        return not self._is_reading and not self._groups

    def roll_back(self) -> None:
        """Undo an open transaction whose answers were read."""
        # BEGIN makes a block of the transaction. ROLLBACK alone would be a warning in the server's log.
        self._added = [_Group()]
        self.add(_BEGIN)
        self.add(_ROLLBACK)
        self.sync()
        self.rows()

    def _send(self) -> None:
        if self._pgconn.pipeline_status == PipelineStatus.OFF:
            self._pgconn.enter_pipeline_mode()
        added_groups, self._added = self._added[:-1], self._added[-1:]
        for added in added_groups:
            group: list[tuple[str, bool]] = []
            for sql, params in added.statements:
                self._send_one(sql, params, group)
            if added.is_synced:
                self._pgconn.pipeline_sync()
            else:
                self._pgconn.send_flush_request()
            self._groups.append((group, added.is_synced))

    def _send_one(self, sql: str, params: list[bytes | None], group: list[tuple[str, bool]]) -> None:
        name = self._prepared.names.get(sql)
        if name is None and len(self._prepared.names) >= _MOST_PREPARED:
            self._pgconn.send_query_params(_numbered(sql), params)
        else:
            if name is None:
                name = self._prepared.names[sql] = self._prepared.new_name()
                self._pgconn.send_prepare(name, _numbered(sql))
                group.append((sql, True))
            self._pgconn.send_query_prepared(name, params)
        group.append((sql, False))

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
        if not self._groups:
            self._send()
        self._is_reading = True
        is_synced = self._groups[0][1]
        found, failed = yield from self._answers(*self._groups.pop(0))
        while failed is not None and self._groups:
            is_synced = self._groups[0][1]
            yield from self._answers(*self._groups.pop(0))
        if failed is not None and not is_synced:
            # The server ignores everything up to a sync.
            self._pgconn.pipeline_sync()
            is_synced = True
            yield from self._answers([], is_synced)
        if is_synced and not self._groups:
            self._pgconn.exit_pipeline_mode()
        self._is_open, self._is_reading = not is_synced, False
        if failed is not None:
            raise failed
        begins, self._begins = self._begins, False
        return found[1:] if begins else found

    def _answers(self, group: list[tuple[str, bool]], is_synced: bool) -> Reading[tuple[list[Rows], psycopg.Error | None]]:
        found: list[Rows] = []
        failed: psycopg.Error | None = None
        for sql, is_preparation in group:
            result = yield from self._result()
            after = yield from self._result()
            if result is None or after is not None:
                raise _lost(failed)
            if result.status in _FAILED or result.status == ExecStatus.PIPELINE_ABORTED:
                if is_preparation:
                    self._prepared.names.pop(sql, None)
                if failed is None:
                    failed = error_from_result(result, encoding="utf-8")
                    if failed.sqlstate in _INVALIDATED:
                        self._prepared.names.clear()
            elif not is_preparation:
                found.append(self._loaded(result))
        end = (yield from self._result()) if is_synced else None
        if end is not None and end.status in _FAILED:
            # The end of the transaction failed, as where a deferred constraint is violated.
            failed = failed or error_from_result(end, encoding="utf-8")
            yield from self._result()
            end = yield from self._result()
        if is_synced and (end is None or end.status != ExecStatus.PIPELINE_SYNC):
            raise _lost(failed)
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


def _lost(error: psycopg.Error | None) -> psycopg.Error:
    """The error of a connection that ended between two results: the server's last one, if it sent one."""
    return psycopg.OperationalError("the connection is lost") if error is None else error


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
