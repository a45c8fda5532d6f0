"""Per-tenant admission control, shared by both protocols.

A tenant has at most half of the threads that a web process has for requests, whatever its requests wait for. What is over
its share waits in the loop, with neither a thread nor a connection to the database.
"""

from __future__ import annotations

from contextvars import copy_context

from sessions_app.core import database, keys
from sessions_app.core.caller import Caller

_MOST_REMEMBERED = 10_000

_tenants: dict[str, int] = {}
"""The tenants of keys that were good once, by the key's digest: one may have been revoked since."""


async def tenant_of(raw: str, patience: float) -> int:
    """The tenant of a key, looked up when it is first seen. NotAuthenticated if the key is no good then."""
    known = _tenants.get(keys.digest_of(raw))
    return (await authenticate(raw, patience)).tenant if known is None else known


async def authenticate(raw: str, patience: float) -> Caller:
    """The caller with this key; an unknown key is looked up at the expense of all unknown keys, not of any tenant.

    NotAuthenticated if the key is no good, TimeoutError if it could not be looked up within ``patience`` seconds.
    """
    digest = keys.digest_of(raw)
    owner = _tenants.get(digest, database.UNKNOWN)
    caller = await database.serve(owner, patience, copy_context(), keys.authenticate, raw)
    while len(_tenants) >= _MOST_REMEMBERED:
        _tenants.pop(next(iter(_tenants)), None)
    _tenants[digest] = caller.tenant
    return caller
