"""What a key may do with the keys of its tenant: never make one that may do more than itself."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sessions_app.core.base.caller import KEYS, NO_LIMITS, Caller
from sessions_app.core.base.errors import NotPossible, ScopeMissing
from sessions_app.models import ApiKey


def require(caller: Caller) -> None:
    """ScopeMissing or NotPossible for callers that may not manage keys."""
    caller.require(KEYS)
    if caller.token or not caller.sight.is_whole or caller.key_limits != NO_LIMITS:
        raise NotPossible("a token, and a key that is limited to agents or has limits of its own, cannot manage keys")


def require_scopes(caller: Caller, scopes: Collection[str]) -> None:
    """ScopeMissing if one of these is not the caller's own."""
    for scope in scopes:
        if not caller.may(scope):
            raise ScopeMissing(scope)


def require_end(caller: Caller, expires_at: datetime | None) -> None:
    """NotPossible for a new key that would be valid longer than the caller's own. None: it never expires."""
    own = ApiKey.objects.values_list("expires_at", flat=True).get(pk=caller.key)
    if own is not None and (expires_at is None or expires_at > own):
        raise NotPossible(
            f"a key that expires makes and rotates only keys that expire no later than itself, at {own:%Y-%m-%dT%H:%M:%SZ}; "
            "use a key without expiry, or the console"
        )
