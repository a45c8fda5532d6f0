"""Executes one claimed run: drives the agent loop, and stores its progress.

``Run`` is the loop's host. What it stores goes through ``Progress``; its calls, their forms and its spans have modules of
their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

from django.utils import timezone

from agents_app.errors import RunLost
from agents_app.fair.threads import FairPool
from agents_app.mcp import listing, session_tools
from agents_app.runtime import loop
from agents_app.runtime.content import of_assistant
from agents_app.runtime.interface import Call, Change, CommandResult, EndReason, FileEdit, FormAnswer, StepMessage, Usage
from agents_app.runtime.messages import Content, Message
from sessions_app.core import turns
from sessions_app.core.base import log_context, metrics
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.records import history
from sessions_app.core.sessions import forms
from sessions_app.core.tenancy import model_use, usage_entries
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage, planning, tool_calls
from sessions_app.core.worker.conversation import Conversation
from sessions_app.core.worker.endings import Failures, ending
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.progress import Progress
from sessions_app.core.worker.run_spans import RunSpans
from sessions_app.core.worker.summariser import Summariser
from sessions_app.core.worker.tool_calls import ToolCalls
from sessions_app.core.worker.tool_forms import ToolForms
from sessions_app.models import Origin

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class DeadlinePassed(Exception):
    """The run exceeded the deadline that its client set."""


class Run:
    """One run of one turn. Used only in the worker's loop.

    Nothing that it owns refers to it: with such a circle, a run that has ended, its messages included, stays in memory until
    the garbage collector looks.
    """

    def __init__(
        self,
        claimed: Claimed,
        loaded: Loaded,
        writer: journal.Writer,
        pool: FairPool,
        claim_durable: asyncio.Event | None = None,
        summariser: Summariser | None = None,
    ) -> None:
        """``claim_durable``: set when the claim is durable; None: it is."""
        self.claimed = claimed
        self._loaded = loaded
        self._pool = pool
        self._spans = RunSpans(claimed, loaded)
        self._progress = Progress(claimed, loaded, writer, self._spans, claim_durable)
        self._conversation = Conversation(claimed, loaded, summariser)
        self._forms = ToolForms(claimed, loaded.public_id, self._progress)
        self._calls = ToolCalls(claimed, loaded, self._progress, self._conversation, self._forms)
        self._parts = list(loaded.parts)
        self._answered = asyncio.Event()
        """Set when a client may have answered a call."""
        self._hand_over = False
        self.is_unanswered = False
        """The model was asked and has not answered yet: another worker can ask it again, and no client notices."""
        self._is_first_run = loaded.run == 1 and loaded.step == 0
        """Whether the turn has no output of the model yet."""
        self._tokens = loaded.tokens
        self._choices = planning.ClientChoices(loaded.settings, loaded.approval, starter=loaded.client)
        self._failures = Failures()
        self._plan = planning.make(loaded, self._choices, pool, claimed, self._failures.record)

    async def drive(self) -> None:
        """Run until the turn ends or waits.

        RunLost: the turn is no longer this run's. TimeoutError: the run exceeded its agent's limit. DeadlinePassed: it
        exceeded its client's deadline.
        """
        log_context.bind(session=self._loaded.session_public_id, turn=self._loaded.public_id)
        if self._is_first_run:
            metrics.QUEUE_SECONDS.observe(self._since_start())
        with self._spans.whole():
            await self._drive()

    async def _drive(self) -> None:
        limit, left = self._plan.limits.run, self._loaded.seconds_left
        try:
            async with asyncio.timeout(limit if left is None else max(0.0, min(limit, left))):
                if listing.unlisted(self._loaded.spec):
                    await self._find_tools()
                await loop.run(self._plan, self, self._progress.step)
        except TimeoutError:
            if left is not None and left < limit:
                raise DeadlinePassed from None
            raise

    async def _find_tools(self) -> None:
        loaded = self._loaded
        client_tools = [tool["name"] for tool in loaded.settings.client_tools]
        owner, tenant = loaded.session_public_id, self.claimed.tenant
        found = await session_tools.discover(loaded.spec, loaded.options, owner, client_tools, tenant)
        loaded.spec, loaded.own_tools = found.spec, found.own
        self._plan = planning.make(loaded, self._choices, self._pool, self.claimed, self._failures.record)

    def notify_answers(self) -> None:
        """A client may have answered a call or a form."""
        self._answered.set()
        self._forms.notify_answers()

    def notify_changes(self) -> None:
        """A client has changed something that takes effect at the next step."""
        self._progress.attention = True

    def hand_over(self) -> None:
        """Put the turn back into the queue at the next commit point, because this worker is stopping."""
        self._hand_over = True

    async def _database(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` in a thread of the tenant's share. It is repeated after an outage, so its writes have to be idempotent."""
        return await outage.run_for(self.claimed.tenant, fn, *args, **kwargs)

    def _report_end(self, end: Happening) -> None:
        """Count and trace the end of the turn, which is stored."""
        outcome = "error" if end.kind is Kind.TURN_FAILED else end.payload["reason"]
        metrics.turn_ended(self._loaded.spec.name, outcome, end.payload["duration_ms"])
        self._spans.turn_ended(outcome, end.payload.get("error", ""), self._tokens)

    async def _commit_end(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
        report = partial(self._report_end, happenings[-1])
        await self._progress.commit_end(happenings, statements, report, partial(self._conversation.turn_ended, self._plan))

    async def _hand_over_if_asked(self) -> None:
        """Call this only while no server tool is running: the next worker could not know how it ended."""
        if self._hand_over:
            handed_over = history.turn_handed_over(self.claimed.turn_id, self.claimed.fence)
            released = Happening(Kind.RUN_RELEASED, {"turn": self._loaded.public_id, "run": self._loaded.run})
            await self._progress.commit([released], [handed_over])
            self._spans.handed_over()
            raise RunLost

    async def _end_if_overdrawn(self) -> None:
        """End the turn before its next model call if a token quota is used up."""
        budget = self._loaded.budget
        if budget is not None and (quota := await self._database(budget.overdrawn)) is not None:
            log.warning("turn_out_of_tokens turn=%s: %s", self._loaded.public_id, quota)
            await self.end("error", "quota_tokens")
            raise RunLost

    def _since_start(self) -> float:
        """Seconds since the turn was accepted."""
        return max(0.0, (timezone.now() - self._loaded.created_at).total_seconds())

    # --- the loop's host: what the model says ---

    async def step_started(self, step: int) -> None:
        await self._hand_over_if_asked()
        await self._end_if_overdrawn()
        self._progress.step = step
        self._calls.begin_step()
        self._progress.send_later(Happening(Kind.STEP_STARTED, {"turn": self._loaded.public_id, "step": step}))
        self.is_unanswered = True

    def _has_output(self) -> None:
        self.is_unanswered = False
        if self._is_first_run:
            self._is_first_run = False
            since = self._since_start()
            metrics.FIRST_OUTPUT.labels(metrics.agent(self._loaded.spec.name)).observe(since)
            self._spans.first_output(since)

    async def part_opened(self, step: int, part_id: str, kind: Literal["text", "thinking"], *, late: bool) -> None:
        self._has_output()
        payload = {"turn": self._loaded.public_id, "step": step, "part": part_id, **({"late": True} if late else {})}
        await self._progress.stream(Happening(Kind.TEXT_OPENED if kind == "text" else Kind.THINKING_OPENED, payload))

    async def delta(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> None:
        await self._progress.stream(self._delta(step, part_id, kind, text, late=late))

    def delta_at_once(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> bool:
        return self._progress.stream_at_once(self._delta(step, part_id, kind, text, late=late))

    def _delta(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> Happening:
        payload = {"turn": self._loaded.public_id, "step": step, "part": part_id, "delta": text}
        if late:
            payload["late"] = True
        return Happening(Kind.TEXT_DELTA if kind == "text" else Kind.THINKING_DELTA, payload, part_id)

    async def call_opened(self, step: int, part_id: str, call_id: str, name: str) -> None:
        self._has_output()
        payload = {"turn": self._loaded.public_id, "step": step, "part": part_id, "call": call_id, "name": name}
        if title := self._plan.titles.get(name):
            payload["title"] = title
        if (client := self._plan.client_tools.get(name)) is not None:
            payload["client"] = client
        await self._progress.stream(Happening(Kind.CALL_OPENED, payload))

    async def call_arguments(self, step: int, call_id: str, text: str) -> None:  # noqa: ARG002 - the interface's
        payload = {"turn": self._loaded.public_id, "call": call_id, "delta": text}
        await self._progress.stream(Happening(Kind.CALL_ARGUMENTS, payload, join=call_id))

    async def free_call_id(self, wanted: str | None) -> str:
        return await self._calls.free_id(wanted)

    async def message_done(self, message: StepMessage, end: EndReason | None = None, error: str = "") -> None:
        self.is_unanswered = False
        now = timezone.now()
        turn, ref = self._loaded.public_id, self._progress.step_ref(message.step)
        content = of_assistant(message.text, message.thinking, message.calls)
        usage = message.usage
        statements: list[Statement] = []
        if content is not None:
            statements += history.message(
                ref,
                "assistant",
                content,
                now,
                origin=Origin.SERVER,
                provider_data=message.provider_data,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
            )
        previews = await self._calls.previews(message.calls)
        statements += [
            history.new_call(ref, call, ordinal, self._plan.tools.idempotent(call.name), now, previews.get(call.call_id, ()))
            for ordinal, call in enumerate(message.calls)
        ]
        self._calls.may_exist = self._calls.may_exist or bool(message.calls)
        self._parts += history.parts_of(message, self._plan.titles)
        tokens = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        metrics.tokens_used(self._loaded.spec.name, *tokens)
        ended = None if end is None else self._ending(end, error)
        statements.append(
            history.turn_after_step(
                self.claimed.turn_id, self.claimed.fence, message.step, self._parts, tokens, None if ended is None else ended[1]
            )
        )
        if spent := usage.input_tokens + usage.output_tokens:
            statements.append(usage_entries.tokens_used(self.claimed.tenant, self.claimed.turn_id, spent))
        statements.append(self._count_usage(usage))
        statements += self._conversation.compacted(now)
        happenings = self._progress.with_unsent(history.text_events(turn, message.step, message.text, message.thinking))
        happenings += [tool_calls.ready(turn, message.step, call, previews.get(call.call_id, ())) for call in message.calls]
        for call in message.calls:
            if call.runner == "client" and call.name in self._plan.forms:
                opened, statement = forms.open_for_call(ref, turn, call, len(self._parts), now)
                happenings.append(opened)
                statements.append(statement)
        total = self._tokens = (self._tokens[0] + tokens[0], self._tokens[1] + tokens[1], self._tokens[2] + tokens[2])
        sums = {"input_tokens": total[0], "output_tokens": total[1], "cache_read_tokens": total[2]}
        happenings.append(Happening(Kind.STEP_DONE, {"turn": turn, "step": message.step, "usage": sums}))
        if content is not None:
            self._conversation.remember(
                Message(
                    "assistant",
                    content,
                    provider_data=message.provider_data,
                    turn=self.claimed.turn_id,
                    step=message.step,
                    position=self._conversation.next_position(),
                )
            )
        if ended is not None:
            await self._commit_end([*happenings, ended[0]], statements)
            return
        await self._progress.commit(happenings, statements)
        await self._hand_over_if_asked()

    def _count_usage(self, usage: Usage) -> Statement:
        loaded, turn = self._loaded, self.claimed.turn_id
        return model_use.one_call(self.claimed.tenant, loaded.session_public_id, turn, loaded.spec, self._plan.full_model, usage)

    # --- the loop's host: calls ---

    async def call_running(self, call: Call) -> None:
        await self._calls.running(call, self._plan.titles.get(call.name) or call.name)

    async def call_finished(self, call: Call, content: Content, *, failed: bool, edits: Sequence[FileEdit] = ()) -> None:
        await self._calls.finished(call, content, failed=failed, edits=edits)

    async def show_terminal(self, call: Call, resource: str, title: str, *, stays: bool, result: CommandResult | None) -> None:
        await self._calls.show_terminal(call, resource, title, stays=stays, result=result)

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:
        return await self._forms.ask(call, form, len(self._parts))

    async def look(self) -> list[Call]:
        self._answered.clear()
        return await self._calls.look()

    async def answered(self) -> None:
        await self._answered.wait()

    # --- the loop's host: between steps, and the end ---

    async def next_step(self) -> Change | None:
        if not self._progress.attention:
            return None
        update = await self._database(turns.read_update, self.claimed)
        if update is None:
            raise RunLost
        self._choices.settings, self._choices.approval = update.settings, update.approval
        self._choices.active_clients = update.active_clients
        if update.has_steering:
            await self._take_steering()
        change = planning.change(self._loaded.spec, self._choices, self._plan)
        self._plan = loop.changed(self._plan, change)
        return change

    async def _take_steering(self) -> None:
        ref = self._progress.step_ref()
        position = self._conversation.next_position()
        images = self._loaded.spec.images
        content = await self._database(turns.take_steering, self.claimed, ref, position, self._loaded.public_id, images)
        if content is not None:
            self._conversation.remember(Message("user", content, turn=self.claimed.turn_id, step=ref.step, position=position))

    async def model_messages(self) -> Sequence[Message]:
        return await self._conversation.for_model(self._plan, self._summary_needed)

    def _summary_needed(self) -> None:
        # Until the model is asked, another worker can do all of this again, and no client notices.
        self.is_unanswered = True

    async def wait(self) -> bool:
        paused = Happening(Kind.RUN_PAUSED, {"turn": self._loaded.public_id, "run": self._loaded.run})
        stored = await self._progress.commit_pause(paused, history.turn_waiting(self.claimed.turn_id, self.claimed.fence))
        if stored:
            self._spans.waiting()
        return stored

    def _ending(self, reason: EndReason, error: str) -> tuple[Happening, history.End]:
        return ending(self._loaded, self._plan, self._progress.step, self._failures.last, reason, error)

    async def end(self, reason: EndReason, error: str = "") -> None:
        happening, how = self._ending(reason, error)
        await self._commit_end([happening], [history.turn_ended(self.claimed.turn_id, self.claimed.fence, how)])
