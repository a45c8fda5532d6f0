"""Retries for a run's calls to the database: an outage delays the run and does not end it.

A worker drops its runs when it could not renew their leases for ``AGENTHOST_DATABASE_OUTAGE_SECONDS`` (leases.py). Until
then, each call that a run makes is repeated. The last error is raised when one call has failed for that long although
leases are renewed.
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
    """For the log: of an outage the errors' classes alone, because every run reports it."""
    return redaction.kinds(error) if database.is_away(error) else redaction.described(error)


async def outlast(call: Callable[[], Awaitable[T]]) -> T:
    """Await ``call`` until it does not fail for an outage.

    A call whose outcome was lost with its connection is made again, so it must be safe to repeat.
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
                log.info("a run waits for the database: %s", type(error).__name__)
            if loop.time() >= give_up_at:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def run_for(tenant: int, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``database.keep_trying`` that outlasts an outage."""
    return await outlast(partial(database.keep_trying, tenant, fn, *args, **kwargs))
