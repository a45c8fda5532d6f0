"""A worker: one asyncio loop that is shared by all its runs, and its periodic tasks.

Celery's thread calls ``wake``; the loop then claims as many queued turns as it has slots for. Another thread renews the
worker's lease (leases.py). During an outage of the database the worker keeps its runs for at most
``AGENTHOST_DATABASE_OUTAGE_SECONDS``; after it, runs that other workers have taken over are stopped at once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import secrets
import socket
import sys
import threading
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from agents_app.fair.threads import FairPool
from agents_app.mcp import pool as servers
from sessions_app.core import turns
from sessions_app.core.base import database, loop_calls, loop_thread, metrics, process_loop, supervision
from sessions_app.core.base.periodic_tasks import PeriodicTask
from sessions_app.core.log import broadcast, journal
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.terminals import services as terminals
from sessions_app.core.turns import Claimed, tasks
from sessions_app.core.worker import duties, leases, loading, sweep
from sessions_app.core.worker.leases import Leases
from sessions_app.core.worker.live_runs import LiveRuns
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.slots import Slots
from sessions_app.core.worker.summariser import Summariser
from sessions_app.core.worker.webhook_sender import Sender

if sys.platform == "win32":  # There is no uvloop for Windows.
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

log = logging.getLogger(__name__)

_STOP_PATIENCE = 5.0
_CANCEL_SECONDS = 1.0
_FOLDING_SECONDS = 1.0
"""How long usage entries are folded at once, if there are more than one batch."""
_OWN_RUNS = "own runs"
_FIRST_CLAIM_PAUSE, _LONGEST_CLAIM_PAUSE = 0.002, 0.1


class Worker:
    """Runs turns until it is stopped. ``start`` and ``stop`` are called once each, from any thread."""

    def __init__(self, queues: Sequence[str] | None = None) -> None:
        """``queues``: it claims turns of these alone; None: of all."""
        self._queues = queues
        self.name = f"{socket.gethostname()[:40]}-{secrets.token_hex(6)}"
        self._loop = new_event_loop()
        self._thread = supervision.thread(self._run_loop, "runs", may_return=self._may_end)
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._sweeper = sweep.Sweeper(self.name, queues)
        self._pool = FairPool(settings.AGENTHOST_TOOL_THREADS)
        self._summariser = Summariser(self.name, queues)
        self._sender = Sender()
        # Created here, used only in the loop.
        self._live = LiveRuns(self.name, self._loop, self._pool, self._summariser, self._run_ended)
        self._slots = Slots(lambda: len(self._live), lambda: self._sweeper.wants_slot)
        self._in_doubt = asyncio.Event()
        self._leases = Leases(
            self.name, self._loop, self._live.own_turns, self._in_doubt.set, self._drop_all_after_outage, queues
        )
        self._queue_changed = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._claim_pause = _FIRST_CLAIM_PAUSE

    # --- start and stop, called from outside the loop ---

    def start(self) -> None:
        """Start the loop; returns when the worker can run turns."""
        self._leases.take()
        database.release()
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise RuntimeError("worker could not start") from self._failure
        self._leases.start()
        log.info("worker_ready worker=%s queues=%s", self.name, "all" if self._queues is None else ",".join(self._queues))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Runs in a thread of its own, from ``start`` to ``stop``."""
        return self._loop

    def wake(self) -> None:
        """Claim queued turns soon. Returns at once; the loop claims and runs them. Callable from any thread and in the loop."""
        if asyncio._get_running_loop() is self._loop:
            self._queue_changed.set()
            return
        with contextlib.suppress(RuntimeError):  # The loop is closed: this worker has stopped.
            self._loop.call_soon_threadsafe(self._queue_changed.set)

    def stop(self, grace: float, drain: float | None = None) -> None:
        """Claim no more turns; let runs finish for ``grace`` seconds, then hand them over at their next commit points.

        ``drain``: seconds more for runs that reach no commit point soon, because the model is answering or a tool is
        running. Another worker would have to end such an answer with an error.
        """
        if self._stopping.is_set():
            return
        if drain is None:
            drain = min(_STOP_PATIENCE, grace)
        self._stopping.set()
        # Not is_running: right after the start, the loop may be about to run.
        if self._thread.is_alive():
            try:
                asyncio.run_coroutine_threadsafe(self._wind_down(grace, drain), self._loop).result(
                    grace + drain + 4 * _STOP_PATIENCE
                )
            except concurrent.futures.TimeoutError:
                log.error("worker_loop_hangs worker=%s: other workers will take over its runs", self.name)
        # Not earlier: leases are renewed while runs may still finish.
        self._leases.stop(_STOP_PATIENCE)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(4 * _STOP_PATIENCE)
        try:
            leases.expire(self.name)
        except DatabaseError:
            log.warning("leases_not_released worker=%s: the database is unavailable; they will expire", self.name)
        finally:
            database.release()
        log.info("worker_stopped worker=%s", self.name)

    # --- the loop ---

    def _run_loop(self) -> None:
        loop_thread.serve(self._loop, self._open, self._close, self._ready)

    def _ready(self, failure: BaseException | None) -> None:
        self._failure = failure
        self._started.set()

    async def _open(self) -> None:
        process_loop.adopt()
        metrics.RUNS.set_function(lambda: len(self._live))
        writer = self._live.writer = journal.Writer()
        writer.on_stale(self._is_stale)
        await writer.start()
        pause = settings.AGENTHOST_SWEEP_SECONDS
        self._is_due = {task.name: asyncio.Event() for task in self._tasks()}
        background = {
            "claim": self._claim_for_ever(),
            "listen": self._listen(),
            "doubt": self._check_when_in_doubt(),
            "look": self._look_for_ever(pause),
            **{task.name: task.repeat_when(self._is_due[task.name]) for task in self._tasks()},
        }
        self._background = [supervision.task(work, name) for name, work in background.items()]

    async def _close(self) -> None:
        await _end(self._background)
        await self._sender.close()
        if self._live.writer is not None:
            await self._live.writer.close()
        self._pool.close()
        # Sessions with MCP servers are closed, so that the servers can free what they store for them.
        await servers.pool().close()
        await process_loop.release()
        # Cancelling a run's task also releases threads that wait for it.
        await supervision.end_tasks(_STOP_PATIENCE)
        await self._loop.shutdown_asyncgens()

    async def _listen(self) -> None:
        async with broadcast.listen_worker(self.name, self._handle_message):
            await asyncio.Event().wait()

    def _handle_message(self, message: dict[str, Any]) -> None:
        live = self._live.of_turn(message.get("turn", 0))
        if live is None:
            return
        if message.get("what") == "stopped":
            self._live.drop(live)
        elif live.run is not None:
            if message.get("what") == "news":
                live.run.notify_changes()
            live.run.notify_answers()

    def _is_stale(self, turn_id: int) -> None:
        """A write of a run of this turn was refused. The database knows which run: this worker may already have the next one."""
        if self._live.of_turn(turn_id) is not None:
            self._in_doubt.set()

    async def _check_when_in_doubt(self) -> None:
        check = PeriodicTask("runs in doubt", self._live.drop_lost)
        while True:
            await self._in_doubt.wait()
            self._in_doubt.clear()
            await check.attempt()

    def _may_end(self) -> bool:
        """Whether the loop may end: the worker is stopping, or ``start`` raises because the loop could not start."""
        return self._stopping.is_set() or self._failure is not None

    def _drop_all_after_outage(self) -> None:
        """Stop all runs, because the database was unavailable for too long."""
        if self._live.own_turns():
            log.error(
                "runs_dropped worker=%s: no lease was renewed for %g s (AGENTHOST_DATABASE_OUTAGE_SECONDS)",
                self.name,
                settings.AGENTHOST_DATABASE_OUTAGE_SECONDS,
            )
            self._live.drop_all()

    # --- claiming ---

    def _run_ended(self) -> None:
        self._slots.note_freed()
        if self._slots.is_crowded:
            self._queue_changed.set()

    async def _claim_for_ever(self) -> None:
        claiming = PeriodicTask("claim", self._claim_queued)
        while True:
            await self._queue_changed.wait()
            self._queue_changed.clear()
            await claiming.attempt()

    async def _claim_queued(self) -> None:
        while not self._stopping.is_set():
            # A full worker handles a wake-up when a run has ended.
            await self._slots.wait_for_free()
            is_full, skipped = await self._claim()
            if skipped:
                # Another transaction is appending, which takes a millisecond unless it hangs.
                self._loop.call_later(self._claim_pause, self._queue_changed.set)
                self._claim_pause = min(self._claim_pause * 2, _LONGEST_CLAIM_PAUSE)
            else:
                self._claim_pause = _FIRST_CLAIM_PAUSE
            if not is_full:
                return
            if not self._slots.free():
                # Turns share wake-ups: there may be more of them, and another worker may have room.
                tasks.wake_for(self._queues)

    async def _claim(self, older_than: float = 0) -> tuple[bool, bool]:
        """Claim once. Returns whether all slots were used, and whether some turns were skipped.

        One claim at a time, because two at once could take more turns than there are slots.
        """
        async with self._claiming:
            if not self._leases.is_held:
                return False, False
            if not self._slots.free():
                return True, False
            most, idle_tenants_only = self._slots.to_claim()
            with self._slots.reserving(most):
                claimed, skipped = await self._claim_up_to(most, older_than, idle_tenants_only=idle_tenants_only)
            return claimed == most, skipped

    async def _claim_up_to(self, most: int, older_than: float, *, idle_tenants_only: bool) -> tuple[int, bool]:
        """Claim and start runs. Returns how many were claimed, and whether some turns were skipped.

        A run asks its model while its claim is being made durable, and stores nothing before that.
        """
        is_durable, started = asyncio.Event(), set[int]()

        def begin(runs: Sequence[Claimed], loaded: dict[int, Loaded | Exception]) -> None:
            for claimed in runs:
                self._live.begin(claimed, loaded.get(claimed.turn_id), is_durable)
                started.add(claimed.turn_id)

        def begin_in_loop(runs: Sequence[Claimed], loaded: dict[int, Loaded | Exception]) -> None:
            if loop_calls.current() is None:
                # The claim runs in a thread, on SQLite in the write thread.
                self._loop.call_soon_threadsafe(begin, runs, loaded)
            else:
                # Before the claim returns, which may be at once: it begins the runs that were not begun.
                begin(runs, loaded)

        loader = loading.LoadWithClaim(begin_in_loop)
        try:
            claims = await database.run_on_loop(
                turns.claim,
                self.name,
                most,
                older_than,
                queues=self._queues,
                idle_tenants_only=idle_tenants_only,
                loader=loader,
            )
        except BaseException:
            # Whether the claim was committed is unknown. Without renewals other workers take these turns over.
            for turn_id in started:
                if (live := self._live.of_turn(turn_id)) is not None:
                    self._live.drop(live)
            raise
        is_durable.set()
        for claimed in claims.runs:
            if claimed.turn_id not in started:
                self._live.begin(claimed)
        return len(claims.runs), claims.skipped

    # --- sweeping ---

    def _tasks(self) -> Sequence[PeriodicTask]:
        """Duties that are repeated until this worker ends. None waits for another."""
        return [
            PeriodicTask(duties.TAKE_OVER, self._take_over_runs),
            PeriodicTask(duties.QUEUED, self._claim_overdue),
            PeriodicTask(duties.DEADLINES, partial(database.run, turns.stop_overdue)),
            PeriodicTask(duties.SUSPENDED, partial(database.run, turns.stop_suspended)),
            PeriodicTask(duties.REVOKED, partial(database.run, turns.stop_revoked)),
            PeriodicTask(duties.VANISHED, self._leave_vanished),
            PeriodicTask(duties.GRACE, self._end_graces),
            PeriodicTask(duties.TERMINALS, self._end_terminals),
            PeriodicTask(duties.WEBHOOKS, self._sender.sweep),
            PeriodicTask(
                duties.USAGE, partial(database.run, usage_entries.fold_backlog, usage_entries.FOLDED_AT_ONCE, _FOLDING_SECONDS)
            ),
            PeriodicTask(_OWN_RUNS, self._check_own_runs),
            PeriodicTask(duties.SUMMARIES, self._summariser.sweep),
        ]

    async def _look_for_ever(self, pause: float) -> None:
        """Find out which duties have something to do, and wake these."""
        while True:
            look = await duties.look(self._queues)
            if look.clock is not None:
                self._sweeper.note_clock(look.clock)
            due = set(look.due)
            if self._sweeper.wants_slot:
                due.add(duties.TAKE_OVER)
            if self._summariser.is_busy:
                due.add(duties.SUMMARIES)
            if self._live:
                due.add(_OWN_RUNS)
            if self._stopping.is_set():
                # The others belong to workers that go on; runs and summaries need these until the last one has ended.
                due &= {_OWN_RUNS, duties.SUMMARIES}
            for name in due:
                self._is_due[name].set()
            await asyncio.sleep(pause)

    async def _take_over_runs(self) -> None:
        """Continue dead workers' runs while there are slots. If none is free, the next free one is reserved for them."""
        while not self._stopping.is_set():
            slots = min(1, self._slots.unused())
            with self._slots.reserving(slots):
                claimed = await database.run(self._sweeper.take_next, may_continue=slots > 0)
                if claimed is None:
                    return
                metrics.RUNS_TAKEN_OVER.inc()
                self._live.begin(claimed)

    async def _leave_vanished(self) -> None:
        # After an outage clients have time to renew their presence, as workers have for their leases.
        if (until := self._sweeper.settled_until(settings.AGENTHOST_AHP_PRESENCE_SECONDS)) is not None:
            await database.run(connections.leave_vanished, until)

    async def _end_graces(self) -> None:
        if (until := self._sweeper.settled_until(settings.AGENTHOST_AHP_GRACE_SECONDS)) is not None:
            await database.run(connections.end_grace_periods, until)

    async def _end_terminals(self) -> None:
        if (until := self._sweeper.settled_until(settings.AGENTHOST_LEASE_SECONDS)) is not None:
            await database.run(terminals.sweep, until)
        await database.run(terminals.end_refused)

    async def _claim_overdue(self) -> None:
        """Claim turns whose wake-up seems to be lost."""
        while self._slots.free() and not self._stopping.is_set():
            is_full, _ = await self._claim(settings.AGENTHOST_QUEUE_GRACE_SECONDS)
            if not is_full:
                return

    async def _check_own_runs(self) -> None:
        if self._live:
            await self._live.drop_lost()
            for live in self._live:
                if live.run is not None:
                    live.run.notify_answers()

    # --- stopping ---

    async def _wind_down(self, grace: float, drain: float) -> None:
        self._summariser.stop_claiming()
        summaries = asyncio.create_task(self._summariser.drained(grace))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._live.idle.wait(), grace)
        if self._live:
            log.info("worker_hands_over worker=%s runs=%d", self.name, len(self._live))
        for live in self._live:
            if live.run is not None:
                live.run.hand_over()
        await PeriodicTask("hand-over", self._give_back_unanswered).attempt()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._live.idle.wait(), drain)
        self._live.drop_all()
        remaining = [summaries, *(live.task for live in self._live)]
        if remaining:
            await asyncio.wait(remaining, timeout=_STOP_PATIENCE)

    async def _give_back_unanswered(self) -> None:
        """Give back runs whose model has not answered yet: another worker can ask it again at once."""
        unanswered = [live for live in self._live if live.run is not None and live.run.is_unanswered]
        for live in unanswered:
            self._live.drop(live)
        if unanswered:
            await asyncio.wait([live.task for live in unanswered], timeout=_STOP_PATIENCE)
            done = [live.claimed for live in unanswered if live.task.done()]
            # Separately: a locked turn must not keep the others, and is taken over when its lease expires.
            backs = (partial(database.keep_trying, each.tenant, turns.give_back, [each]) for each in done)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_PATIENCE):
                    await asyncio.gather(*(PeriodicTask("hand-over", back).attempt() for back in backs))


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel the tasks until all have ended: code that was just waiting for two things may lose one cancellation."""
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_CANCEL_SECONDS)
