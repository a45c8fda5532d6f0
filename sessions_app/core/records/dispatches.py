"""Dispatched actions of AHP clients: detection of resent actions, and refusals.

The modules that carry out an action call ``record`` inside their transaction and add the action to the event that echoes
it (``with_origin``). A client that reconnects sends again the actions it is not sure of. So an action is a repetition only
if another connection of the same client life sent it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from agents_app import exact_json
from sessions_app.core.base import loop_calls, maintenance, raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import DispatchedBefore
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.models import DispatchRecord

_LONGEST_SEQ = 64


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A client's action, as its face received it.

    ``seq``: the client's number, returned unchanged. ``action``: the action in the form of ``protocol``, secrets masked.
    ``original``: the action as it was received, if ``action`` is an abridged form. ``life``: the time from one full handshake of
    the client to the next, as ``connections.connected`` returned it. ``channel``: the URI to which it was sent, if
    the action does not contain it. ``echo_channel``: where it is echoed, if that is another one.
    """

    client: str
    connection: str
    life: str
    seq: int | float
    protocol: str
    action: Mapping[str, Any] = field(repr=False)
    original: Mapping[str, Any] | None = field(default=None, repr=False)
    channel: str | None = None
    echo_channel: str | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """The action as stored in events."""
        sent = {"client": self.client, "seq": self.seq, "protocol": self.protocol, "said": dict(self.action)}
        if self.channel is not None:
            sent |= {"channel": self.channel, "connection": self.connection}
        return sent if self.echo_channel is None else {**sent, "echo_channel": self.echo_channel}

    @property
    def digest(self) -> str:
        original = self.action if self.original is None else self.original
        text = exact_json.dumps(dict(original)) if self.channel is None else exact_json.dumps([self.channel, dict(original)])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def with_origin(happening: Happening, dispatched: Dispatched | None) -> Happening:
    """The event with the action that caused it, if there is one."""
    if dispatched is None:
        return happening
    return Happening(happening.kind, {**happening.payload, "origin": dispatched.origin}, happening.join)


_INSERT_ONCE = """
insert into sessions_app_dispatchrecord (tenant_id, client, life, seq, digest, connection, refused, at)
values (%s, %s, %s, %s, %s, %s, %s, {now})
"""
_INSERT = f"{_INSERT_ONCE} on conflict do nothing returning id"
_CONNECTION = """
select connection from sessions_app_dispatchrecord
where tenant_id = %s and client = %s and life = %s and seq = %s and digest = %s
"""


def record(caller: Caller, dispatched: Dispatched | None, *, refused: bool = False) -> None:
    """Record the action in the transaction that it causes; DispatchedBefore if it is a repetition."""
    if dispatched is None:
        return
    key = _key(caller, dispatched)
    if raw_sql.row(_INSERT, (*key, dispatched.connection, refused)) is not None:
        return
    before = raw_sql.row(_CONNECTION, key)
    if before is not None and before[0] != dispatched.connection:
        raise DispatchedBefore


def _key(caller: Caller, dispatched: Dispatched) -> tuple[int, str, str, str, str]:
    return (caller.tenant, dispatched.client, dispatched.life, str(dispatched.seq)[:_LONGEST_SEQ], dispatched.digest)


def record_queries(caller: Caller, dispatched: Dispatched | None) -> list[Statement]:
    """The statements of ``record``, for a caller that sends others with them; ``recorded`` reads their rows.

    An optimistic call only reads here: the record must not stay behind in a batch that the call leaves.
    """
    if dispatched is None:
        return []
    key = _key(caller, dispatched)
    found = Statement(_CONNECTION, key)
    return [found] if loop_calls.is_optimistic() else [Statement(_INSERT, (*key, dispatched.connection, False)), found]


def recorded(caller: Caller, dispatched: Dispatched | None, found: Sequence[Rows]) -> list[Statement]:
    """What is left to record, for the end of the transaction, which fails if the action was recorded meanwhile.

    DispatchedBefore if it is a repetition.
    """
    if dispatched is None:
        return []
    if not found[-1]:
        return [Statement(_INSERT_ONCE, (*_key(caller, dispatched), dispatched.connection, False))]
    if found[-1][0][0] != dispatched.connection:
        raise DispatchedBefore
    return []


def refusal(caller: Caller, dispatched: Dispatched, reason: str) -> NewEvent:
    """The tenant's event that reports to one connection that its action was refused."""
    to = {"connection": dispatched.connection, "line": caller.line}
    if caller.session is not None:
        to["session"] = caller.session
    happening = Happening(Kind.DISPATCH_REFUSED, {**to, "reason": reason})
    original = dispatched if dispatched.original is None else replace(dispatched, action=dispatched.original, original=None)
    return NewEvent(caller.tenant, None, with_origin(happening, original))


def refuse(caller: Caller, dispatched: Dispatched, reason: str) -> None:
    """Record the refusal of an action, with its event. ``reason`` is for people."""
    with journal.transaction() as tx:
        record(caller, dispatched, refused=True)
        tx.append(refusal(caller, dispatched, reason))


def delete_old(after: timedelta) -> int:
    """Delete records that are older than this; returns their number."""
    return maintenance.delete_in_batches(DispatchRecord.objects.filter(at__lt=Now() - after))
