"""Per-tenant admission control, shared by both protocols.

A tenant has at most half of the threads that a web process has for requests, whatever its requests wait for. What is over
its share waits in the loop, with neither a thread nor a connection to the database. Keys that are not known yet share one
small account, and an address that shows too many wrong ones is refused.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import copy_context

from django.conf import settings
from django.db import Error as DatabaseError

from sessions_app.core.base import database
from sessions_app.core.base.buckets import Bucket, Buckets
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotAuthenticated, NotReady, TooManyWrongKeys
from sessions_app.core.tenancy import keys
from sessions_app.core.tenancy.wrong_keys import WrongKeys

_MOST_REMEMBERED = 10_000
_MOST_LOOKUPS = 100
"""Unknown keys that are or wait to be looked up; for further ones the server is not ready."""
_REFUSALS_PER_SECOND = 50
_REFUSALS_AT_ONCE = 300
"""Refusals, and answers to OPTIONS, that one address gets without a delay; as many for its questions about health."""
_PAGES_PER_SECOND = 10
_PAGES_AT_ONCE = 300
"""Pages, and files of pages, that one address gets without a delay. A page costs as much as many refusals."""
_SLOWED_SECONDS = 1.0
_MOST_SLOWED = 1000

_tenants: dict[str, int] = {}
"""The tenants of keys that were good when they were last seen, by the key's digest."""
_wrong = WrongKeys(lambda: int(settings.AGENTHOST_WRONG_KEYS_PER_MINUTE))
_refusals = Buckets(lambda: Bucket(_REFUSALS_PER_SECOND, _REFUSALS_AT_ONCE), 10_000)
_health = Buckets(lambda: Bucket(_REFUSALS_PER_SECOND, _REFUSALS_AT_ONCE), 10_000)
_pages = Buckets(lambda: Bucket(_PAGES_PER_SECOND, _PAGES_AT_ONCE), 10_000)
_lookups = 0
_slowed = 0


async def tenant_of(raw: str, address: str, patience: float) -> int:
    """The tenant of a key, looked up when it is first seen; raises what ``authenticate`` raises."""
    known = _tenants.get(keys.digest_of(raw))
    return (await authenticate(raw, address, patience)).tenant if known is None else known


async def authenticate(raw: str, address: str, patience: float) -> Caller:
    """The caller with this key; an unknown key is looked up at the expense of all unknown keys, not of any tenant.

    NotAuthenticated if the key is no good, TooManyWrongKeys if ``address`` showed too many such ones, TimeoutError if the
    key could not be looked up within ``patience`` seconds.
    """
    if not keys.looks_like_key(raw):
        raise NotAuthenticated
    digest = keys.digest_of(raw)
    tenant = _tenants.get(digest)
    if tenant is None:
        return await _look_up(raw, digest, address, patience)
    try:
        return await database.serve(tenant, patience, copy_context(), keys.authenticate, raw)
    except NotAuthenticated:
        forget(raw)
        raise


async def is_good(raw: str, tenant: int, patience: float) -> bool:
    """Whether a key of this tenant that was good still is; True if the database cannot be asked. Not a use of the key."""
    try:
        return await database.serve(tenant, patience, copy_context(), keys.is_good, raw)
    except (TimeoutError, DatabaseError, NotReady):
        return True


def forget(raw: str) -> None:
    """A key that was good is refused now: it was revoked or has expired, or its tenant is suspended."""
    _tenants.pop(keys.digest_of(raw), None)


def forget_all() -> None:
    """For tests: as in a new process."""
    _tenants.clear()
    _wrong.clear()
    _refusals.clear()
    _health.clear()
    _pages.clear()


async def delay_refusal(address: str) -> None:
    """Return when what needs no good key may be answered: at once, or in a second if its address gets many such answers."""
    await _delay(_refusals.of(address))


async def delay_health(address: str) -> None:
    """The same for questions about health, which are counted alone: refusals of others must not delay a supervisor's."""
    await _delay(_health.of(address))


async def delay_page(address: str) -> None:
    """Return when a page may be served: at once, or in a second if its address asks for many."""
    await _delay(_pages.of(address))


async def _delay(bucket: Bucket) -> None:
    now = time.monotonic()
    if bucket.wait(now):
        await _slow_down()
    else:
        bucket.borrow(now)


async def _look_up(raw: str, digest: str, address: str, patience: float) -> Caller:
    global _lookups
    try:
        _wrong.before_lookup(digest, address)
    except TooManyWrongKeys:
        await _slow_down()
        raise
    if _lookups >= _MOST_LOOKUPS:
        _wrong.give_back(address)
        raise NotReady
    _lookups += 1
    try:
        caller = await database.serve(database.UNKNOWN, patience, copy_context(), keys.authenticate, raw)
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
    """Delay an answer. A client that asks again after each answer would otherwise keep the process busy."""
    global _slowed
    if _slowed >= _MOST_SLOWED:
        return
    _slowed += 1
    try:
        await asyncio.sleep(_SLOWED_SECONDS)
    finally:
        _slowed -= 1
