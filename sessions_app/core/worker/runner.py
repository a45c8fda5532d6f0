"""Executes one claimed run: drives the agent loop, and stores its progress.

``Run`` is the loop's host. Every commit point is one unit for the process's journal writer. If the writer reports a unit as
stale, the turn is no longer this run's, and the run stops without another write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

from django.utils import timezone

from agents_app import exact_json, tracing
from agents_app.errors import ProviderError, RunLost
from agents_app.fair.threads import FairPool
from agents_app.mcp import listing, session_tools
from agents_app.runtime import loop
from agents_app.runtime.content import of_assistant
from agents_app.runtime.interface import Call, Change, CommandResult, EndReason, FileEdit, FormAnswer, StepMessage, Usage
from agents_app.runtime.messages import Content, Message
from agents_app.runtime.unicode import storable
from sessions_app.core import turns
from sessions_app.core.base import log_context, metrics, times, traces
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Outcome, Unit
from sessions_app.core.records import conversation, conversation_facts, file_edits, history
from sessions_app.core.records.history import StepRef
from sessions_app.core.sessions import connections, forms
from sessions_app.core.sessions.entries import activity_of
from sessions_app.core.tenancy import model_use, usage_entries
from sessions_app.core.terminals import disposing as terminals
from sessions_app.core.turns import Claimed, failures
from sessions_app.core.worker import outage, planning
from sessions_app.core.worker.conversation import Conversation
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.summariser import Summariser
from sessions_app.models import OPEN_CALL_STATES, CallRunner, CallState, Origin, ToolCall, TurnState

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_CALL_ID = 256


class DeadlinePassed(Exception):
    """The run exceeded the deadline that its client set."""


def _unfinished_calls(turn_id: int) -> list[ToolCall]:
    """Calls that are open, or that were answered during this run and whose result is not in the history yet."""
    rows = ToolCall.objects.filter(turn_id=turn_id).exclude(state__in=[CallState.DONE, CallState.DENIED], stored=True)
    return list(rows.order_by("step", "ordinal", "pk"))


def _call_id_is_taken(session: int, call_id: str) -> bool:
    return ToolCall.objects.filter(session_id=session, call_id=call_id).exists()


def _call_ready(turn: str, step: int, call: Call, preview: Sequence[file_edits.Edit]) -> Happening:
    payload = {
        "turn": turn,
        "step": step,
        "call": call.call_id,
        "name": call.name,
        "input": exact_json.loads(call.arguments),
        "arguments": call.arguments,
        "runner": call.runner,
        "asks": call.asks,
        "why": call.why,
    }
    if call.title:
        payload["title"] = call.title
    if call.client is not None:
        payload["client"] = call.client
    if preview:
        payload["edits"] = preview
    return Happening(Kind.CALL_READY, payload)


@dataclass(frozen=True, slots=True)
class _Terminal:
    """A terminal as the content of a call. ``stays``: after its end too. ``result``: of its command, once that has ended."""

    block: Mapping[str, Any]
    stays: bool
    result: CommandResult | None = None

    @property
    def blocks_of_result(self) -> list[dict[str, Any]]:
        """What of it is in the call's result."""
        if self.result is None:
            return [dict(self.block)] if self.stays else []
        code = {} if self.result.code is None else {"exitCode": self.result.code}
        shown = {**code, "preview": self.result.preview, "truncated": self.result.truncated}
        return [{**self.block, "result": shown}]


def _committing(happenings: Sequence[Happening]) -> tracing.span:
    """The span of a commit point."""
    kinds = [str(each.kind) for each in happenings] if tracing.is_on() else ()
    return tracing.span("commit", attributes={"agenthost.events": kinds})


