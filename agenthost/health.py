"""Health checks: /healthz (the process is alive) and /readyz (it can serve, or the reasons why not)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseUnusable
from django.http import HttpRequest, JsonResponse

from agenthost.shared_check import SharedCheck
from agents_app import installation, registry
from agents_app.mcp import programs
from agents_app.mcp.catalogue import catalogue
from sessions_app.core.base import database, draining
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log import broadcast
from sessions_app.core.records import database_checks, live_workers, queues
from sessions_app.core.records.queues import Unserved
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


_readiness = SharedCheck(lambda: database.run(reasons_not_ready))


async def reasons() -> list[str]:
    """The reasons within ``TIMEOUT_SECONDS``, even when the database hangs."""
    if draining.is_draining():
        return [DRAINING]
    try:
        return await _readiness.within(TIMEOUT_SECONDS)
    except TimeoutError:
        return [NO_DATABASE]


async def alive(_request: HttpRequest) -> JsonResponse:
    """/healthz: the process runs. Checks nothing else, so that a failing database does not restart processes."""
    return JsonResponse({"status": "alive"}, headers={"Cache-Control": "no-store"})


async def ready(_request: HttpRequest) -> JsonResponse:
    """/readyz: whether this process can serve.

    Also reports the pub/sub transport, the workspaces, the MCP servers, terminals, and queues without a worker.
    """
    reasons_found, announcements, files = await asyncio.gather(
        reasons(), broadcast.pubsub_up_within(TIMEOUT_SECONDS), _workspaces()
    )
    facts: dict[str, Any] = {"ready": not reasons_found, "reasons": reasons_found, "announcements": announcements}
    # Otherwise the database may not be able to answer.
    if reasons_found in ([], [NO_WORKER]) and (unserved := await unserved_queues()):
        # No reason to send requests elsewhere: this process accepts turns, and the other queues' turns run.
        facts["queues_without_worker"] = [queue.name for queue in unserved]
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


_command_check = SharedCheck(lambda: asyncio.to_thread(programs.fault))


async def _commands() -> str | None:
    """``on``, or why no MCP server can be started as a program; None if that is not known yet."""
    try:
        return await _command_check.within(TIMEOUT_SECONDS) or "on"
    except TimeoutError:
        return None


_NO_VOLUME = "The volume of the workspaces does not answer."
_volume_check = SharedCheck(lambda: threads.run("volume", volume.fault))


async def _workspaces() -> str | None:
    """Whether this process can use the workspaces: "up", or why not. None: this server has none."""
    if settings.AGENTHOST_WORKSPACES_DIR is None:
        return None
    try:
        fault = await _volume_check.within(TIMEOUT_SECONDS)
        return "up" if fault is None else fault.problem
    except (TimeoutError, NotReady, DatabaseUnusable):
        return _NO_VOLUME


_terminal_check = SharedCheck(lambda: database.run(availability.reason))


async def _terminals() -> str | None:
    """``on``, or why no terminal can be created; None if that is not known."""
    try:
        return await _terminal_check.within(TIMEOUT_SECONDS) or "on"
    except (TimeoutError, NotReady, DatabaseUnusable):
        return None


_queue_check = SharedCheck(lambda: database.run(queues.unserved))


async def unserved_queues() -> list[Unserved]:
    """The queues that no live worker serves; empty if that is not known."""
    try:
        return await _queue_check.within(TIMEOUT_SECONDS)
    except (TimeoutError, NotReady, DatabaseUnusable):
        return []


class QueueLog:
    """Logs when a queue has no worker, and when it has one again. Once is not enough: workers may just be restarting."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._logged: dict[str, bool] = {}
        """Whether the line was the one about waiting turns."""

    def look(self, unserved: Sequence[Unserved]) -> None:
        now = {queue.name: queue for queue in unserved}
        for name in self._logged.keys() - now.keys():
            log.info("queue_with_worker queue=%s", name)
        self._logged = {name: logged for name, logged in self._logged.items() if name in now}
        for name in self._seen & now.keys():
            stuck, logged = now[name].stuck, self._logged.get(name)
            if logged or (logged is False and not stuck):
                continue
            self._logged[name] = bool(stuck)
            level = logging.ERROR if stuck else logging.WARNING
            start = installation.role(f"worker --queues {name}")
            log.log(level, "queue_without_worker queue=%s stuck=%d: start one with %s", name, stuck, start)
        self._seen = set(now)


async def watch(
    every: float = 10.0,
    *,
    check: Callable[[], Awaitable[list[str]]] = reasons,
    unserved: Callable[[], Awaitable[list[Unserved]]] = unserved_queues,
) -> None:
    """Log when this process becomes unable to serve, and when it can serve again; the same of queues. Runs until cancelled."""
    previous: list[str] = []
    of_queues = QueueLog()
    while True:
        current = await check()
        if current != previous and not draining.is_draining():
            if current:
                log.error("not ready: %s", " ".join(current))
            else:
                log.info("ready again")
        previous = current
        of_queues.look(await unserved())
        await asyncio.sleep(every)
