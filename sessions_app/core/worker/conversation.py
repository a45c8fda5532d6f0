"""The messages of one run as its model gets them: what has grown too long is summarised, or left out."""

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
from sessions_app.core.base.prepared import Statement
from sessions_app.core.records import history
from sessions_app.core.records.summary_queue import About
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.summariser import Condenser

T = TypeVar("T")


class Conversation:
    """Begins with what was loaded, and grows with what the run stores. ``condenser`` None: nobody here summarises."""

    def __init__(self, claimed: Claimed, loaded: Loaded, condenser: Condenser | None) -> None:
        self._claimed, self._loaded = claimed, loaded
        self._messages = list(loaded.messages)
        self._condenser = condenser if loaded.spec.compaction == "summarise" else None
        self._dropped_through = 0

    def remember(self, message: Message) -> None:
        self._messages.append(message)

    def next_position(self) -> int:
        return self._messages[-1].position + 1 if self._messages else 1

    async def for_model(self, plan: Plan, waits: Callable[[], None]) -> Sequence[Message]:
        """What the model gets next; ``TooLong`` if nothing that is allowed to makes it short enough.

        ``waits`` is called before anybody else's word is waited for.
        """
        limit = self._loaded.spec.context_tokens
        if limit is None:
            return await self._aside(compaction.for_model)
        if self._condenser is not None:
            await self._summarise(self._condenser, plan, limit, waits)
        compact = await self._aside(partial(_compacted, plan, limit, self._claimed.turn_id), plan)
        if (through := compact.dropped_through) is not None:
            self._dropped_through = max(self._dropped_through, through)
            # As the next run will load them: what is left out once costs no later step anything.
            standing = next((replace(each, position=through) for each in self._messages if each.summary), None)
            self._messages = compaction.with_summary(self._messages, standing, through)
        return compact.messages

    async def _summarise(self, condenser: Condenser, plan: Plan, limit: int, waits: Callable[[], None]) -> None:
        """Put summaries in the place of turns that have to go, as far as there are any to be had."""
        while await self._aside(partial(_has_to_go, plan, limit), plan):
            oldest = min((each.position for each in self._messages if each.role != "system" and not each.summary), default=0)
            waits()
            if not oldest:
                return
            about = self._about(plan, self._claimed.turn_id)
            found = await outage.outlast(partial(condenser.for_run, about, oldest))
            if found is None:
                return
            self._messages = compaction.with_summary(self._messages, found.standing, found.through)

    def compacted(self, at: datetime) -> list[Statement]:
        """What was dropped since this was last asked, to be stored; a summary of what came before goes on standing."""
        through, self._dropped_through = self._dropped_through, 0
        if not through:
            return []
        summary = next((str(each.content) for each in self._messages if each.summary), None)
        return [history.compacted(self._claimed.tenant, self._claimed.session, through, summary, at)]

    def is_over(self, plan: Plan) -> None:
        """The turn has ended, or so it seems. If the next input will be long, its older part is summarised while nobody waits."""
        limit = self._loaded.spec.context_tokens
        if limit is None or self._condenser is None:
            return
        is_due = partial(_is_due, plan, limit, self._about(plan, None))
        self._condenser.ask(self._claimed.tenant, self._claimed.turn_id, partial(self._aside, is_due, plan))

    async def _aside(self, work: Callable[[Sequence[Message]], T], plan: Plan | None = None) -> T:
        """``work`` on the messages and what the plan adds to them, outside the loop if they are long.

        Nothing in here changes: a run that is cancelled does not wait for the thread.
        """
        messages = list(self._messages)
        added = [] if plan is None else [plan.instructions, plan.tool_schemas]
        return await long_work.call(self._claimed.tenant, partial(work, messages), messages, *added)

    def _about(self, plan: Plan, running_turn: int | None) -> About:
        return About(
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


def _has_to_go(plan: Plan, limit: int, messages: Sequence[Message]) -> bool:
    return compaction.has_to_go(compaction.for_model(messages), plan.instructions, plan.tool_schemas, limit)


def _is_due(plan: Plan, limit: int, about: About, messages: Sequence[Message]) -> bool:
    """Whether there is enough to be summarised, and it can be."""
    lines = compaction.for_model(messages)
    return compaction.is_due(lines, plan.instructions, plan.tool_schemas, limit) and about.older(lines) is not None
