"""The messages of one run as its model gets them, shortened to the model's context by summaries or by leaving turns out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from agents_app import compaction
from agents_app.runtime import long_work
from agents_app.runtime.loop import Plan
from agents_app.runtime.messages import Message
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.records import history
from sessions_app.core.records.summary_queue import Source
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.summariser import Summariser

T = TypeVar("T")


class Conversation:
    """Starts with the loaded messages; the run adds what it stores. ``summariser`` None: turns are only left out."""

    def __init__(self, claimed: Claimed, loaded: Loaded, summariser: Summariser | None) -> None:
        self._claimed, self._loaded = claimed, loaded
        self._messages = list(loaded.messages)
        self._summariser = summariser if loaded.spec.compaction == "summarise" else None
        self._dropped_through = 0

    def remember(self, message: Message) -> None:
        self._messages.append(message)

    def next_position(self) -> int:
        return max(self._messages[-1].position if self._messages else 0, self._loaded.last_position) + 1

    async def for_model(self, plan: Plan, summary_needed: Callable[[], None]) -> Sequence[Message]:
        """The messages of the next model call; ``TooLong`` if they cannot be made short enough.

        ``summary_needed`` is called before a summary is waited for.
        """
        limit = self._loaded.spec.context_tokens
        if limit is None:
            return await self._call(compaction.for_model)
        if self._summariser is not None:
            await self._summarise(self._summariser, plan, limit, summary_needed)
        compact = await self._call(partial(_compacted, plan, limit, self._claimed.turn_id), plan)
        if (through := compact.dropped_through) is not None:
            self._dropped_through = max(self._dropped_through, through)
            # The same messages that the next run will load. Later steps need not leave these turns out again.
            summary = next((replace(each, position=through) for each in self._messages if each.summary), None)
            self._messages = compaction.with_summary(self._messages, summary, through)
        return compact.messages

    async def _summarise(self, summariser: Summariser, plan: Plan, limit: int, summary_needed: Callable[[], None]) -> None:
        """Replace turns that do not fit by summaries, as far as summaries can be made."""
        while await self._call(partial(_is_too_long, plan, limit), plan):
            oldest = min((each.position for each in self._messages if each.role != "system" and not each.summary), default=0)
            summary_needed()
            if not oldest:
                return
            about = self._about(plan, self._claimed.turn_id)
            found = await outage.outlast(partial(summariser.for_run, about, oldest))
            if found is None:
                return
            self._messages = compaction.with_summary(self._messages, found.summary, found.through)

    def compacted(self, at: datetime) -> list[Statement]:
        """Statements that store what was left out since the last call. An older summary stays in effect."""
        through, self._dropped_through = self._dropped_through, 0
        if not through:
            return []
        summary = next((str(each.content) for each in self._messages if each.summary), None)
        return [history.compacted(self._claimed.tenant, self._claimed.session, through, summary, at)]

    def turn_ended(self, plan: Plan) -> None:
        """The turn has probably ended: if the next input will be long, have its older part summarised in the background."""
        limit = self._loaded.spec.context_tokens
        if limit is None or self._summariser is None:
            return
        is_due = partial(_is_due, plan, limit, self._about(plan, None))
        self._summariser.ask(self._claimed.tenant, self._claimed.turn_id, partial(self._call, is_due, plan))

    async def _call(self, work: Callable[[Sequence[Message]], T], plan: Plan | None = None) -> T:
        """Call ``work`` with the messages, in a thread if they are long together with what the plan adds.

        ``work`` must change nothing: a run that is cancelled does not wait for the thread.
        """
        messages = list(self._messages)
        added = [] if plan is None else [plan.instructions, plan.tool_schemas]
        return await long_work.call(self._claimed.tenant, partial(work, messages), messages, *added)

    def _about(self, plan: Plan, running_turn: int | None) -> Source:
        return Source(
            tenant=self._claimed.tenant,
            session=self._claimed.session,
            public_id=self._loaded.session_public_id,
            turn=self._claimed.turn_id,
            spec=self._loaded.spec,
            options=self._loaded.options,
            instructions=plan.instructions,
            tool_schemas=plan.tool_schemas,
            running_turn=running_turn,
            budget=self._loaded.budget,
        )


def _compacted(plan: Plan, limit: int, turn: int, messages: Sequence[Message]) -> compaction.Compacted:
    return compaction.compact(compaction.for_model(messages), plan.instructions, plan.tool_schemas, limit, turn)


def _is_too_long(plan: Plan, limit: int, messages: Sequence[Message]) -> bool:
    return compaction.must_drop_turns(compaction.for_model(messages), plan.instructions, plan.tool_schemas, limit)


def _is_due(plan: Plan, limit: int, about: Source, messages: Sequence[Message]) -> bool:
    """Whether the history is long enough to be summarised, and can be."""
    lines = compaction.for_model(messages)
    return compaction.is_due(lines, plan.instructions, plan.tool_schemas, limit) and about.older(lines) is not None