class Run:
    """One run of one turn. Used only in the worker's loop."""

    def __init__(
        self,
        claimed: Claimed,
        loaded: Loaded,
        writer: journal.Writer,
        pool: FairPool,
        claim_durable: asyncio.Event | None = None,
        summariser: Summariser | None = None,
    ) -> None:
        self.claimed = claimed
        self._claim_durable = claim_durable
        """Set when the claim is durable; None: it is."""
        self._loaded = loaded
        self._writer = writer
        self._pool = pool
        self._conversation = Conversation(claimed, loaded, summariser)
        self._parts = list(loaded.parts)
        self._step = loaded.step
        self._answered = asyncio.Event()
        """Set when a client may have answered a call."""
        self._call_ids: set[str] = set()
        self._given_up = {str(part["call"]) for part in loaded.parts if part["kind"] == "given_up"}
        """The ids of calls that earlier runs of the turn have left unfinished: they have no rows, but clients know them."""
        self._hand_over = False
        self._unsent: list[Happening] = []
        """Events that no reader waits for; they are sent with the next one."""
        self.is_unanswered = False
        """The model was asked and has not answered yet: another worker can ask it again, and no client notices."""
        self._may_have_calls = loaded.has_calls
        self._is_first_run = loaded.run == 1 and loaded.step == 0
        """Whether the turn has no output of the model yet."""
        self._tokens = loaded.tokens
        self._attention = loaded.attention
        """Whether clients may have changed something that has to be read between two steps."""
        self._running: dict[str, str] = {}
        """The titles of the server tools that are running, by call id."""
        self._started: set[str] = set()
        """The ids of all calls that were ever in ``_running``."""
        self._form_answered: set[asyncio.Event] = set()
        """One event per tool that waits for a form: set when a client may have answered."""
        self._opening: dict[str, asyncio.Task[None]] = {}
        """Forms that are being stored, by call id: a form can be closed only after that."""
        self._with_forms: set[str] = set()
        """The ids of calls that may have open forms."""
        self._choices = planning.ClientChoices(loaded.settings, loaded.approval, starter=loaded.client)
        self._terminals: dict[str, _Terminal] = {}
        """The terminals of running calls, by call id."""
        self._recording_edits = asyncio.Lock()
        self._reading_facts = asyncio.Lock()
        self._span = tracing.NOTHING
        self._failures: list[ProviderError] = []
        """The provider's error, if it failed."""
        self._plan = planning.make(loaded, self._choices, pool, claimed, _recorder(self._failures))

    async def drive(self) -> None:
        """Run until the turn ends or waits.

        RunLost: the turn is no longer this run's. TimeoutError: the run exceeded its agent's limit. DeadlinePassed: it
        exceeded its client's deadline.
        """
        log_context.bind(session=self._loaded.session_public_id, turn=self._loaded.public_id)
        if self._is_first_run:
            metrics.QUEUE_SECONDS.observe(self._since_start())
        trace = traces.context_of(self._loaded.trace)
        if trace is None:
            await self._drive()
            return
        if not self._loaded.takeovers:
            traces.claimed(trace, self._loaded.queued_at)
        lost: RunLost | None = None
        with tracing.span("run", attributes=self._about(), parent=trace) as self._span:
            try:
                await self._drive()
            except RunLost as error:
                # Not a failure: the turn has ended, or goes on elsewhere.
                lost = error
        if lost is not None:
            raise lost

    def _about(self) -> tracing.Attributes:
        loaded = self._loaded
        return {
            **traces.turn_ids(self.claimed.tenant, loaded.session_public_id, loaded.public_id, loaded.run),
            "gen_ai.agent.name": loaded.spec.name,
            "agenthost.run.takeover": loaded.takeovers,
        }

    async def _drive(self) -> None:
        limit, left = self._plan.limits.run, self._loaded.seconds_left
        try:
            async with asyncio.timeout(limit if left is None else max(0.0, min(limit, left))):
                if listing.unlisted(self._loaded.spec):
                    await self._find_tools()
                await loop.run(self._plan, self, self._step)
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
        self._plan = planning.make(loaded, self._choices, self._pool, self.claimed, _recorder(self._failures))

    def notify_answers(self) -> None:
        """A client may have answered a call or a form."""
        self._answered.set()
        for each in self._form_answered:
            each.set()

    def notify_changes(self) -> None:
        """A client has changed something that takes effect at the next step."""
        self._attention = True

    def hand_over(self) -> None:
        """Put the turn back into the queue at the next commit point, because this worker is stopping."""
        self._hand_over = True

    async def _database(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` in a thread of the tenant's share. It is repeated after an outage, so its writes have to be idempotent."""
        return await outage.run_for(self.claimed.tenant, fn, *args, **kwargs)

    # --- storing ---

    def _step_ref(self, step: int) -> StepRef:
        return StepRef(self.claimed.tenant, self.claimed.session, self.claimed.turn_id, self._loaded.run, step)

    def _unit(
        self,
        happenings: Sequence[Happening],
        statements: Sequence[Statement] = (),
        *,
        unless_answered: bool = False,
        unless_attention: bool = False,
    ) -> Unit:
        return Unit(
            tenant=self.claimed.tenant,
            session=self.claimed.session,
            turn=self.claimed.turn_id,
            fence=self.claimed.fence,
            happenings=happenings,
            statements=statements,
            unless_answered=unless_answered,
            unless_attention=unless_attention,
            attention=self._attention,
        )

    async def _commit(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
        with _committing(happenings):
            await self._commit_now(happenings, statements)

    async def _commit_now(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
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
        self._attention = self._attention or unit.attention

    def _reads_facts(self, happenings: Sequence[Happening]) -> bool:
        unsure = self._attention or any(map(conversation.needs_rows, happenings))
        return unsure and any(happening.kind in conversation.STATE_KINDS for happening in happenings)

    async def _following(self, happenings: Sequence[Happening]) -> list[Happening]:
        """The events that follow from these, before their statements have run."""
        if self._reads_facts(happenings):
            return await self._database(conversation_facts.following_in_run, self.claimed.session, happenings)
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

    async def _commit_end(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
        """Store the turn's end; in one transaction with what has to follow it, if anything has to."""
        with _committing(happenings):
            await self._commit_end_now(happenings, statements)

    async def _commit_end_now(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
        await self._await_durable_claim()
        try:
            unit = self._unit([*happenings, *await self._following(happenings)], statements, unless_attention=True)
            report = partial(self._report_end, happenings[-1])

            def written(outcome: asyncio.Future[Outcome]) -> None:
                if not outcome.cancelled() and outcome.exception() is None and outcome.result() == "stored":
                    report()

            # Shielded: a sweep in this moment finds that the turn has ended and stops the run, but the end is reported.
            writing = self._writer.queue(unit)
            writing.add_done_callback(written)
            outcome = await asyncio.shield(writing)
            if outcome == "stale":
                raise RunLost
            agent = self._loaded.spec.name
            if outcome == "answered" and not await self._database(
                turns.finish, self.claimed, agent, happenings, statements, report
            ):
                raise RunLost
        finally:
            # Also if this run was cancelled, as above.
            self._conversation.turn_ended(self._plan)

    def _report_end(self, end: Happening) -> None:
        """Count and trace the end of the turn, which is stored."""
        outcome = "error" if end.kind is Kind.TURN_FAILED else end.payload["reason"]
        metrics.turn_ended(self._loaded.spec.name, outcome, end.payload["duration_ms"])
        if self._loaded.trace is not None:
            self._trace_end(outcome, end.payload.get("error", ""))

    def _trace_end(self, outcome: str, error: str) -> None:
        self._span.set({"agenthost.run.outcome": "ended"})
        about = {
            **self._about(),
            "agenthost.turn.outcome": outcome,
            "gen_ai.usage.input_tokens": self._tokens[0],
            "gen_ai.usage.output_tokens": self._tokens[1],
            "gen_ai.usage.cache_read.input_tokens": self._tokens[2] or None,
        }
        traces.ended(self._loaded.trace, self._loaded.created_at, self._loaded.spec.name, error, about)

    async def _hand_over_if_asked(self) -> None:
        """Call this only while no server tool is running: the next worker could not know how it ended."""
        if self._hand_over:
            handed_over = history.turn_handed_over(self.claimed.turn_id, self.claimed.fence)
            released = Happening(Kind.RUN_RELEASED, {"turn": self._loaded.public_id, "run": self._loaded.run})
            await self._commit([released], [handed_over])
            self._span.set({"agenthost.run.outcome": "handed_over"})
            raise RunLost

    async def _end_if_overdrawn(self) -> None:
        """End the turn before its next model call if a token quota is used up."""
        budget = self._loaded.budget
        if budget is not None and (quota := await self._database(budget.overdrawn)) is not None:
            log.warning("turn_out_of_tokens turn=%s: %s", self._loaded.public_id, quota)
            await self.end("error", "quota_tokens")
            raise RunLost

    async def _await_durable_claim(self) -> None:
        """Nothing may be stored before this: a crash of the database could still undo the claim and its fence."""
        if self._claim_durable is not None:
            await self._claim_durable.wait()
            self._claim_durable = None

    async def _stream(self, happening: Happening) -> None:
        await self._await_durable_claim()
        await self._writer.put(self._unit(self._with_unsent([happening])))

    def _with_unsent(self, happenings: list[Happening]) -> list[Happening]:
        if self._unsent:
            happenings = [*self._unsent, *happenings]
            self._unsent.clear()
        return happenings

    # --- the loop's host ---

    async def step_started(self, step: int) -> None:
        await self._hand_over_if_asked()
        await self._end_if_overdrawn()
        self._step = step
        self._call_ids.clear()
        # No protocol shows this event, so it needs no flush of its own.
        self._unsent.append(Happening(Kind.STEP_STARTED, {"turn": self._loaded.public_id, "step": step}))
        self.is_unanswered = True

    def _since_start(self) -> float:
        """Seconds since the turn was accepted."""
        return max(0.0, (timezone.now() - self._loaded.created_at).total_seconds())

    def _has_output(self) -> None:
        self.is_unanswered = False
        if self._is_first_run:
            self._is_first_run = False
            since = self._since_start()
            metrics.FIRST_OUTPUT.labels(metrics.agent(self._loaded.spec.name)).observe(since)
            self._span.set({"agenthost.turn.first_output_seconds": since})

    async def part_opened(self, step: int, part_id: str, kind: Literal["text", "thinking"], *, late: bool) -> None:
        self._has_output()
        payload = {"turn": self._loaded.public_id, "step": step, "part": part_id, **({"late": True} if late else {})}
        await self._stream(Happening(Kind.TEXT_OPENED if kind == "text" else Kind.THINKING_OPENED, payload))

    async def delta(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> None:
        await self._stream(self._delta(step, part_id, kind, text, late=late))

    def delta_at_once(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> bool:
        if self._claim_durable is not None or self._unsent:
            return False
        return self._writer.put_at_once(self._unit([self._delta(step, part_id, kind, text, late=late)]))

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
        await self._stream(Happening(Kind.CALL_OPENED, payload))

    async def call_arguments(self, step: int, call_id: str, text: str) -> None:  # noqa: ARG002 - the interface's
        payload = {"turn": self._loaded.public_id, "call": call_id, "delta": text}
        await self._stream(Happening(Kind.CALL_ARGUMENTS, payload, join=call_id))

    async def free_call_id(self, wanted: str | None) -> str:
        clean = storable(wanted) if wanted else ""
        usable = bool(clean) and len(clean) <= _LONGEST_CALL_ID and clean not in self._call_ids | self._given_up
        if not usable or await self._database(_call_id_is_taken, self.claimed.session, clean):
            clean = new_id("call")
        self._call_ids.add(clean)
        return clean

    async def message_done(self, message: StepMessage, end: EndReason | None = None, error: str = "") -> None:
        self.is_unanswered = False
        now = timezone.now()
        turn, ref = self._loaded.public_id, self._step_ref(message.step)
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
        previews = await self._previews(message.calls)
        statements += [
            history.new_call(ref, call, ordinal, self._plan.tools.idempotent(call.name), now, previews.get(call.call_id, ()))
            for ordinal, call in enumerate(message.calls)
        ]
        self._may_have_calls = self._may_have_calls or bool(message.calls)
        self._parts += history.parts_of(message, self._plan.titles)
        tokens = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        metrics.tokens_used(self._loaded.spec.name, *tokens)
        ending = None if end is None else self._ending(end, error)
        statements.append(
            history.turn_after_step(
                self.claimed.turn_id, self.claimed.fence, message.step, self._parts, tokens, None if ending is None else ending[1]
            )
        )
        if spent := usage.input_tokens + usage.output_tokens:
            statements.append(usage_entries.tokens_used(self.claimed.tenant, self.claimed.turn_id, spent))
        statements.append(self._count_usage(usage))
        statements += self._conversation.compacted(now)
        happenings = self._with_unsent(history.text_events(turn, message.step, message.text, message.thinking))
        happenings += [_call_ready(turn, message.step, call, previews.get(call.call_id, ())) for call in message.calls]
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
        if ending is not None:
            await self._commit_end([*happenings, ending[0]], statements)
            return
        await self._commit(happenings, statements)
        await self._hand_over_if_asked()

    async def _previews(self, calls: Sequence[Call]) -> dict[str, list[file_edits.Edit]]:
        """The changes that the calls would make, by call id, with their contents stored."""
        shown = [call for call in calls if call.preview]
        return {call.call_id: await self._database(file_edits.previewed, self.claimed.session, call.preview) for call in shown}

    def _count_usage(self, usage: Usage) -> Statement:
        loaded, turn = self._loaded, self.claimed.turn_id
        return model_use.one_call(self.claimed.tenant, loaded.session_public_id, turn, loaded.spec, self._plan.full_model, usage)

    async def call_running(self, call: Call) -> None:
        self._started.add(call.call_id)
        self._running[call.call_id] = self._plan.titles.get(call.name) or call.name
        happenings = [Happening(Kind.CALL_RUNNING, {"turn": self._loaded.public_id, "call": call.call_id}), self._activity()]
        await self._commit(happenings, [history.call_running(self._step_ref(self._step), call.call_id, timezone.now())])

    async def call_finished(self, call: Call, content: Content, *, failed: bool, edits: Sequence[FileEdit] = ()) -> None:
        if not edits:
            await self._finish_call(call, content, failed=failed)
            return
        # One at a time: each list of the session's changed files continues the one before.
        async with self._recording_edits:
            recorded = await self._database(file_edits.record, self.claimed.session, edits)
            await self._finish_call(call, content, failed=failed, recorded=recorded)

    async def _finish_call(
        self, call: Call, content: Content, *, failed: bool, recorded: file_edits.Recorded | None = None
    ) -> None:
        now, ref, turn = timezone.now(), self._step_ref(self._step), self._loaded.public_id
        if call.call_id in self._with_forms:
            self._with_forms.discard(call.call_id)
            if (opening := self._opening.pop(call.call_id, None)) is not None:
                await asyncio.wait({opening})
            for closed, closing in await self._database(forms.cancel_open, self.claimed.turn_id, turn, call.call_id, now):
                await self._commit([closed], [closing])
        ran = self._running.pop(call.call_id, None) is not None
        tool = self._loaded.spec.tool(call.name) if ran else None
        more: dict[str, Any] = {} if recorded is None else {"edits": recorded.edits}
        terminal = self._terminals.pop(call.call_id, None)
        blocks = [] if terminal is None else terminal.blocks_of_result
        if blocks:
            more["terminals"] = blocks
        if tool is not None and tool.confirm_result:
            statements = [history.call_in_review(ref, call.call_id, content, now, failed=failed)]
            more["reviewed"] = True
        else:
            statements = [
                history.call_final(ref, call.call_id, CallState.DONE, content, now, failed=failed),
                *history.message(ref, "tool", content, now, origin=Origin.SERVER, tool_call_id=call.call_id),
            ]
            self._remember_result(call.call_id, content)
        happening = history.finished_event(turn, call.call_id, content, failed=failed, by="server", shown=True, **more)
        happenings = [happening, self._activity()] if ran else [happening]
        if terminal is not None:
            statements.append(history.call_shows(ref, call.call_id, blocks))
        if recorded is not None:
            statements.append(history.call_edits(ref, call.call_id, recorded.edits))
            statements.append(recorded.statement(self.claimed.tenant, self.claimed.session))
            happenings.append(recorded.happening())
        await self._commit(happenings, statements)
        if terminal is not None and not terminal.stays:
            # The result has the output. If this fails, the sweep disposes of it.
            await self._database(terminals.dispose_of_call, self.claimed.session, call.call_id)

    async def show_terminal(self, call: Call, resource: str, title: str, *, stays: bool, result: CommandResult | None) -> None:
        shown = _Terminal({"type": "terminal", "resource": resource, "title": title}, stays, result)
        before, self._terminals[call.call_id] = self._terminals.get(call.call_id), shown
        if before is None or before.block != shown.block:
            payload = {"turn": self._loaded.public_id, "call": call.call_id, "content": [shown.block]}
            statement = history.call_shows(self._step_ref(self._step), call.call_id, [shown.block])
            await self._commit([Happening(Kind.CALL_CONTENT_CHANGED, payload)], [statement])

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:
        with tracing.span("wait_for_form", attributes={"gen_ai.tool.call.id": call.call_id}) as span:
            answer = await self._ask(call, form)
            span.set({"agenthost.form.response": answer.response})
            return answer

    async def _ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:
        if not await self._database(connections.is_attended, self.claimed.tenant, self.claimed.session):
            return FormAnswer("decline")
        ref, turn = self._step_ref(self._step), self._loaded.public_id
        form_id, opened, statement = forms.open_for_tool(ref, turn, call, form, len(self._parts), timezone.now())
        answered = asyncio.Event()
        self._form_answered.add(answered)
        self._with_forms.add(call.call_id)
        try:
            opening = self._opening[call.call_id] = asyncio.create_task(self._commit([opened], [statement]))
            # The exception is read, so that asyncio does not report it as never retrieved.
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(opening)
            while True:
                answered.clear()
                if (answer := await self._database(forms.answer_of, self.claimed.turn_id, form_id)) is not None:
                    return answer
                # The worker's sweep sets this too, so a lost notification costs a second.
                await answered.wait()
        finally:
            self._form_answered.discard(answered)

    def _activity(self) -> Happening:
        return Happening(Kind.ACTIVITY_CHANGED, {"activity": activity_of(list(self._running.values()))})

    def _remember_result(self, call_id: str, content: Content) -> None:
        self._conversation.remember(
            Message(
                "tool",
                content,
                tool_call_id=call_id,
                turn=self.claimed.turn_id,
                step=self._step,
                position=self._conversation.next_position(),
            )
        )

    async def look(self) -> list[Call]:
        self._answered.clear()
        if not self._may_have_calls:
            return []
        rows = await self._database(_unfinished_calls, self.claimed.turn_id)
        for row in rows:
            if row.state not in OPEN_CALL_STATES:
                await self._store_answer(row)
            elif row.state == CallState.RUNNING and row.call_id not in self._started:
                # It was running in a run that died: this run has to finish it.
                self._started.add(row.call_id)
                self._running[row.call_id] = row.title or row.name
                self._with_forms.add(row.call_id)
        return [
            Call(
                call_id=row.call_id,
                name=row.name,
                arguments=row.arguments,
                runner=row.runner,  # type: ignore[arg-type]  # the column has only these three values
                state=row.state,  # type: ignore[arg-type]
                asks=row.runner == CallRunner.SERVER,
                permitted=row.decided_by not in ("", history.BY_SETTING),
                seen={} if row.preview is None else file_edits.seen_in(exact_json.loads(row.preview)),
            )
            for row in rows
            if row.state in OPEN_CALL_STATES
        ]

    async def _store_answer(self, row: ToolCall) -> None:
        """Write the message of an answer that came while this run was busy."""
        ref = self._step_ref(row.step)
        content = exact_json.loads(row.result or '""')
        origin = Origin.SERVER if row.state == CallState.DENIED or row.started_at is not None else Origin.CLIENT
        self._remember_result(row.call_id, content)
        await self._commit(
            [Happening(Kind.CALL_STORED, {"turn": self._loaded.public_id, "call": row.call_id})],
            [
                *history.message(ref, "tool", content, timezone.now(), origin=origin, tool_call_id=row.call_id),
                history.call_stored(ref, row.call_id),
            ],
        )

    async def next_step(self) -> Change | None:
        if not self._attention:
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
        ref = self._step_ref(self._step)
        position = self._conversation.next_position()
        images = self._loaded.spec.images
        content = await self._database(turns.take_steering, self.claimed, ref, position, self._loaded.public_id, images)
        if content is not None:
            self._conversation.remember(Message("user", content, turn=self.claimed.turn_id, step=self._step, position=position))

    async def model_messages(self) -> Sequence[Message]:
        return await self._conversation.for_model(self._plan, self._summary_needed)

    def _summary_needed(self) -> None:
        # Until the model is asked, another worker can do all of this again, and no client notices.
        self.is_unanswered = True

    async def answered(self) -> None:
        await self._answered.wait()

    async def wait(self) -> bool:
        paused = Happening(Kind.RUN_PAUSED, {"turn": self._loaded.public_id, "run": self._loaded.run})
        statement = history.turn_waiting(self.claimed.turn_id, self.claimed.fence)
        await self._await_durable_claim()
        outcome = await self._writer.submit(self._unit([paused], [statement], unless_answered=True))
        if outcome == "stale":
            raise RunLost
        if outcome == "stored":
            self._span.set({"agenthost.run.outcome": "waiting"})
        return outcome == "stored"

    def _ending(self, reason: EndReason, error: str) -> tuple[Happening, history.End]:
        lasted = min(times.between(self._loaded.created_at, timezone.now()), times.LONGEST_MS)
        began = self._loaded.began or times.text_of(self._loaded.created_at)
        payload = {
            "turn": self._loaded.public_id,
            "run": self._loaded.run,
            "in_run": True,
            "started_at": began,
            "duration_ms": lasted,
        }
        failure = None
        if self._failures:
            failure = failures.facts(self._failures[-1], self._plan.full_model)
            if error == failures.FAILED:
                error = failures.code_of(self._failures[-1], self._loaded.spec, self._loaded.options)
        resumable = reason == "error" and self._is_resumable(error)
        if reason == "error":
            happening = Happening(Kind.TURN_FAILED, {**payload, "error": error, "resumable": resumable})
        else:
            happening = Happening(Kind.TURN_ENDED, {**payload, "reason": reason})
        state = TurnState.ERROR if reason == "error" else TurnState.DONE
        return happening, history.End(state, reason, error, failure, lasted, resumable)

    def _is_resumable(self, error: str) -> bool:
        provider = self._failures[-1] if self._failures else None
        return failures.may_pass(error, provider) and failures.has_room(
            self._step, self._plan.limits.max_steps, self._loaded.attempt
        )

    async def end(self, reason: EndReason, error: str = "") -> None:
        happening, how = self._ending(reason, error)
        await self._commit_end([happening], [history.turn_ended(self.claimed.turn_id, self.claimed.fence, how)])


def _recorder(found: list[ProviderError]) -> Callable[[ProviderError], None]:
    """Logs a provider's failures and collects them.

    No method of the run, which the plan would refer to: with such a circle, a run that has ended, its messages included, stays
    in memory until the garbage collector looks.
    """

    def failed(error: ProviderError) -> None:
        log.warning("provider_failed fault=%s: %s", error.fault, error.detail)
        found.append(error)

    return failed
