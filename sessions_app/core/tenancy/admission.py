"""Per-tenant admission control, shared by both protocols.

A tenant uses at most half of a web process's request threads. Its further requests wait in the loop, without a thread or a
database connection. Lookups of keys that are not known yet share a small number of threads, and an address that sends too
many unknown keys is refused.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import copy_context

from django.conf import settings
from django.db import Error as DatabaseError

from sessions_app.core.base import database, metrics
from sessions_app.core.base.buckets import Bucket, Buckets
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotAuthenticated, NotReady, TooManyWrongKeys
from sessions_app.core.tenancy import credentials, keys
from sessions_app.core.tenancy.wrong_keys import WrongKeys

_MOST_REMEMBERED = 10_000
_MOST_LOOKUPS = 100
"""Concurrent lookups of unknown keys, waiting ones included; further ones get NotReady."""
_REFUSALS_PER_SECOND = 50
_REFUSALS_AT_ONCE = 300
"""Refusals and OPTIONS responses that one address gets without a delay; separately, as many health responses."""
_PAGES_PER_SECOND = 10
_PAGES_AT_ONCE = 300
"""Pages and their static files that one address gets without a delay. A page costs as much as many refusals."""
_SLOWED_SECONDS = 1.0
_MOST_SLOWED = 1000

_tenants: dict[str, int] = {}
"""A cache of key digests: the tenant of each key that was valid when it was last used."""
_wrong = WrongKeys(lambda: int(settings.AGENTHOST_WRONG_KEYS_PER_MINUTE))
_refusals = Buckets(lambda: Bucket(_REFUSALS_PER_SECOND, _REFUSALS_AT_ONCE), 10_000)
_health = Buckets(lambda: Bucket(_REFUSALS_PER_SECOND, _REFUSALS_AT_ONCE), 10_000)
_pages = Buckets(lambda: Bucket(_PAGES_PER_SECOND, _PAGES_AT_ONCE), 10_000)
_lookups = 0
_slowed = 0


async def tenant_of(raw: str, address: str, timeout: float) -> int:
    """The tenant of a key, cached after the first lookup; raises what ``authenticate`` raises."""
    known = _tenants.get(keys.digest_of(raw))
    return (await authenticate(raw, address, timeout)).tenant if known is None else known


async def authenticate(raw: str, address: str, timeout: float) -> Caller:
    """The caller with this key. Lookups of uncached keys use the threads for unknown keys, not a tenant's.

    Raises NotAuthenticated if the key is not valid, TooManyWrongKeys if ``address`` sent too many unknown keys, TimeoutError if
    the key could not be looked up within ``timeout`` seconds.
    """
    if not credentials.looks_valid(raw):
        raise NotAuthenticated
    digest = keys.digest_of(raw)
    tenant = _tenants.get(digest)
    if tenant is None:
        return await _look_up(raw, digest, address, timeout)
    try:
        return await database.serve(tenant, timeout, copy_context(), credentials.authenticate, raw)
    except NotAuthenticated:
        forget(raw)
        raise


async def is_good(raw: str, tenant: int, timeout: float) -> bool:
    """Whether a key of this tenant is still valid; True if the database does not answer. Does not count as a use of the key."""
    try:
        return await database.serve(tenant, timeout, copy_context(), credentials.is_good, raw)
    except (TimeoutError, DatabaseError, NotReady):
        return True


def forget(raw: str) -> None:
    """Remove a key from the cache: it was revoked or has expired, or its tenant is suspended."""
    _tenants.pop(keys.digest_of(raw), None)


def forget_all() -> None:
    """For tests: clear all caches and limits, as in a new process."""
    _tenants.clear()
    _wrong.clear()
    _refusals.clear()
    _health.clear()
    _pages.clear()


async def delay_refusal(address: str) -> None:
    """Delay a response that needs no valid key by a second if its address gets many of them."""
    await _delay(_refusals.of(address))


async def delay_health(address: str) -> None:
    """The same for health checks, which are counted separately: refusals must not delay a supervisor's checks."""
    await _delay(_health.of(address))


async def delay_page(address: str) -> None:
    """Delay a page by a second if its address requests many."""
    await _delay(_pages.of(address))


async def _delay(bucket: Bucket) -> None:
    now = time.monotonic()
    if bucket.wait(now):
        await _slow_down()
    else:
        bucket.borrow(now)


async def _look_up(raw: str, digest: str, address: str, timeout: float) -> Caller:
    global _lookups
    try:
        _wrong.before_lookup(digest, address)
    except TooManyWrongKeys:
        metrics.REFUSALS.labels("wrong_keys").inc()
        await _slow_down()
        raise
    if _lookups >= _MOST_LOOKUPS:
        metrics.REFUSALS.labels("key_lookups").inc()
        _wrong.give_back(address)
        raise NotReady
    _lookups += 1
    try:
        caller = await database.serve(database.UNKNOWN, timeout, copy_context(), credentials.authenticate, raw)
    except NotAuthenticated:
        _wrong.remember(digest)
        raise
    except BaseException:
        _wrong.give_back(address)
        raise
    finally:
        _lookups -= 1
    _wrong.give_back(address)
    while len(_tenants) >= _MOST_REMEMBERED:
        _tenants.pop(next(iter(_tenants)), None)
    _tenants[digest] = caller.tenant
    return caller


async def _slow_down() -> None:
    """Delay a response. A client that retries immediately would otherwise keep the process busy."""
    global _slowed
    if _slowed >= _MOST_SLOWED:
        return
    _slowed += 1
    try:
        await asyncio.sleep(_SLOWED_SECONDS)
    finally:
        _slowed -= 1
