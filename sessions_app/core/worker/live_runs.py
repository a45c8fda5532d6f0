"""The runs that one worker drives: begun, stopped, and ended, each as a task of the worker's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db import DatabaseError

from agents_app.errors import RunLost
from agents_app.fair.threads import FairPool
from sessions_app.core import turns
from sessions_app.core.base import database, log_context, metrics, redaction
from sessions_app.core.log import journal
from sessions_app.core.turns import Claimed, Stop, failures
from sessions_app.core.worker import loading, outage, runner, sweep
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.summariser import Summariser

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LiveRun:
    """A run that this worker is driving."""

    claimed: Claimed
    task: asyncio.Task[None]
    run: runner.Run | None = None
    stopped: bool = False


class LiveRuns:
    """Used only in the worker's loop, except ``own_turns`` and ``len``."""

    def __init__(
        self, worker: str, loop: asyncio.AbstractEventLoop, pool: FairPool, summariser: Summariser, freed: Callable[[], object]
    ) -> None:
        """``freed`` is called when a run has ended."""
        self._worker, self._loop, self._pool, self._summariser, self._freed = worker, loop, pool, summariser, freed
        self._live: dict[int, LiveRun] = {}
        self.writer: journal.Writer | None = None
        self.idle = asyncio.Event()
        """Set while there are no runs."""
        self.idle.set()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveRun]:
        return iter(list(self._live.values()))

    def of_turn(self, turn_id: int) -> LiveRun | None:
        return self._live.get(turn_id)

    def own_turns(self) -> set[int]:
        """The turns that this worker drives: not those of runs that failed or were stopped, which others have to take over."""
        return {live.claimed.turn_id for live in self if not live.stopped}

    def begin(self, claimed: Claimed, loaded: Loaded | Exception | None = None, is_durable: asyncio.Event | None = None) -> None:
        """Drive a run.

        ``loaded`` None: its data was not read with its claim. ``is_durable``: set when the claim is durable; None: it is.
        """
        if (before := self._live.get(claimed.turn_id)) is not None:
            # Its lease expired, and this worker has taken the turn over from itself.
            self.drop(before)
        task = self._loop.create_task(self._drive(claimed, loaded, is_durable), name=f"turn {claimed.turn_id}")
        self._live[claimed.turn_id] = LiveRun(claimed, task)
        self.idle.clear()
        task.add_done_callback(lambda _: self._forget(claimed))
        metrics.RUNS_STARTED.inc()

    def _forget(self, claimed: Claimed) -> None:
        live = self._live.get(claimed.turn_id)
        if live is not None and live.claimed == claimed:
            del self._live[claimed.turn_id]
            self._freed()
        if not self._live:
            self.idle.set()

    def drop(self, live: LiveRun) -> None:
        """Stop a run that is no longer this worker's: close its model call and tools, write nothing more."""
        if not live.stopped:
            live.stopped = True
            metrics.RUNS_STOPPED.inc()
            live.task.cancel()

    def drop_all(self) -> None:
        for live in self:
            self.drop(live)

    async def drop_lost(self) -> None:
        """Stop the runs that are not this worker's in the database."""
        before = list(self)
        mine = await database.run_on_loop(sweep.runs_of, self._worker)
        for live in before:
            if mine.get(live.claimed.turn_id) != live.claimed.fence:
                self.drop(live)

    async def _drive(self, claimed: Claimed, loaded: Loaded | Exception | None, is_durable: asyncio.Event | None) -> None:
        """Execute one run. Every exception ends its turn, except those after which another worker takes it over."""
        assert self.writer is not None
        live = self._live[claimed.turn_id]
        failed: Stop | None = None
        try:
            with log_context.about(tenant=claimed.tenant):
                if loaded is None or (isinstance(loaded, Exception) and database.is_away(loaded)):
                    loaded = await loading.load_one(claimed)
                if isinstance(loaded, Exception):
                    raise loaded
                live.run = runner.Run(claimed, loaded, self.writer, self._pool, is_durable, self._summariser)
                await live.run.drive()
            return
        except (RunLost, journal.WriterClosed):
            live.stopped = True
        except runner.DeadlinePassed:
            failed = Stop(cause="deadline", reason="error")
        except TimeoutError:
            log.warning("turn_over_time_limit turn=%s: it ran longer than its agent allows", claimed.turn_id)
            failed = Stop(cause="limit", reason="error")
        except asyncio.CancelledError:
            if not live.stopped:
                raise
        except DatabaseError as error:
            log.error("run_lost_database turn=%s: it will be taken over: %s", claimed.turn_id, outage.described(error))
            return
        except Exception as error:
            log.error("turn_failed turn=%s cause=internal: %s", claimed.turn_id, redaction.described(error))
            failed = Stop(cause="internal", reason="error", failure=failures.internal(error))
        # If this fails, a sweep takes the turn over, because its lease is no longer renewed.
        try:
            if failed is not None:
                await outage.run_for(claimed.tenant, turns.stop, claimed.turn_id, failed, fence=claimed.fence)
            await database.keep_trying(claimed.tenant, turns.provider_closed, claimed)
        except Exception as error:
            log.error("run_end_not_stored turn=%s: %s", claimed.turn_id, outage.described(error))
