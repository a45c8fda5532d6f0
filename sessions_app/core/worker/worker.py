"""A worker process: one asyncio loop shared by all its runs, its leases, its sweep.

Celery's thread calls ``wake``, which has the loop look at the queue: what waits there and fits is claimed
together. A thread of its own renews the leases (leases.py). While the database is away the worker keeps its runs, for
at most ``AGENTHOST_DATABASE_OUTAGE_SECONDS``; when it is back, runs that were taken over meanwhile are stopped at once.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from agents_app.errors import RunLost
from agents_app.fair.shares import Shares
from agents_app.fair.threads import FairPool
from agents_app.mcp import pool as servers
from sessions_app.core import turns
from sessions_app.core.base import database, log_context, redaction, supervision
from sessions_app.core.base.duties import Duty
from sessions_app.core.log import broadcast, journal
from sessions_app.core.records import live_workers
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import quotas
from sessions_app.core.turns import Claimed, Stop, failures
from sessions_app.core.worker import leases, loading, outage, runner, sweep
from sessions_app.core.worker.leases import Leases
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.summariser import Condenser

if sys.platform == "win32":  # There is no uvloop for Windows.
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

log = logging.getLogger(__name__)

_STOP_PATIENCE = 5.0
_CLAIMED_TOGETHER = 16
"""Most turns of one claim: the next worker is to find some as well, and the first of them is not to wait for long."""
_FIRST_CLAIM_PAUSE, _LONGEST_CLAIM_PAUSE = 0.002, 0.1


@dataclass(slots=True)
class _Live:
    """A run that this worker is driving."""

    claimed: Claimed
    task: asyncio.Task[None]
    run: runner.Run | None = None
    stopped: bool = False


class Worker:
    """Runs turns until it is stopped. ``start`` and ``stop`` are called once each, from any thread."""

    def __init__(self) -> None:
        self.name = f"{socket.gethostname()[:40]}-{secrets.token_hex(6)}"
        self._loop = new_event_loop()
        self._thread = supervision.thread(self._run_loop, "runs", may_return=self._may_end)
        self._live: dict[int, _Live] = {}
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._sweeper = sweep.Sweeper(self.name)
        self._pool = FairPool(settings.AGENTHOST_TOOL_THREADS)
        self._condenser = Condenser(self.name)
        self._writer: journal.Writer | None = None
        # Made here, used in the loop alone.
        self._idle = asyncio.Event()
        self._doubt = asyncio.Event()
        self._leases = Leases(self.name, self._loop, self._driven, self._doubt.set, self._drop_outlived)
        self._look_at_queue = asyncio.Event()
        self._room = asyncio.Event()
        self._crowded = False
        self._claiming = asyncio.Lock()
        self._promised = 0
        self._claim_pause = _FIRST_CLAIM_PAUSE

    # --- life, called from outside the loop ---

    def start(self) -> None:
        """Start the loop; returns when the worker can run turns."""
        live_workers.announce(self.name)
        database.release()
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise RuntimeError("the worker could not start") from self._failure
        self._leases.start()
        log.info("worker %s is ready", self.name)

    def wake(self) -> None:
        """Look at the queue soon. Returns at once: what is claimed there runs in the loop."""
        with contextlib.suppress(RuntimeError):  # The loop is closed: this worker has gone.
            self._loop.call_soon_threadsafe(self._look_at_queue.set)

    def stop(self, grace: float, drain: float | None = None) -> None:
        """Claim no more; let runs finish for ``grace`` seconds, then hand them over at commit points.

        Those that have no commit point soon, because the model speaks or a tool is at work, get there within
        ``drain`` more seconds: whoever went on without it would have to end the answer with an error.
        """
        if self._stopping.is_set():
            return
        if drain is None:
            drain = min(_STOP_PATIENCE, grace)
        self._stopping.set()
        if self._loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(self._wind_down(grace, drain), self._loop).result(
                    grace + drain + 4 * _STOP_PATIENCE
                )
            except concurrent.futures.TimeoutError:
                log.error("the loop of worker %s does not answer; its runs are left to others", self.name)
        # Only now: while runs may still finish, their leases are renewed.
        self._leases.stop(_STOP_PATIENCE)
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(4 * _STOP_PATIENCE)
        try:
            leases.expire(self.name)
            live_workers.leave(self.name)
        except DatabaseError:
            log.warning("the database is away; the leases of this worker run out by themselves")
        finally:
            database.release()
        log.info("worker %s has stopped", self.name)

    # --- the loop ---

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._open())
        except BaseException as error:
            self._failure = error
            self._started.set()
            return
        self._started.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._close())
            self._loop.close()

    async def _open(self) -> None:
        self._idle.set()
        self._writer = journal.Writer()
        self._writer.on_stale(self._is_stale)
        await self._writer.start()
        pause = settings.AGENTHOST_SWEEP_SECONDS
        lasting = {
            "claim": self._claim_for_ever(),
            "listen": self._listen(),
            "doubt": self._look_when_in_doubt(),
            **{duty.name: duty.repeat(pause, self._stopping.is_set) for duty in self._duties_while_open()},
            **{duty.name: duty.repeat(pause) for duty in self._duties_to_the_end()},
        }
        self._background = [supervision.task(work, name) for name, work in lasting.items()]

    async def _close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._writer is not None:
            await self._writer.close()
        self._pool.close()
        # MCP servers are told goodbye: what they keep for a conversation they may let go.
        await servers.pool().close()
        # Whoever waits for a run in another thread is let go with the run's task.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait(left, timeout=_STOP_PATIENCE)
        await self._loop.shutdown_asyncgens()

    async def _listen(self) -> None:
        async with broadcast.listen_worker(self.name, self._hear):
            await asyncio.Event().wait()

    def _hear(self, message: dict[str, Any]) -> None:
        live = self._live.get(message.get("turn", 0))
        if live is None:
            return
        if message.get("what") == "stopped":
            self._drop(live)
        elif live.run is not None:
            if message.get("what") == "news":
                live.run.notice()
            live.run.tell()

    def _is_stale(self, turn_id: int) -> None:
        """A run of this turn was refused. Which one, the database knows: this worker may drive the next one already."""
        if turn_id in self._live:
            self._doubt.set()

    async def _look_when_in_doubt(self) -> None:
        looking = Duty("runs in doubt", self._drop_what_is_lost)
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            await looking.attempt()

    async def _drop_what_is_lost(self) -> None:
        """Stop the runs that the database does not know as this worker's."""
        before = list(self._live.values())
        mine = await database.run(sweep.still_mine, self.name)
        for live in before:
            if mine.get(live.claimed.turn_id) != live.claimed.fence:
                self._drop(live)

    def _drop(self, live: _Live) -> None:
        """Stop a run that is no longer ours: its model call and tools are closed, nothing more is written."""
        if not live.stopped:
            live.stopped = True
            live.task.cancel()

    def _may_end(self) -> bool:
        """Whether the loop may end: it was told to, or ``start`` tells that it did not begin."""
        return self._stopping.is_set() or self._failure is not None

    def _driven(self) -> set[int]:
        """Only what is really driven here: a run that failed, or was told to stop, has to be taken over."""
        return {turn for turn, live in list(self._live.items()) if not live.stopped}

    def _drop_outlived(self) -> None:
        """The database was away for too long."""
        if any(not live.stopped for live in self._live.values()):
            log.error("the database was away for %g s; the runs of this worker end", settings.AGENTHOST_DATABASE_OUTAGE_SECONDS)
            self._drop_all()

    def _drop_all(self) -> None:
        for live in list(self._live.values()):
            self._drop(live)

    # --- claiming ---

    async def _claim_for_ever(self) -> None:
        claiming = Duty("claim", self._claim_what_waits)
        while True:
            await self._look_at_queue.wait()
            self._look_at_queue.clear()
            await claiming.attempt()

    async def _claim_what_waits(self) -> None:
        while not self._stopping.is_set():
            # A wake-up that comes to a full worker is not lost: it is kept until a run has ended.
            while not self._free_slots():
                self._room.clear()
                await self._room.wait()
            all_it_wanted, passed_over = await self._claim()
            if passed_over:
                # Somebody is in the middle of an append; that takes a millisecond, unless they hang.
                self._loop.call_later(self._claim_pause, self._look_at_queue.set)
                self._claim_pause = min(self._claim_pause * 2, _LONGEST_CLAIM_PAUSE)
            else:
                self._claim_pause = _FIRST_CLAIM_PAUSE
            if not all_it_wanted:
                return

    def _free_slots(self) -> int:
        """Slots for turns of the queue: those that are free, without one that a dead worker's run needs."""
        return max(0, self._unused_slots() - int(self._sweeper.wants_slot))

    def _unused_slots(self) -> int:
        return max(0, settings.AGENTHOST_WORKER_CONCURRENCY - len(self._live) - self._promised)

    @contextlib.contextmanager
    def _promising(self, slots: int) -> Iterator[None]:
        """Keep free slots for runs that are just being claimed or taken over."""
        self._promised += slots
        try:
            yield
        finally:
            self._promised -= slots
            self._room.set()

    def _to_claim(self) -> tuple[int, bool]:
        """How many turns to claim at most, and whether only tenants of which nothing runs may have these slots.

        A tenant may have all slots but the reserved ones: a run takes memory and a lease, and holds up no other.
        """
        slots = settings.AGENTHOST_WORKER_CONCURRENCY
        shares, busy = Shares(slots, slots), slots - self._free_slots()
        # Tenants that have runs already may wait for a slot then, and each run that ends frees one.
        self._crowded = shares.is_crowded(busy)
        return min(shares.available(busy), _CLAIMED_TOGETHER), self._crowded

    async def _claim(self, older_than: float = 0) -> tuple[bool, bool]:
        """Whether as many runs have begun as there was room for, and whether some turns were passed over.

        One claim at a time: the wake-ups' and the sweep's together would take more places than there are.
        """
        async with self._claiming:
            if not self._free_slots():
                return True, False
            most, newcomers = self._to_claim()
            with self._promising(most):
                claimed, passed_over = await self._claim_up_to(most, older_than, newcomers=newcomers)
            return claimed == most, passed_over

    async def _claim_up_to(self, most: int, older_than: float, *, newcomers: bool) -> tuple[int, bool]:
        """How many runs have begun, and whether some turns were passed over.

        A run asks its model while its claim is on its way to the disk, and stores nothing before it is there.
        """
        on_disk, begun = asyncio.Event(), set[int]()

        def begin(runs: Sequence[Claimed], loaded: dict[int, Loaded | Exception]) -> None:
            for claimed in runs:
                self._begin(claimed, loaded.get(claimed.turn_id), on_disk)
                begun.add(claimed.turn_id)

        def meanwhile(runs: Sequence[Claimed]) -> None:
            self._loop.call_soon_threadsafe(begin, runs, loading.load_short(runs))

        try:
            claims = await database.run(turns.claim, self.name, most, older_than, newcomers=newcomers, meanwhile=meanwhile)
        except BaseException:
            # Whether they are ours will never be known; who is not renewed is taken over.
            for turn_id in begun:
                if (live := self._live.get(turn_id)) is not None:
                    self._drop(live)
            raise
        on_disk.set()
        for claimed in claims.runs:
            if claimed.turn_id not in begun:
                self._begin(claimed)
        return len(claims.runs), claims.passed_over

    def _begin(
        self, claimed: Claimed, loaded: Loaded | Exception | None = None, on_disk: asyncio.Event | None = None
    ) -> asyncio.Task[None]:
        if (before := self._live.get(claimed.turn_id)) is not None:
            # Its lease ran out under it, and this worker has taken the turn over from itself.
            self._drop(before)
        task = self._loop.create_task(self._drive(claimed, loaded, on_disk), name=f"turn {claimed.turn_id}")
        self._live[claimed.turn_id] = _Live(claimed, task)
        self._idle.clear()
        task.add_done_callback(lambda _: self._forget(claimed))
        return task

    def _forget(self, claimed: Claimed) -> None:
        live = self._live.get(claimed.turn_id)
        if live is not None and live.claimed == claimed:
            del self._live[claimed.turn_id]
            self._room.set()
            if self._crowded:
                self._look_at_queue.set()
        if not self._live:
            self._idle.set()

    async def _drive(self, claimed: Claimed, loaded: Loaded | Exception | None, on_disk: asyncio.Event | None) -> None:
        """One run from its claim to its end; whatever goes wrong in it, its turn ends.

        ``loaded`` None: what it needs was not read with the claim, or it was not claimed from the queue.
        ``on_disk``: set when the claim is; None: it is.
        """
        assert self._writer is not None
        live = self._live[claimed.turn_id]
        failed: Stop | None = None
        try:
            with log_context.about(tenant=claimed.tenant):
                if loaded is None or (isinstance(loaded, Exception) and database.is_away(loaded)):
                    loaded = await loading.load_one(claimed)
                if isinstance(loaded, Exception):
                    raise loaded
                live.run = runner.Run(claimed, loaded, self._writer, self._pool, on_disk, self._condenser)
                await live.run.drive()
            return
        except (RunLost, journal.WriterClosed):
            live.stopped = True
        except runner.DeadlinePassed:
            failed = Stop(cause="deadline", reason="error")
        except TimeoutError:
            log.warning("turn %s ran longer than its agent's limit", claimed.turn_id)
            failed = Stop(cause="limit", reason="error")
        except asyncio.CancelledError:
            if not live.stopped:
                raise
        except DatabaseError as error:
            log.error("the database failed under turn %s, which will be taken over: %s", claimed.turn_id, outage.described(error))
            return
        except Exception as error:
            log.error("turn %s failed inside the server: %s", claimed.turn_id, redaction.described(error))
            failed = Stop(cause="internal", reason="error", failure=failures.internal(error))
        # Whatever fails here leaves the turn to the sweep: its lease is not renewed any more.
        try:
            if failed is not None:
                await outage.run_for(claimed.tenant, turns.stop, claimed.turn_id, failed, fence=claimed.fence)
            await database.keep_trying(claimed.tenant, turns.provider_closed, claimed)
        except Exception as error:
            log.error("the end of a run of turn %s could not be stored: %s", claimed.turn_id, outage.described(error))

    # --- sweeping ---

    def _duties_while_open(self) -> Sequence[Duty]:
        """What is repeated until this worker is stopped. None waits for another."""
        return [
            Duty("take-over", self._take_abandoned),
            Duty("queued turns", self._take_queued),
            Duty("deadlines", partial(database.run, turns.stop_overdue)),
            Duty("suspended tenants", partial(database.run, turns.stop_suspended)),
            Duty("revoked keys", partial(database.run, turns.stop_revoked)),
            Duty("vanished clients", self._leave_vanished),
            Duty("grace periods", self._end_graces),
            Duty("usage", partial(database.run, quotas.fold, quotas.FOLDED_AT_ONCE)),
        ]

    def _duties_to_the_end(self) -> Sequence[Duty]:
        """What this worker's own runs and summaries need for as long as there are any."""
        return [Duty("own runs", self._look_after_own), Duty("summaries", self._condenser.sweep)]

    async def _take_abandoned(self) -> None:
        """Go on with dead workers' runs, as many as there are slots for. If none is free, the next one is kept for them."""
        while not self._stopping.is_set():
            slots = min(1, self._unused_slots())
            with self._promising(slots):
                claimed = await database.run(self._sweeper.abandoned, may_go_on=slots > 0)
                if claimed is None:
                    return
                self._begin(claimed)

    async def _leave_vanished(self) -> None:
        # After an outage they have time to be heard again, as runs have.
        if (until := self._sweeper.settled_until(settings.AGENTHOST_AHP_PRESENCE_SECONDS)) is not None:
            await database.run(connections.leave_vanished, until)

    async def _end_graces(self) -> None:
        if (until := self._sweeper.settled_until(settings.AGENTHOST_AHP_GRACE_SECONDS)) is not None:
            await database.run(connections.end_graces, until)

    async def _take_queued(self) -> None:
        """Turns that have waited although a wake-up should have come."""
        while self._free_slots() and not self._stopping.is_set():
            all_it_wanted, _ = await self._claim(settings.AGENTHOST_QUEUE_GRACE_SECONDS)
            if not all_it_wanted:
                return

    async def _look_after_own(self) -> None:
        if self._live:
            await self._drop_what_is_lost()
            for live in self._live.values():
                if live.run is not None:
                    live.run.tell()

    # --- going away ---

    async def _wind_down(self, grace: float, drain: float) -> None:
        self._condenser.rest()
        summaries = asyncio.create_task(self._condenser.drained(grace))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace)
        if self._live:
            log.info("worker %s hands over its runs: %d", self.name, len(self._live))
        for live in list(self._live.values()):
            if live.run is not None:
                live.run.hand_over()
        await Duty("hand-over", self._give_back_the_silent).attempt()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), drain)
        self._drop_all()
        remaining = [summaries, *(live.task for live in self._live.values())]
        if remaining:
            await asyncio.wait(remaining, timeout=_STOP_PATIENCE)

    async def _give_back_the_silent(self) -> None:
        """A model that has not said a word may as well be asked by another worker, at once."""
        silent = [live for live in self._live.values() if live.run is not None and live.run.is_silent]
        for live in silent:
            self._drop(live)
        if silent:
            await asyncio.wait([live.task for live in silent], timeout=_STOP_PATIENCE)
            done = [live.claimed for live in silent if live.task.done()]
            # Each by itself: a turn that somebody has locked is left to its lease.
            backs = (partial(database.keep_trying, each.tenant, turns.give_back, [each]) for each in done)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_PATIENCE):
                    await asyncio.gather(*(Duty("hand-over", back).attempt() for back in backs))
