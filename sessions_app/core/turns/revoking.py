"""Revoking keys and suspending tenants: requests are refused from now on, then live turns are stopped.

Call these outside any transaction: keys must be refused before turns are looked for, or a turn could start in between. A
second call is safe, and completes a first one that failed midway.
"""

from __future__ import annotations

from sessions_app.core.base.caller import Caller
from sessions_app.core.tenancy import api_audit, key_management, keys, tenants
from sessions_app.core.turns.refusals import Refusal
from sessions_app.core.turns.stopping import cancel_key, cancel_tenant
from sessions_app.models import ApiKey, Tenant


def revoke_key(key: ApiKey, *, actor: str, address: str = "", until: float | None = None) -> Refusal:
    """Refuse the key from now on, then stop the runs that it started.

    ``until``: a ``refusals.deadline`` that several calls share; None: one of its own.
    """
    changed = keys.mark_revoked(key, actor=actor, address=address)
    return Refusal(changed, cancel_key(key.pk, until))


def revoke_key_for(caller: Caller, number: int) -> Refusal:
    """``revoke_key`` for a client that manages keys. KeyNotFound; ScopeMissing for a key that may do more than its own."""
    by = api_audit.by(caller)
    return revoke_key(key_management.weaker(caller, number), actor=by["actor"], address=by["address"])


def suspend_tenant(tenant: Tenant, *, actor: str, address: str = "", until: float | None = None) -> Refusal:
    """Refuse the tenant's keys from now on, then stop its live turns. ``until``: as in ``revoke_key``."""
    changed = tenants.mark_suspended(tenant, actor=actor, address=address)
    return Refusal(changed, cancel_tenant(tenant.pk, until))
