"""Health checks: /healthz (the process is alive) and /readyz (it can serve, or the reasons why not)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import Error as DatabaseUnusable
from django.http import HttpRequest, JsonResponse

from agents_app import registry
from agents_app.mcp import programs
from agents_app.mcp.catalogue import catalogue
from sessions_app.core.base import database, draining
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log import broadcast
from sessions_app.core.records import database_checks, live_workers
from sessions_app.core.records.database_checks import Fault
from sessions_app.core.terminals import availability
from sessions_app.core.workspaces import threads, volume

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 3.0

DRAINING = "This process is draining."
NO_DATABASE = "The database does not answer."
NO_WORKER = f"A turn has been queued for more than {live_workers.STUCK_AFTER_SECONDS} seconds and no worker is alive."


def reasons_not_ready() -> list[str]:
    """The reasons why this process cannot serve; empty if it can."""
    try:
        return _check_database()
    except DatabaseUnusable:
        # Not logged here, because anybody may send this request at any rate. ``watch`` logs each change.
        return [NO_DATABASE]


def _check_database() -> list[str]:
    if faults := database_checks.faults():
        return [fault.problem for fault in faults]
    if live_workers.turns_stuck() and not live_workers.workers_alive():
        return [NO_WORKER]
    return []


async def reasons() -> list[str]:
    """The reasons within ``TIMEOUT_SECONDS``, even when the database hangs."""
    if draining.is_draining():
        return [DRAINING]
    loop = asyncio.get_running_loop()
    check = _running_checks.get(loop)
    if check is None or check.done():
        # Shared by all requests that arrive meanwhile: probes must not use up the threads while the database hangs.
        check = _running_checks[loop] = asyncio.ensure_future(database.run(reasons_not_ready))
    try:
        return await asyncio.wait_for(asyncio.shield(check), TIMEOUT_SECONDS)
    except TimeoutError:
        return [NO_DATABASE]


_running_checks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[list[str]]] = WeakKeyDictionary()


async def alive(_request: HttpRequest) -> JsonResponse:
    """/healthz: the process runs. Checks nothing else, so that a failing database does not restart processes."""
    return JsonResponse({"status": "alive"}, headers={"Cache-Control": "no-store"})


async def ready(_request: HttpRequest) -> JsonResponse:
    """/readyz: whether this process can serve. Also reports the pub/sub transport, the workspaces, the MCP servers and terminals;
    turns run without them."""
    reasons_found, announcements, files = await asyncio.gather(
        reasons(), broadcast.pubsub_up_within(TIMEOUT_SECONDS), _workspaces()
    )
    facts: dict[str, Any] = {"ready": not reasons_found, "reasons": reasons_found, "announcements": announcements}
    if files is not None:
        facts["workspaces"] = files
    servers, down = catalogue.standing()
    if servers:
        # Without names, because this page needs no key.
        facts["mcp"] = {"servers": servers, "down": down, "cut": registry.servers_cut()}
        if catalogue.has_programs() and (commands := await _commands()) is not None:
            facts["mcp"]["commands"] = commands
    if not reasons_found:
        facts["terminals"] = await _terminals()
        return JsonResponse(facts, headers={"Cache-Control": "no-store"})
    problem = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": " ".join(reasons_found), **facts}
    headers = {"Cache-Control": "no-store", "Retry-After": "2"}
    response = JsonResponse(problem, status=503, content_type="application/problem+json", headers=headers)
    # Django would log a line for each probe; ``watch`` logs each change.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


async def _commands() -> str | None:
    """``on``, or why no MCP server can be started as a program; None if that is not known yet."""
    loop = asyncio.get_running_loop()
    check = _command_checks.get(loop)
    if check is None or check.done():
        check = _command_checks[loop] = asyncio.ensure_future(asyncio.to_thread(programs.fault))
    try:
        return await asyncio.wait_for(asyncio.shield(check), TIMEOUT_SECONDS) or "on"
    except TimeoutError:
        return None


_command_checks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[str | None]] = WeakKeyDictionary()
"""Shared by all requests that arrive meanwhile, as above."""


_NO_VOLUME = "The volume of the workspaces does not answer."


async def _workspaces() -> str | None:
    """Whether this process can use the workspaces: "up", or why not. None: this server has none."""
    if settings.AGENTHOST_WORKSPACES_DIR is None:
        return None
    loop = asyncio.get_running_loop()
    check = _volume_checks.get(loop)
    if check is None or check.done():
        check = _volume_checks[loop] = asyncio.ensure_future(threads.run("volume", volume.fault))
    try:
        fault = await asyncio.wait_for(asyncio.shield(check), TIMEOUT_SECONDS)
        return "up" if fault is None else fault.problem
    except (TimeoutError, NotReady, DatabaseUnusable):
        return _NO_VOLUME


_volume_checks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Fault | None]] = WeakKeyDictionary()


async def _terminals() -> str | None:
    """``on``, or why no terminal can be created; None if that is not known."""
    loop = asyncio.get_running_loop()
    check = _terminal_checks.get(loop)
    if check is None or check.done():
        check = _terminal_checks[loop] = asyncio.ensure_future(database.run(availability.reason))
    try:
        return await asyncio.wait_for(asyncio.shield(check), TIMEOUT_SECONDS) or "on"
    except (TimeoutError, NotReady, DatabaseUnusable):
        return None


_terminal_checks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[str]] = WeakKeyDictionary()


async def watch(every: float = 10.0, *, check: Callable[[], Awaitable[list[str]]] = reasons) -> None:
    """Log when this process becomes unable to serve, and when it can serve again. Runs until it is cancelled."""
    previous: list[str] = []
    while True:
        current = await check()
        if current != previous and not draining.is_draining():
            if current:
                log.error("not ready: %s", " ".join(current))
            else:
                log.info("ready again")
        previous = current
        await asyncio.sleep(every)
