"""Revoking keys and suspending tenants: they are refused, then their turns are stopped.

Not to be called within a transaction: keys must be refused before turns are looked at, or a turn could start in
between. Calling a function again is safe, and completes what a call that failed midway left.
"""

from __future__ import annotations

from sessions_app.core.tenancy import keys, tenants
from sessions_app.core.turns.refusals import Refusal
from sessions_app.core.turns.stopping import cancel_key, cancel_tenant
from sessions_app.models import ApiKey, Tenant


def revoke_key(key: ApiKey, *, actor: str, address: str = "", until: float | None = None) -> Refusal:
    """Refuse the key from now on, then stop the runs that it began.

    ``until``: how long it may wait for locked turns, if several refusals share a ``refusals.deadline``.
    """
    changed = keys.mark_revoked(key, actor=actor, address=address)
    return Refusal(changed, cancel_key(key.pk, until))


def suspend_tenant(tenant: Tenant, *, actor: str, address: str = "", until: float | None = None) -> Refusal:
    """Refuse the tenant's keys, then cancel its live turns. ``until``: as above."""
    changed = tenants.mark_suspended(tenant, actor=actor, address=address)
    return Refusal(changed, cancel_tenant(tenant.pk, until))
