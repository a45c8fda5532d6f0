"""Retries a run's database calls during an outage, so that the outage delays the run and does not end it.

A worker drops its runs if it cannot renew their leases for ``AGENTHOST_DATABASE_OUTAGE_SECONDS`` (leases.py). Until then,
each call of a run is repeated. If one call fails for that long although leases are renewed, its last error is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import Error as DatabaseError

from sessions_app.core.base import database, redaction
from sessions_app.core.base.errors import NotReady

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0


def described(error: BaseException) -> str:
    """The error for the log; in an outage only the errors' classes, because every run logs it."""
    return redaction.kinds(error) if database.is_away(error) else redaction.described(error)


async def outlast(call: Callable[[], Awaitable[T]]) -> T:
    """Await ``call``, and repeat it while it fails because of an outage.

    The call has to be idempotent: its outcome may have been lost with its connection.
    """
    loop = asyncio.get_running_loop()
    give_up_at, pause = 0.0, _FIRST_PAUSE
    while True:
        try:
            return await call()
        except (DatabaseError, NotReady) as error:
            if not database.is_away(error):
                raise
            if not give_up_at:
                give_up_at = loop.time() + settings.AGENTHOST_DATABASE_OUTAGE_SECONDS
                log.info("run_waits_for_database error=%s", type(error).__name__)
            if loop.time() >= give_up_at:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def run_for(tenant: int, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``database.keep_trying``, repeated during an outage."""
    return await outlast(partial(database.keep_trying, tenant, fn, *args, **kwargs))
