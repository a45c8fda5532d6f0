"""A worker's summaries: those it makes beside its runs, and those a run cannot go on without.

It lives in the worker's loop and has places of its own, so that no turn waits for a summary of another session.
A failure is logged, remembered for a while and costs nobody more than older turns that are dropped instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import DatabaseError

from agents_app import compaction
from agents_app.compaction import Older
from agents_app.errors import ProviderError
from agents_app.runtime import long_work, summarising
from agents_app.runtime.interface import Usage
from agents_app.runtime.messages import Message
from sessions_app.core.base import database, log_context, redaction
from sessions_app.core.records import summary_queue
from sessions_app.core.records.summary_queue import About, Base, Taken

log = logging.getLogger(__name__)

PLACES, PLACES_OF_A_TENANT = 4, 2
SECONDS_BESIDE, SECONDS_IN_A_RUN = 300.0, 60.0
"""The longest that a summary may take: beside the runs, and while a run and its client wait."""
_LOOK_AGAIN = 0.1
_DOUBT_SECONDS = 30.0
_STOP_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """What stands for everything up to ``through`` now; None: nothing does."""

    through: int
    standing: Message | None


class Condenser:
    """Made with its worker; used in the worker's loop alone."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._jobs: dict[int, tuple[Taken, asyncio.Task[None]]] = {}
        self._in_runs: Counter[int] = Counter()
        self._asking: set[asyncio.Task[None]] = set()
        self._looking = asyncio.Lock()
        self._resting = False
        self._in_doubt_until = 0.0
        """Until then the rows may say that this worker is at something, and it is not: a statement may still be on its way."""

    # --- beside the runs ---

    def ask(self, tenant: int, turn: int, is_due: Callable[[], Awaitable[bool]]) -> None:
        """The turn has ended, if its row says so. If the next input will be long (``is_due``), its older part is summarised.

        Nobody waits for what comes of it.
        """
        asking = self._attempt(partial(self._ask, tenant, turn, is_due))
        task = asyncio.get_running_loop().create_task(asking, name=f"ask after turn {turn}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, tenant: int, turn: int, is_due: Callable[[], Awaitable[bool]]) -> None:
        if not await is_due():
            return
        await database.keep_trying(tenant, summary_queue.ask, turn)
        await self._look()

    async def _attempt(self, what: Callable[[], Awaitable[None]]) -> None:
        try:
            await what()
        except Exception as error:  # an edge: a summary that is not made now is made after a later turn
            log.error("looking after summaries failed: %s", redaction.described(error))

    async def sweep(self) -> None:
        """Once a second: what was given up elsewhere is taken, what is no longer wanted is stopped."""
        async with self._looking:
            if time.monotonic() < self._in_doubt_until:
                await database.run(summary_queue.give_back_all_but, self._worker, [*self._jobs, *self._in_runs])
            if self._jobs:
                mine = await database.run(summary_queue.mine, self._worker)
                for session, (_, task) in list(self._jobs.items()):
                    if session not in mine:
                        # Deleted, truncated, suspended, or taken over from a worker that seemed dead.
                        task.cancel()
        if not self._resting and await database.run(summary_queue.waiting):
            await self._look()

    async def _look(self) -> None:
        async with self._looking:
            while not self._resting and len(self._jobs) < PLACES:
                of_tenants = Counter(taken.tenant for taken, _ in self._jobs.values())
                full = [tenant for tenant, jobs in of_tenants.items() if jobs >= PLACES_OF_A_TENANT]
                # One after the other: the next may be the tenant's that has its share with this one.
                try:
                    claimed = await database.run(summary_queue.claim, self._worker, 1, full)
                except BaseException:
                    self._doubt()
                    raise
                if not claimed:
                    return
                self._begin(claimed[0])

    def _begin(self, taken: Taken) -> None:
        task = asyncio.get_running_loop().create_task(self._attempt(partial(self._make, taken)), name=f"summary {taken.session}")
        self._jobs[taken.session] = (taken, task)
        task.add_done_callback(lambda done: self._is_over(taken, done))

    def _is_over(self, taken: Taken, done: asyncio.Task[None]) -> None:
        if (job := self._jobs.get(taken.session)) is not None and job[1] is done:
            del self._jobs[taken.session]
            if done.cancelled():
                self._doubt()
            elif not self._resting:
                self.look()

    def look(self) -> None:
        """There may be something to do, and room for it."""
        task = asyncio.get_running_loop().create_task(self._attempt(self._look), name="look for summaries")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _make(self, taken: Taken) -> None:
        try:
            await self._make_of(taken)
        except Exception:
            self._doubt()
            raise

    async def _make_of(self, taken: Taken) -> None:
        with log_context.about(tenant=taken.tenant):
            of = await database.run_for(taken.tenant, summary_queue.about, taken.session)
            if of is None or (of.budget is not None and await database.run_for(of.tenant, of.budget.overdrawn) is not None):
                await database.keep_trying(taken.tenant, summary_queue.drop, self._worker, taken.session)
                return
            log_context.bind(session=of.public_id)
            made_of = await database.run_for(taken.tenant, summary_queue.base, taken.session)
            if (older := await self._older(of, made_of)) is None:
                await database.keep_trying(taken.tenant, summary_queue.drop, self._worker, taken.session)
            else:
                await self._summarised(taken, of, made_of, older, SECONDS_BESIDE)

    async def _older(self, of: About, made_of: Base) -> Older | None:
        return await long_work.call(of.tenant, partial(of.older, made_of.messages), made_of.messages)

    async def _summarised(self, taken: Taken, of: About, made_of: Base, older: Older, seconds: float) -> Found | None:
        """Make and store it; whatever comes of it, the session is not this worker's any more. None: there is none."""
        used: list[Usage] = []
        model = of.spec.model
        try:
            who = summarising.resolve(of.spec, of.options)
            model = who.full_model
            async with asyncio.timeout(seconds):
                text = await summarising.summarise(who, older, used.append, of.tenant)
        except asyncio.CancelledError:
            await self._close(summary_queue.give_back, of, model, used, taken.session)
            raise
        except (ProviderError, summarising.NoSummary, TimeoutError) as error:
            reason = "it took too long" if isinstance(error, TimeoutError) else str(error)
            log.warning("no summary of %d messages: %s", len(older.messages), reason)
            await self._close(summary_queue.failed, of, model, used, taken.session, taken.attempts)
            return None
        except Exception as error:
            log.error("a summary failed inside the server: %s", redaction.described(error))
            await self._close(summary_queue.failed, of, model, used, taken.session, taken.attempts)
            return None
        summary = compaction.summary(text, older.through)
        if await database.keep_trying(of.tenant, summary_queue.store, made_of, of, summary, model, used):
            log.info("a summary stands for %d messages", len(older.messages))
            return Found(older.through, summary)
        log.info("a summary came too late: what it was made of has changed")
        await database.keep_trying(taken.tenant, summary_queue.give_back, self._worker, taken.session)
        return None

    async def _close(self, close: Any, of: About, model: str, used: Sequence[Usage], *more: int) -> None:
        try:
            await database.keep_trying(of.tenant, close, self._worker, *more)
            await database.keep_trying(of.tenant, summary_queue.book, of, model, used)
        except DatabaseError as error:
            self._doubt()
            log.error("the end of a summary could not be stored: %s", redaction.described(error))

    def _doubt(self) -> None:
        self._in_doubt_until = time.monotonic() + _DOUBT_SECONDS

    # --- in a run ---

    async def for_run(self, of: About, oldest: int) -> Found | None:
        """For a run whose input is too long and begins at ``oldest``: what stands for more of it, made now if need be.

        None: there is no summary to be had, and turns have to be dropped.
        """
        self._in_runs[of.session] += 1
        try:
            return await self._for_run(of, oldest)
        except BaseException:
            self._doubt()
            raise
        finally:
            self._in_runs[of.session] -= 1
            if not self._in_runs[of.session]:
                del self._in_runs[of.session]

    async def _for_run(self, of: About, oldest: int) -> Found | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SECONDS_IN_A_RUN
        while (left := deadline - loop.time()) > 0:
            made_of = await database.run_for(of.tenant, summary_queue.base, of.session)
            if made_of.through >= oldest:
                return Found(made_of.through, made_of.standing)
            state = await database.run_for(of.tenant, summary_queue.state, of.session)
            if state.resting or (older := await self._older(of, made_of)) is None:
                return None
            if of.budget is not None and await database.run_for(of.tenant, of.budget.overdrawn) is not None:
                return None
            taken = None if state.in_progress else await database.run_for(of.tenant, summary_queue.take, self._worker, of.session)
            if taken is None:
                # Somebody is at it: two would be paid for, and one stored.
                await asyncio.sleep(_LOOK_AGAIN)
            elif (found := await self._summarised(taken, of, made_of, older, left)) is not None:
                return found
        log.warning("nobody made a summary in time for turn %d", of.turn)
        return None

    # --- going away ---

    def rest(self) -> None:
        """Begin no more."""
        self._resting = True

    async def drained(self, seconds: float) -> None:
        """Wait for those under way, at most so long; the rest is stopped and left to other workers."""
        tasks = [task for _, task in self._jobs.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        left = [*self._asking, *(task for task in tasks if not task.done())]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_STOP_PATIENCE)
