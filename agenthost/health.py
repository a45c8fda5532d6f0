"""Health: whether this process is alive, whether it can serve, and why not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from django.db import Error as DatabaseUnusable
from django.http import HttpRequest, JsonResponse

from agents_app import registry
from agents_app.mcp.catalogue import catalogue
from sessions_app.core.base import database, draining
from sessions_app.core.log import broadcast
from sessions_app.core.records import installation, live_workers

log = logging.getLogger(__name__)

ANSWER_WITHIN_SECONDS = 3.0

DRAINING = "This process is draining."
NO_DATABASE = "The database does not answer."
NO_WORKER = f"A turn has been queued for more than {live_workers.STUCK_AFTER_SECONDS} seconds and no worker is alive."


def why_not_ready() -> list[str]:
    """What keeps this process from serving; empty if nothing does."""
    try:
        return _ask_database()
    except DatabaseUnusable:
        # Not logged: anybody may send this request, as often as they like. ``watch`` logs each change.
        return [NO_DATABASE]


def _ask_database() -> list[str]:
    if faults := installation.faults():
        return [fault.what for fault in faults]
    if live_workers.turns_stuck() and not live_workers.workers_alive():
        return [NO_WORKER]
    return []


async def reasons() -> list[str]:
    """The same within a bound: a database that hangs must not hang whoever asks about it."""
    if draining.begun():
        return [DRAINING]
    loop = asyncio.get_running_loop()
    look = _looks.get(loop)
    if look is None or look.done():
        # Shared by all requests that arrive meanwhile: while the database hangs, probes must not use up the threads.
        look = _looks[loop] = asyncio.ensure_future(database.run(why_not_ready))
    try:
        return await asyncio.wait_for(asyncio.shield(look), ANSWER_WITHIN_SECONDS)
    except TimeoutError:
        return [NO_DATABASE]


_looks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[list[str]]] = WeakKeyDictionary()


async def alive(_request: HttpRequest) -> JsonResponse:
    """/healthz: the process runs. Asks nobody, so that a failing database restarts no process."""
    return JsonResponse({"status": "alive"}, headers={"Cache-Control": "no-store"})


async def ready(_request: HttpRequest) -> JsonResponse:
    """/readyz: requests may be sent here. A lost carrier of announcements, or an MCP server that is down or whose tools
    are cut, is reported but is no reason: turns go on without it."""
    found, announcements = await asyncio.gather(reasons(), broadcast.carrier_settled(ANSWER_WITHIN_SECONDS))
    facts: dict[str, Any] = {"ready": not found, "reasons": found, "announcements": announcements}
    servers, down = catalogue.standing()
    if servers:
        # No names: whoever asks has no key.
        facts["mcp"] = {"servers": servers, "down": down, "cut": registry.servers_cut()}
    if not found:
        return JsonResponse(facts, headers={"Cache-Control": "no-store"})
    problem = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": " ".join(found), **facts}
    headers = {"Cache-Control": "no-store", "Retry-After": "2"}
    answer = JsonResponse(problem, status=503, content_type="application/problem+json", headers=headers)
    # Django would write a line for each probe; ``watch`` logs each change.
    answer._has_been_logged = True  # type: ignore[attr-defined]
    return answer


async def watch(every: float = 10.0, *, look: Callable[[], Awaitable[list[str]]] = reasons) -> None:
    """Says in the log when this process becomes unable to serve, and when it can again; for as long as it lives."""
    known: list[str] = []
    while True:
        found = await look()
        if found != known and not draining.begun():
            if found:
                log.error("not ready: %s", " ".join(found))
            else:
                log.info("ready again")
        known = found
        await asyncio.sleep(every)
