"""Stores what one run has done: its commit points, and the stream events between them.

Each commit point is one unit for the process's journal writer. If the writer reports a unit as stale, the turn is no longer
this run's: ``RunLost``, and the run stops without another write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agents_app.errors import RunLost
from sessions_app.core import turns
from sessions_app.core.base.events import Happening
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Outcome, Unit
from sessions_app.core.records import conversation, conversation_facts
from sessions_app.core.records.history import StepRef
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.run_spans import RunSpans


class Progress:
    """What a run stores. Used only in the worker's loop."""

    def __init__(
        self, claimed: Claimed, loaded: Loaded, writer: journal.Writer, spans: RunSpans, claim_durable: asyncio.Event | None
    ) -> None:
        """``claim_durable``: set when the claim is durable; None: it is."""
        self._claimed, self._loaded, self._writer, self._spans = claimed, loaded, writer, spans
        self._claim_durable = claim_durable
        self.step = loaded.step
        """The current step, of which the calls that run are."""
        self.attention = loaded.attention
        """Whether clients may have changed something that has to be read between two steps."""
        self._unsent: list[Happening] = []
        """Events that no reader waits for; they are sent with the next one."""
        self._reading_facts = asyncio.Lock()

    def step_ref(self, step: int | None = None) -> StepRef:
        """``step`` None: the current one."""
        claimed = self._claimed
        return StepRef(claimed.tenant, claimed.session, claimed.turn_id, self._loaded.run, self.step if step is None else step)

    async def commit(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
        """Store a commit point; returns when it is on disk."""
        with self._spans.commit(happenings):
            await self._await_durable_claim()
            if self._reading_facts.locked() or self._reads_facts(happenings):
                # The events of calls that end together keep their order, so that the last one tells what still runs.
                async with self._reading_facts:
                    unit = self._unit([*happenings, *await self._following(happenings)], statements)
                    outcome = self._writer.queue(unit)
            else:
                unit = self._unit([*happenings, *conversation.following(happenings, self._known_facts)], statements)
                outcome = self._writer.queue(unit)
            if await outcome != "stored":
                raise RunLost
            self.attention = self.attention or unit.attention

    async def commit_pause(self, happening: Happening, statement: Statement) -> bool:
        """Store that the turn waits for its client. False: the client has answered meanwhile, so nothing was stored."""
        await self._await_durable_claim()
        outcome = await self._writer.submit(self._unit([happening], [statement], unless_answered=True))
        if outcome == "stale":
            raise RunLost
        return outcome == "stored"

    async def commit_end(
        self,
        happenings: Sequence[Happening],
        statements: Sequence[Statement],
        report: Callable[[], None],
        afterwards: Callable[[], None],
    ) -> None:
        """Store the turn's end; in one transaction with what has to follow it, if anything has to.

        ``report`` is called when the end is stored, ``afterwards`` also if it could not be.
        """
        with self._spans.commit(happenings):
            await self._await_durable_claim()
            try:
                await self._store_end(happenings, statements, report)
            finally:
                # Also if the run was cancelled: the end may be stored all the same.
                afterwards()

    async def _store_end(
        self, happenings: Sequence[Happening], statements: Sequence[Statement], report: Callable[[], None]
    ) -> None:
        unit = self._unit([*happenings, *await self._following(happenings)], statements, unless_attention=True)

        def written(outcome: asyncio.Future[Outcome]) -> None:
            if not outcome.cancelled() and outcome.exception() is None and outcome.result() == "stored":
                report()

        # Shielded: a sweep in this moment finds that the turn has ended and stops the run, but the end is reported.
        writing = self._writer.queue(unit)
        writing.add_done_callback(written)
        outcome = await asyncio.shield(writing)
        if outcome == "stale":
            raise RunLost
        if outcome == "answered":
            finish = partial(turns.finish, self._claimed, self._loaded.spec.name, happenings, statements, report)
            if not await outage.run_for(self._claimed.tenant, finish):
                raise RunLost

    # --- stream events ---

    async def stream(self, happening: Happening) -> None:
        await self._await_durable_claim()
        await self._writer.put(self._unit(self.with_unsent([happening])))

    def stream_at_once(self, happening: Happening) -> bool:
        """Store it without waiting. False: that is impossible now."""
        if self._claim_durable is not None or self._unsent:
            return False
        claimed = self._claimed
        # Made here, once per delta.
        return self._writer.put_at_once(
            Unit(
                tenant=claimed.tenant,
                session=claimed.session,
                turn=claimed.turn_id,
                fence=claimed.fence,
                happenings=[happening],
                attention=self.attention,
            )
        )

    def send_later(self, happening: Happening) -> None:
        """Store it with the next one: no protocol shows it, so it needs no flush of its own."""
        self._unsent.append(happening)

    def with_unsent(self, happenings: list[Happening]) -> list[Happening]:
        if self._unsent:
            happenings = [*self._unsent, *happenings]
            self._unsent.clear()
        return happenings

    # --- units ---

    def _unit(
        self,
        happenings: Sequence[Happening],
        statements: Sequence[Statement] = (),
        *,
        unless_answered: bool = False,
        unless_attention: bool = False,
    ) -> Unit:
        return Unit(
            tenant=self._claimed.tenant,
            session=self._claimed.session,
            turn=self._claimed.turn_id,
            fence=self._claimed.fence,
            happenings=happenings,
            statements=statements,
            unless_answered=unless_answered,
            unless_attention=unless_attention,
            attention=self.attention,
        )

    async def _await_durable_claim(self) -> None:
        """Nothing may be stored before this: a crash of the database could still undo the claim and its fence."""
        if self._claim_durable is not None:
            await self._claim_durable.wait()
            self._claim_durable = None

    def _reads_facts(self, happenings: Sequence[Happening]) -> bool:
        unsure = self.attention or any(map(conversation.needs_rows, happenings))
        return unsure and any(happening.kind in conversation.STATE_KINDS for happening in happenings)

    async def _following(self, happenings: Sequence[Happening]) -> list[Happening]:
        """The events that follow from these, before their statements have run."""
        if self._reads_facts(happenings):
            reading = partial(conversation_facts.following_in_run, self._claimed.session, happenings)
            return await outage.run_for(self._claimed.tenant, reading)
        return conversation.following(happenings, self._known_facts)

    @property
    def _known_facts(self) -> conversation.Facts:
        """Without clients and forms, the flags of the session are those of the turn's start."""

        def unknown(_: str) -> Any:
            raise AssertionError("read from rows")

        return conversation.Facts(
            read=True,
            archived=self._loaded.archived,
            chat_read=lambda: False,
            state=lambda: "working",
            call=unknown,
            voided=lambda _: (),
        )
