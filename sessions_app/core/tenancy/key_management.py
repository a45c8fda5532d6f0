"""What a key may do with the keys of its tenant: never make one that may do more than itself."""

from __future__ import annotations

from collections.abc import Collection

from sessions_app.core.base.caller import KEYS, NO_LIMITS, Caller
from sessions_app.core.base.errors import NotPossible, ScopeMissing


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
