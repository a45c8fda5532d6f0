"""What a key may do with the keys of its tenant: manage those that may do no more than itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sessions_app.core.base.caller import KEYS, NO_LIMITS, Caller, Limits
from sessions_app.core.base.errors import NotPossible, ScopeMissing
from sessions_app.core.tenancy import api_audit, keys, quotas
from sessions_app.models import ApiKey, Tenant

_STRONGER = "a key manages only keys that may do no more than itself"


def require(caller: Caller) -> None:
    """ScopeMissing or NotPossible for callers that may not manage keys."""
    caller.require(KEYS)
    require_unlimited(caller, "manage keys")


def require_unlimited(caller: Caller, action: str) -> None:
    """NotPossible for a caller that is less than a whole key of the tenant. ``action``: what it may not do."""
    if caller.token or not caller.sight.is_whole or caller.key_limits != NO_LIMITS:
        raise NotPossible(f"a token, and a key that is limited to agents or has limits of its own, cannot {action}")


def issue(
    caller: Caller,
    *,
    name: str,
    scopes: Collection[str],
    expires_at: datetime | None,
    allowed_agents: Sequence[str] | None,
    limits: Mapping[str, int | None],
) -> keys.Issued:
    """Make a key. ``limits``: by the names of ``Limits``; those that are left out are not limited."""
    require(caller)
    _require_scopes(caller, scopes)
    _require_end(caller, expires_at)
    return keys.issue(
        Tenant.objects.get(pk=caller.tenant),
        name=name,
        scopes=scopes,
        expires_at=expires_at,
        allowed_agents=allowed_agents,
        limits=replace(NO_LIMITS, **limits),
        **api_audit.by(caller),
    )


def set_limits(caller: Caller, number: int, limits: Mapping[str, int | None]) -> ApiKey:
    """Change the limits that are named."""
    row = weaker(caller, number)
    before: Limits = quotas.own_limits(row)
    keys.set_limits(row, replace(before, **limits), **api_audit.by(caller))
    return row


def rotate(caller: Caller, number: int, overlap: timedelta) -> keys.Issued:
    row = weaker(caller, number)
    _require_end(caller, keys.end_after_rotation(row, datetime.now(UTC)))
    return keys.rotate(row, overlap, **api_audit.by(caller))


def weaker(caller: Caller, number: int) -> ApiKey:
    """The tenant's key with this row number, if the caller may manage it. KeyNotFound if there is none.

    ScopeMissing if it has a scope that the caller has not. Otherwise the weakest key of a tenant that manages keys could end
    the runs of all others.
    """
    require(caller)
    row = keys.find(caller.tenant, number)
    _require_scopes(caller, keys.shown_scopes(row))
    return row


def _require_scopes(caller: Caller, scopes: Collection[str]) -> None:
    for scope in scopes:
        if not caller.may(scope):
            raise ScopeMissing(scope, _STRONGER)


def _require_end(caller: Caller, expires_at: datetime | None) -> None:
    """NotPossible for a new key that would be valid longer than the caller's own. None: it never expires."""
    own = end_of(caller)
    if own is not None and (expires_at is None or expires_at > own):
        raise NotPossible(
            f"a key that expires makes and rotates only keys that expire no later than itself, at {own:%Y-%m-%dT%H:%M:%SZ}; "
            "use a key without expiry, or the console"
        )


def end_of(caller: Caller) -> datetime | None:
    """When the caller's key expires; None: never."""
    return ApiKey.objects.values_list("expires_at", flat=True).get(pk=caller.key)
