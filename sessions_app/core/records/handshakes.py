"""The version that each client of AHP chose last: ``reconnect`` names a client, but no version."""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from sessions_app.core.base import maintenance, raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.raw_sql import Statement
from sessions_app.models import ClientHandshake

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


def delete_old(after: timedelta) -> int:
    """Forget handshakes from longer ago than this; returns their number."""
    return maintenance.delete_in_batches(ClientHandshake.objects.filter(at__lt=Now() - after))
