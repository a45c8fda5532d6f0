"""Actions that clients dispatch: the log that makes a resent one harmless, and the refusal of one.

What an action does is other modules' business: they call ``remember`` inside their transaction, and put the
action into the event that echoes it (``told``). A client that came back sends again what it is not sure of;
so an action counts as sent before only if another connection of the same life brought it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from agents_app import exact_json
from sessions_app.core.base import maintenance, raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import DispatchedBefore
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.models import DispatchRecord

_LONGEST_SEQ = 64


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A client's action, as its face received it.

    ``seq`` is the client's number, given back as it came. ``said`` is the action in the words of ``protocol``,
    secrets masked; ``came`` is the same letter for letter, if ``said`` is only what is kept of it.
    ``life`` is what ``clients.connected`` answered to ``connection``.
    """

    client: str
    connection: str
    life: str
    seq: int | float
    protocol: str
    said: Mapping[str, Any] = field(repr=False)
    came: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def origin(self) -> dict[str, Any]:
        """As the event tells it."""
        return {"client": self.client, "seq": self.seq, "protocol": self.protocol, "said": dict(self.said)}

    @property
    def digest(self) -> str:
        came = self.said if self.came is None else self.came
        return hashlib.sha256(exact_json.dumps(dict(came)).encode("utf-8", "surrogatepass")).hexdigest()


def with_origin(happening: Happening, dispatched: Dispatched | None) -> Happening:
    """The event with its origin, if it has one."""
    if dispatched is None:
        return happening
    return Happening(happening.kind, {**happening.payload, "origin": dispatched.origin}, happening.join)


_INSERT = """
insert into sessions_app_dispatchrecord (tenant_id, client, life, seq, digest, connection, refused, at)
values (%s, %s, %s, %s, %s, %s, %s, {now}) on conflict do nothing returning id
"""
_BY_WHOM = """
select connection from sessions_app_dispatchrecord
where tenant_id = %s and client = %s and life = %s and seq = %s and digest = %s
"""


def record(caller: Caller, dispatched: Dispatched | None, *, refused: bool = False) -> None:
    """Log the action in the transaction that it causes; DispatchedBefore if it was sent again."""
    if dispatched is None:
        return
    key = (caller.tenant, dispatched.client, dispatched.life, str(dispatched.seq)[:_LONGEST_SEQ], dispatched.digest)
    if raw_sql.row(_INSERT, (*key, dispatched.connection, refused)) is not None:
        return
    before = raw_sql.row(_BY_WHOM, key)
    if before is not None and before[0] != dispatched.connection:
        raise DispatchedBefore


def refusal(caller: Caller, dispatched: Dispatched, reason: str) -> NewEvent:
    """The event of the tenant that tells one connection that its action was not taken."""
    happening = Happening(Kind.DISPATCH_REFUSED, {"connection": dispatched.connection, "line": caller.line, "reason": reason})
    as_it_came = dispatched if dispatched.came is None else replace(dispatched, said=dispatched.came, came=None)
    return NewEvent(caller.tenant, None, with_origin(happening, as_it_came))


def refuse(caller: Caller, dispatched: Dispatched, reason: str) -> None:
    """Store that the action was refused. ``reason`` is for people."""
    with journal.transaction() as tx:
        record(caller, dispatched, refused=True)
        tx.append(refusal(caller, dispatched, reason))


def delete_old(after: timedelta) -> int:
    """Delete records that are older; how many there were."""
    return maintenance.delete_in_batches(DispatchRecord.objects.filter(at__lt=Now() - after))
