"""Makes summaries of long conversations: in the background, and for runs whose input is too long.

It runs in the worker's loop and has slots of its own, so that no turn waits for a summary of another session. A failure is
logged and not retried for a while; until then the model gets the conversation without its older turns.
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
from sessions_app.core.records.summary_queue import Claimed, HistoryToSummarise, Source

log = logging.getLogger(__name__)

SLOTS, SLOTS_PER_TENANT = 4, 2
BACKGROUND_SECONDS, IN_RUN_SECONDS = 300.0, 60.0
"""Time limits of a summary: in the background, and while a run and its client wait for it."""
_POLL_SECONDS = 0.1
_DOUBT_SECONDS = 30.0
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """The summary of all messages up to ``through``; None: they are left out without one."""

    through: int
    summary: Message | None


class Summariser:
    """Created with its worker, used only in the worker's loop."""

    def __init__(self, worker: str, queues: Sequence[str] | None = None) -> None:
        self._worker, self._queues = worker, queues
        self._jobs: dict[int, tuple[Claimed, asyncio.Task[None]]] = {}
        self._in_runs: Counter[int] = Counter()
        self._asking: set[asyncio.Task[None]] = set()
        self._claiming = asyncio.Lock()
        self._stopping = False
        self._in_doubt_until = 0.0
        """Until then rows may name this worker although it does not work on them: a statement may still be in progress."""

    # --- in the background ---

    def ask(self, tenant: int, turn: int, is_due: Callable[[], Awaitable[bool]]) -> None:
        """Have a session's older messages summarised in the background if its next input will be long (``is_due``).

        Only if the turn has ended, which its row shows.
        """
        asking = self._attempt(partial(self._ask, tenant, turn, is_due))
        task = asyncio.get_running_loop().create_task(asking, name=f"summary after turn {turn}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, tenant: int, turn: int, is_due: Callable[[], Awaitable[bool]]) -> None:
        if not await is_due():
            return
        await database.keep_trying(tenant, summary_queue.request, turn)
        await self._claim()

    async def _attempt(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # a summary that is not made now is made after a later turn
            log.error("summary_work_failed: %s", redaction.described(error))

    @property
    def is_busy(self) -> bool:
        """Whether ``sweep`` has something to do although no summary is due."""
        return bool(self._jobs) or time.monotonic() < self._in_doubt_until

    async def sweep(self) -> None:
        """Once a second: claim due summaries, and stop those that are no longer needed."""
        async with self._claiming:
            if time.monotonic() < self._in_doubt_until:
                await database.run(summary_queue.give_back_all_but, self._worker, [*self._jobs, *self._in_runs])
            if self._jobs:
                mine = await database.run(summary_queue.claimed_by, self._worker)
                for session, (_, task) in list(self._jobs.items()):
                    if session not in mine:
                        # The session was deleted, truncated or suspended, or another worker took the summary over.
                        task.cancel()
        if not self._stopping and await database.run(summary_queue.has_free, self._queues):
            await self._claim()

    async def _claim(self) -> None:
        async with self._claiming:
            while self._may_claim() and len(self._jobs) < SLOTS:
                of_tenants = Counter(taken.tenant for taken, _ in self._jobs.values())
                full = [tenant for tenant, jobs in of_tenants.items() if jobs >= SLOTS_PER_TENANT]
                # One at a time: with this one its tenant may have used up its share.
                try:
                    claimed = await database.run(summary_queue.claim, self._worker, 1, full, self._queues)
                except BaseException:
                    self._doubt()
                    raise
                if not claimed:
                    return
                if not self._may_claim():
                    # The worker began to stop while the claim was on its way.
                    await database.keep_trying(claimed[0].tenant, summary_queue.give_back, self._worker, claimed[0].session)
                    return
                self._begin(claimed[0])

    def _may_claim(self) -> bool:
        return not self._stopping

    def _begin(self, taken: Claimed) -> None:
        task = asyncio.get_running_loop().create_task(self._attempt(partial(self._make, taken)), name=f"summary {taken.session}")
        self._jobs[taken.session] = (taken, task)
        task.add_done_callback(lambda done: self._job_ended(taken, done))

    def _job_ended(self, taken: Claimed, done: asyncio.Task[None]) -> None:
        if (job := self._jobs.get(taken.session)) is not None and job[1] is done:
            del self._jobs[taken.session]
            if done.cancelled():
                self._doubt()
            elif not self._stopping:
                self.claim_soon()

    def claim_soon(self) -> None:
        """Claim due summaries, if there are any and a slot is free."""
        task = asyncio.get_running_loop().create_task(self._attempt(self._claim), name="claim summaries")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _make(self, taken: Claimed) -> None:
        try:
            await self._make_of(taken)
        except Exception:
            self._doubt()
            raise

    async def _make_of(self, taken: Claimed) -> None:
        with log_context.about(tenant=taken.tenant):
            about = await database.run_for(taken.tenant, summary_queue.source, taken.session)
            if about is None or await self._is_out_of_tokens(about):
                await database.keep_trying(taken.tenant, summary_queue.cancel, self._worker, taken.session)
                return
            log_context.bind(session=about.public_id)
            base = await database.run_for(taken.tenant, summary_queue.history_of, taken.session)
            if (older := await self._older(about, base)) is None:
                await database.keep_trying(taken.tenant, summary_queue.cancel, self._worker, taken.session)
            else:
                await self._summarise(taken, about, base, older, BACKGROUND_SECONDS)

    async def _is_out_of_tokens(self, about: Source) -> bool:
        return about.budget is not None and await database.run_for(about.tenant, about.budget.overdrawn) is not None

    async def _older(self, about: Source, base: HistoryToSummarise) -> Older | None:
        return await long_work.call(about.tenant, partial(about.older, base.messages), base.messages)

    async def _summarise(
        self, taken: Claimed, about: Source, base: HistoryToSummarise, older: Older, seconds: float
    ) -> Found | None:
        """Make and store a summary. Always releases the session's row. None: it failed, or came too late."""
        used: list[Usage] = []
        model = about.spec.model
        try:
            resolved = summarising.resolve(about.spec, about.options)
            model = resolved.full_model
            async with asyncio.timeout(seconds):
                text = await summarising.summarise(resolved, older, used.append, about.tenant)
        except asyncio.CancelledError:
            await self._close(summary_queue.give_back, about, model, used, taken.session)
            raise
        except (ProviderError, summarising.NoSummary, TimeoutError) as error:
            reason = f"it took longer than {seconds:g} s" if isinstance(error, TimeoutError) else str(error)
            log.warning("summary_failed messages=%d: %s", len(older.messages), reason)
            await self._close(summary_queue.failed, about, model, used, taken.session, taken.attempts)
            return None
        except Exception as error:
            log.error("summary_failed cause=internal: %s", redaction.described(error))
            await self._close(summary_queue.failed, about, model, used, taken.session, taken.attempts)
            return None
        summary = compaction.summary(text, older.through)
        if await database.keep_trying(about.tenant, summary_queue.store, base, about, summary, model, used):
            log.info("summary_stored messages=%d", len(older.messages))
            return Found(older.through, summary)
        log.info("summary_outdated: the messages have changed meanwhile")
        await database.keep_trying(taken.tenant, summary_queue.give_back, self._worker, taken.session)
        return None

    async def _close(self, close: Any, about: Source, model: str, used: Sequence[Usage], *args: int) -> None:
        try:
            await database.keep_trying(about.tenant, close, self._worker, *args)
            await database.keep_trying(about.tenant, summary_queue.store_usage, about, model, used)
        except DatabaseError as error:
            self._doubt()
            log.error("summary_end_not_stored: %s", redaction.described(error))

    def _doubt(self) -> None:
        self._in_doubt_until = time.monotonic() + _DOUBT_SECONDS

    # --- for runs ---

    async def for_run(self, about: Source, oldest: int) -> Found | None:
        """A summary of more messages, for a run whose input is too long and starts at position ``oldest``.

        Made now if there is none yet. None: it cannot be made, and turns have to be left out.
        """
        self._in_runs[about.session] += 1
        try:
            return await self._for_run(about, oldest)
        except BaseException:
            self._doubt()
            raise
        finally:
            self._in_runs[about.session] -= 1
            if not self._in_runs[about.session]:
                del self._in_runs[about.session]

    async def _for_run(self, about: Source, oldest: int) -> Found | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + IN_RUN_SECONDS
        while (left := deadline - loop.time()) > 0:
            base = await database.run_for(about.tenant, summary_queue.history_of, about.session)
            if base.through >= oldest:
                return Found(base.through, base.standing)
            state = await database.run_for(about.tenant, summary_queue.state, about.session)
            if state.resting or (older := await self._older(about, base)) is None or await self._is_out_of_tokens(about):
                return None
            taken = None
            if not state.in_progress:
                taken = await database.run_for(about.tenant, summary_queue.claim_one, self._worker, about.session)
            if taken is None:
                # Another worker is making it. A second one would be paid for and not stored.
                await asyncio.sleep(_POLL_SECONDS)
            elif not await database.run_for(about.tenant, summary_queue.is_unchanged, base):
                # Another worker stored its summary after ``base`` was read and before the claim.
                await database.keep_trying(about.tenant, summary_queue.give_back, self._worker, about.session)
            elif (found := await self._summarise(taken, about, base, older, left)) is not None:
                return found
        log.warning("summary_not_in_time turn=%d seconds=%g", about.turn, IN_RUN_SECONDS)
        return None

    # --- stopping ---

    def stop_claiming(self) -> None:
        self._stopping = True

    async def drained(self, seconds: float) -> None:
        """Wait at most ``seconds`` for summaries in progress; stop the others and leave them to other workers."""
        tasks = [task for _, task in self._jobs.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        left = [*self._asking, *(task for task in tasks if not task.done())]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_STOP_SECONDS)
