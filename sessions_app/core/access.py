"""From an outside id to a row: the only way, and the tenant's wall.

Another tenant's session is not told apart from one that never existed.
"""

from __future__ import annotations

from sessions_app.core.caller import Caller
from sessions_app.core.errors import SessionNotFound
from sessions_app.models import Session


def session(caller: Caller, public_id: str) -> Session:
    row = Session.objects.filter(tenant_id=caller.tenant, public_id=public_id).first() if "\0" not in public_id else None
    if row is None:
        raise SessionNotFound
    return row


def lock_session(caller: Caller, row: Session) -> Session:
    """The row as it is now, locked until the transaction ends; the first lock that a change of a session takes.

    Without the key: rows that refer to the session are stored by transactions that do not lock it.
    """
    locked = Session.objects.select_for_update(no_key=True).filter(tenant_id=caller.tenant, pk=row.pk).first()
    if locked is None:
        raise SessionNotFound
    return locked
