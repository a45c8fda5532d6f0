"""A terminal service: one asyncio loop with all terminals of the process.

It claims requested terminals as long as its lease is renewed and it has a sandbox and the installation's volume. When it dies,
a worker's sweep marks its terminals as exited; no shell is ever started a second time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from agents_app.fair.rates import Rates
from sessions_app.core.base import database, log_context, loop_thread, process_loop, redaction, supervision
from sessions_app.core.base.periodic_tasks import PeriodicTask
from sessions_app.core.log import broadcast, journal
from sessions_app.core.terminals import boxes, services
from sessions_app.core.terminals.creating import WAKE
from sessions_app.core.terminals.live import LiveTerminal
from sessions_app.core.terminals.services import Claimed

log = logging.getLogger(__name__)

STOPPED = "\r\n[The terminal service was stopped.]\r\n"
IDLE = "\r\n[Closed: neither input nor output for {seconds:,.0f} s.]\r\n"
_RESERVED = 8
"""One slot in this many is for tenants of which the service runs no terminal."""
_CHECK_AGAIN = 60.0
"""Seconds after which a service that has no sandbox or no volume looks again."""
_STOP_PATIENCE = 5.0


class Service:
    """Runs terminals until it is stopped. ``start`` and ``stop`` are called once each, from any thread."""

    def __init__(self, on_renewed: Callable[[str], None] | None = None) -> None:
        """``on_renewed``: called in the loop with ``fault`` after each renewal of the lease."""
        self._on_renewed = on_renewed
        self.name = f"{socket.gethostname()[:40]}-{secrets.token_hex(6)}"
        self._loop = asyncio.new_event_loop()
        self._thread = supervision.thread(self._run_loop, "terminals", may_return=self._may_end)
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._live: dict[int, tuple[LiveTerminal, asyncio.Task[None]]] = {}
        self._writer: journal.Writer | None = None
        self._rates = Rates(settings.AGENTHOST_TERMINAL_BYTES_PER_SECOND)
        self._requested = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._fault = ""
        self._checked_at = float("-inf")
        self._held_until = float("-inf")

    @property
    def fault(self) -> str:
        """Why this service runs no terminals; empty if it does."""
        return self._fault

    # --- start and stop, called from outside the loop ---

    def start(self) -> None:
        """Start the loop; returns when the service can run terminals, or has found out why it cannot."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise RuntimeError("terminal service could not start") from self._failure
        if self._fault:
            log.warning("terminals_refused service=%s: %s", self.name, self._fault)
        else:
            log.info("terminals_ready service=%s", self.name)

    def stop(self) -> None:
        """End all terminals, each with a last line, and stop."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread.is_alive():
            try:
                asyncio.run_coroutine_threadsafe(self._wind_down(), self._loop).result(4 * _STOP_PATIENCE)
            except concurrent.futures.TimeoutError:
                log.error("terminals_not_stopped service=%s: a sweep will end them", self.name)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(4 * _STOP_PATIENCE)
        try:
            services.leave(self.name)
        except DatabaseError:
            log.warning("terminals_lease_not_released service=%s: the database is unavailable; it will expire", self.name)
        finally:
            database.release()
        log.info("terminals_stopped service=%s", self.name)

    # --- the loop ---

    def _may_end(self) -> bool:
        return self._stopping.is_set() or self._failure is not None

    def _run_loop(self) -> None:
        loop_thread.serve(self._loop, self._open, self._close, self._ready)

    def _ready(self, failure: BaseException | None) -> None:
        self._failure = failure
        self._started.set()

    async def _open(self) -> None:
        process_loop.adopt()
        self._writer = journal.Writer()
        self._writer.on_stale(self._is_stale)
        await self._writer.start()
        await self._renew()
        background: dict[str, Any] = {
            "claim": self._claim_for_ever(),
            "listen": self._listen(),
            "renew": PeriodicTask("lease of terminals", self._renew).repeat(settings.AGENTHOST_RENEW_SECONDS),
            "look": self._look_for_ever(),
        }
        self._background = [supervision.task(work, f"terminals {name}") for name, work in background.items()]

    async def _close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._writer is not None:
            await self._writer.close()
        await process_loop.release()

    async def _wind_down(self) -> None:
        # What is being claimed now is wound down too; after that nothing is claimed any more.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_PATIENCE), self._claiming:
                pass
        for live, _ in self._live.values():
            live.kill(STOPPED)
        tasks = [task for _, task in self._live.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=2 * _STOP_PATIENCE)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_STOP_PATIENCE)

    # --- the lease ---

    async def _renew(self) -> None:
        if time.monotonic() - self._checked_at >= _CHECK_AGAIN or not self._fault:
            self._fault = await asyncio.get_running_loop().run_in_executor(None, boxes.fault)
            self._checked_at = time.monotonic()
        asked, before = time.monotonic(), dict(self._live)
        mine = await database.run(services.renew, self.name, self._fault)
        self._held_until = asked + settings.AGENTHOST_LEASE_SECONDS
        if self._on_renewed is not None:
            self._on_renewed(self._fault)
        for terminal, (live, _) in before.items():
            if mine.get(terminal) != live.claimed.fence:
                # Disposed of, or ended by a sweep while this service could not renew.
                live.kill()
        self._close_idle()

    def _close_idle(self) -> None:
        most = settings.AGENTHOST_TERMINAL_IDLE_SECONDS
        for live, _ in list(self._live.values()):
            if most and time.monotonic() - live.active_at > most:
                live.kill(IDLE.format(seconds=most))

    def _is_stale(self, terminal: int) -> None:
        if terminal in self._live:
            self._live[terminal][0].kill()

    # --- claiming ---

    async def _listen(self) -> None:
        async with broadcast.listen_worker(WAKE, lambda _: self._requested.set()):
            self._requested.set()
            await asyncio.Event().wait()

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(settings.AGENTHOST_SWEEP_SECONDS)
            self._requested.set()

    async def _claim_for_ever(self) -> None:
        claiming = PeriodicTask("requested terminals", self._claim)
        while True:
            await self._requested.wait()
            self._requested.clear()
            await claiming.attempt()

    async def _claim(self) -> None:
        async with self._claiming:
            await self._claim_free()

    async def _claim_free(self) -> None:
        slots: int = settings.AGENTHOST_TERMINAL_CONCURRENCY
        free = slots - len(self._live)
        if self._fault or self._stopping.is_set() or free <= 0 or time.monotonic() >= self._held_until:
            return
        # A shell runs for hours: without reserved slots one tenant would leave none to the others.
        tenants = {live.claimed.tenant for live, _ in self._live.values()}
        for claimed in await database.run(services.claim, self.name, free, reserved=slots // _RESERVED, tenants=tenants):
            self._begin(claimed)

    def _begin(self, claimed: Claimed) -> None:
        assert self._writer is not None
        live = LiveTerminal(claimed, self._writer, self._rates)
        task = self._loop.create_task(self._drive(live), name=f"terminal {claimed.terminal}")
        self._live[claimed.terminal] = live, task
        if self._stopping.is_set():
            live.kill(STOPPED)
        task.add_done_callback(lambda _: self._forget(claimed))

    async def _drive(self, live: LiveTerminal) -> None:
        with log_context.about(tenant=live.claimed.tenant):
            try:
                await live.drive()
            except Exception as error:
                log.error("terminal_lost terminal=%s: %s", live.claimed.public_id, redaction.described(error))

    def _forget(self, claimed: Claimed) -> None:
        del self._live[claimed.terminal]
        self._requested.set()
        if not any(live.claimed.tenant == claimed.tenant for live, _ in self._live.values()):
            self._rates.forget(claimed.tenant)
