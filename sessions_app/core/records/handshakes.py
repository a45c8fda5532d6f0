"""What clients of AHP rely on when they come back: the version that each chose last, and the mark in their tenant's journal.

``reconnect`` names a client, but no version. Events from before the mark may lack what actions of AHP 0.9 and 1.0 are made of.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from sessions_app.core.base import maintenance, raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.models import ClientHandshake, Tenant

LONGEST_CLIENT = 256

_REMEMBER = """
insert into sessions_app_clienthandshake (tenant_id, client, version, at) values (%s, %s, %s, {now})
on conflict (tenant_id, client) do update set version = excluded.version, at = excluded.at
"""


def remember(caller: Caller, client: str, version: str) -> None:
    """The last handshake counts, whatever other connections of the client there are. ``version``: the version's name."""
    raw_sql.execute([Statement(_REMEMBER, (caller.tenant, client, version))])


def last(caller: Caller, client: str) -> str | None:
    """The name of the version; None for an unknown client."""
    if not client or len(client) > LONGEST_CLIENT or UNSTORABLE.search(client):
        return None
    return ClientHandshake.objects.filter(tenant_id=caller.tenant, client=client).values_list("version", flat=True).first()


def mark(caller: Caller) -> int:
    """The number of the tenant's event ``new_families_from``, which is written when a client of these versions comes first."""
    found = _mark_of(caller)
    if found is not None:
        return found
    with journal.transaction() as tx:
        Tenant.objects.select_for_update(no_key=True).only("pk").get(pk=caller.tenant)
        found = _mark_of(caller)
        if found is not None:
            return found
        # Until the event is appended no other gets a number.
        journal.lock_counter(caller.tenant)
        number = journal.counter_and_sessions(caller.tenant)[0] + 1
        Tenant.objects.filter(pk=caller.tenant).update(new_families_from=number)
        tx.append(NewEvent(caller.tenant, None, Happening(Kind.NEW_FAMILIES_FROM, {})))
    return number


def _mark_of(caller: Caller) -> int | None:
    return Tenant.objects.filter(pk=caller.tenant).values_list("new_families_from", flat=True).get()


def delete_old(after: timedelta) -> int:
    """Forget handshakes from longer ago than this; returns their number."""
    return maintenance.delete_in_batches(ClientHandshake.objects.filter(at__lt=Now() - after))
