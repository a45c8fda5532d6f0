"""From which networks a key is used. The first use from a network is an audit record.

A process remembers what it has seen, so a request asks the database only on the first use of a day from a network. Short-lived
tokens do not count: browsers everywhere have them.
"""

from __future__ import annotations

import time
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from sessions_app.core.base import client_address, maintenance, raw_sql
from sessions_app.core.base.client_networks import group_of
from sessions_app.core.tenancy import audit
from sessions_app.models import KeyAddress

MOST = 100
"""Networks of a key that are remembered. Further ones are not recorded until some are forgotten."""
KEPT = timedelta(days=90)
"""How long a network is remembered. After that its next use is recorded again."""
_MOST_KNOWN = 10_000
_KNOWN_SECONDS = 86400.0
_known: dict[tuple[int, str], float] = {}
_INSERT = """
insert into sessions_app_keyaddress (tenant_id, key_id, network)
 select %s, %s, %s where (select count(*) from sessions_app_keyaddress where key_id = %s) < %s
 on conflict (key_id, network) do nothing returning id
"""


def is_known(key: int) -> bool:
    """Whether this process has seen the key with the present client's address. Without the database."""
    address = client_address.current.get()
    if not address:
        return True
    seen = _known.get((key, address))
    return seen is not None and time.monotonic() - seen < _KNOWN_SECONDS


def note(tenant: int, key: int, prefix: str) -> None:
    """Remember the present client's network, and record it if it is new for this key."""
    address = client_address.current.get()
    network = group_of(address)
    with transaction.atomic():
        if raw_sql.row(_INSERT, (tenant, key, network, key, MOST)) is not None:
            is_last = KeyAddress.objects.filter(key_id=key).count() >= MOST
            full = f"; the last of {MOST} that are recorded within {KEPT.days} days" if is_last else ""
            audit.record(
                actor=f"key:{prefix}",
                action=audit.Action.KEY_USED_FROM_NEW_ADDRESS,
                target=f"key {prefix}…",
                tenant_id=tenant,
                address=address,
                detail=f"network {network}{full}",
            )
    while len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[key, address] = time.monotonic()


def delete_old() -> int:
    """Forget networks that were recorded long ago; returns their number."""
    return maintenance.delete_in_batches(KeyAddress.objects.filter(seen_at__lt=Now() - KEPT))


def forget_known() -> None:
    """For tests: clear the cache, as in a new process."""
    _known.clear()
