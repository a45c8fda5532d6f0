"""One claimed run: drives the agent loop with what was loaded for it, stores what happens.

``Run`` is the loop's host. Every commit point is one unit for the process's journal writer; a unit that
comes back stale means that the turn is no longer ours, and the run stops without a further write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

from django.utils import timezone

from agents_app import exact_json
from agents_app.errors import ProviderError, RunLost
from agents_app.fair.threads import FairPool
from agents_app.mcp import finding, listing
from agents_app.runtime import loop
from agents_app.runtime.content import of_assistant
from agents_app.runtime.interface import Call, Change, EndReason, FormAnswer, StepMessage, Usage
from agents_app.runtime.messages import Content, Message
from agents_app.runtime.unicode import storable
from sessions_app.core import turns
from sessions_app.core.base import log_context
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.prepared import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Unit
from sessions_app.core.records import history
from sessions_app.core.records.history import StepRef
from sessions_app.core.sessions import connections, forms
from sessions_app.core.sessions.entries import activity_of
from sessions_app.core.tenancy import model_use, quotas
from sessions_app.core.turns import Claimed, failures
from sessions_app.core.worker import outage, planning
from sessions_app.core.worker.conversation import Conversation
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.summariser import Condenser
from sessions_app.models import OPEN_CALL_STATES, CallRunner, CallState, Origin, ToolCall, TurnState

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_CALL_ID = 256


class DeadlinePassed(Exception):
    """The run took longer than its client allows."""


def _looked_at(turn_id: int) -> list[ToolCall]:
    """Calls that are open, or answered while this run was busy and not yet in the history."""
    rows = ToolCall.objects.filter(turn_id=turn_id).exclude(state__in=[CallState.DONE, CallState.DENIED], stored=True)
    return list(rows.order_by("step", "ordinal", "pk"))


def _call_id_is_taken(session: int, call_id: str) -> bool:
    return ToolCall.objects.filter(session_id=session, call_id=call_id).exists()


def _ready(turn: str, step: int, call: Call) -> Happening:
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
    return Happening(Kind.CALL_READY, payload)


class Run:
    """One run of one turn; lives in the worker's loop."""

    def __init__(
        self,
        claimed: Claimed,
        loaded: Loaded,
        writer: journal.Writer,
        pool: FairPool,
        on_disk: asyncio.Event | None = None,
        condenser: Condenser | None = None,
    ) -> None:
        self.claimed = claimed
        self._on_disk = on_disk
        self._loaded = loaded
        self._writer = writer
        self._pool = pool
        self._conversation = Conversation(claimed, loaded, condenser)
        self._parts = list(loaded.parts)
        self._step = loaded.step
        self._told = asyncio.Event()
        self._call_ids: set[str] = set()
        self._hand_over = False
        self._unsaid: list[Happening] = []
        """What no reader waits for; it goes with the next that this run says."""
        self.is_silent = False
        """The model was asked and has not said a word: another worker can ask it again and nobody notices."""
        self._may_have_calls = loaded.has_calls
        self._tokens = loaded.tokens
        self._attention = loaded.attention
        """Whether there may be something to look at between two steps."""
        self._running: dict[str, str] = {}
        """The server's tools that are at work, by call, as people know them."""
        self._started: set[str] = set()
        """The calls that are, or were, among them."""
        self._asking: set[asyncio.Event] = set()
        """Of tools that wait for a form: set when a client may have answered."""
        self._opening: dict[str, asyncio.Task[None]] = {}
        """Forms on their way to the disk, by call: who gives one up must wait until it is there."""
        self._with_forms: set[str] = set()
        """The calls that may have forms open."""
        self._decided = planning.Decided(loaded.settings, loaded.approval)
        self._failure: ProviderError | None = None
        """What the provider did wrong, once it did."""
        self._plan = planning.make(loaded, self._decided, pool, claimed.tenant, self._provider_failed)

    async def drive(self) -> None:
        """Run until the turn ends or waits.

        RunLost: it is no longer ours. TimeoutError: it took longer than its agent allows. DeadlinePassed:
        longer than its client allows.
        """
        log_context.bind(session=self._loaded.session_public_id, turn=self._loaded.public_id)
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
        theirs = [tool["name"] for tool in loaded.settings.client_tools]
        looked = await finding.found(loaded.spec, loaded.options, loaded.session_public_id, theirs)
        loaded.spec, loaded.own_tools = looked.spec, looked.own
        self._plan = planning.make(loaded, self._decided, self._pool, self.claimed.tenant, self._provider_failed)

    def tell(self) -> None:
        """A client has answered something."""
        self._told.set()
        for each in self._asking:
            each.set()

    def notice(self) -> None:
        """A client has done something that counts from the next step."""
        self._attention = True

    def hand_over(self) -> None:
        """Give the turn back to the queue at the next commit point: this worker is going away."""
        self._hand_over = True

    def _provider_failed(self, error: ProviderError) -> None:
        log.warning("the provider failed: %s: %s", error.fault, error.detail)
        self._failure = error

    async def _database(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` in a thread of the tenant's share. What it writes has to be safe to repeat."""
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
        )

    async def _commit(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
        await self._is_claimed()
        unit = self._unit(happenings, statements)
        if await self._writer.submit(unit) != "stored":
            raise RunLost
        self._attention = self._attention or unit.attention

    async def _commit_end(self, happenings: Sequence[Happening], statements: Sequence[Statement]) -> None:
        """The turn's end; where something has to follow it at once, both in one transaction."""
        await self._is_claimed()
        try:
            outcome = await self._writer.submit(self._unit(happenings, statements, unless_attention=True))
            if outcome == "stale":
                raise RunLost
            if outcome == "answered":
                agent = self._loaded.spec.name
                if not await self._database(turns.finish, self.claimed, agent, happenings, statements):
                    raise RunLost
        finally:
            # Whoever sweeps in this very moment finds a run without a turn, and stops it: the row tells what became of it.
            self._conversation.is_over(self._plan)

    async def _hand_over_if_asked(self) -> None:
        """Only where no tool of ours is running: whoever goes on could not tell how it ended."""
        if self._hand_over:
            over = history.turn_handed_over(self.claimed.turn_id, self.claimed.fence)
            released = Happening(Kind.RUN_RELEASED, {"turn": self._loaded.public_id, "run": self._loaded.run})
            await self._commit([released], [over])
            raise RunLost

    async def _end_if_overdrawn(self) -> None:
        """A token quota that runs out in the middle of a turn ends it before its next model call."""
        budget = self._loaded.budget
        if budget is not None and (whose := await self._database(budget.overdrawn)) is not None:
            log.warning("turn %s ends before its next model call: %s", self._loaded.public_id, whose)
            await self.end("error", "quota_tokens")
            raise RunLost

    async def _is_claimed(self) -> None:
        """What a crash of the database can still take back is no claim: nothing is stored under its fence before."""
        if self._on_disk is not None:
            await self._on_disk.wait()
            self._on_disk = None

    async def _stream(self, happening: Happening) -> None:
        await self._is_claimed()
        await self._writer.put(self._unit(self._with_unsaid([happening])))

    def _with_unsaid(self, happenings: list[Happening]) -> list[Happening]:
        if self._unsaid:
            happenings = [*self._unsaid, *happenings]
            self._unsaid.clear()
        return happenings

    # --- the host's side of the loop ---

    async def step_started(self, step: int) -> None:
        await self._hand_over_if_asked()
        await self._end_if_overdrawn()
        self._step = step
        self._call_ids.clear()
        # No face shows it, so it is not worth a flush of its own.
        self._unsaid.append(Happening(Kind.STEP_STARTED, {"turn": self._loaded.public_id, "step": step}))
        self.is_silent = True

    async def part_opened(self, step: int, part_id: str, kind: Literal["text", "thinking"], *, late: bool) -> None:
        self.is_silent = False
        payload = {"turn": self._loaded.public_id, "step": step, "part": part_id, **({"late": True} if late else {})}
        await self._stream(Happening(Kind.TEXT_OPENED if kind == "text" else Kind.THINKING_OPENED, payload))

    async def delta(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> None:
        payload = {
            "turn": self._loaded.public_id,
            "step": step,
            "part": part_id,
            "delta": text,
            **({"late": True} if late else {}),
        }
        await self._stream(Happening(Kind.TEXT_DELTA if kind == "text" else Kind.THINKING_DELTA, payload, join=part_id))

    async def call_opened(self, step: int, part_id: str, call_id: str, name: str) -> None:
        self.is_silent = False
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
        usable = bool(clean) and len(clean) <= _LONGEST_CALL_ID and clean not in self._call_ids
        if not usable or await self._database(_call_id_is_taken, self.claimed.session, clean):
            clean = new_id("call")
        self._call_ids.add(clean)
        return clean

    async def message_done(self, message: StepMessage, end: EndReason | None = None, error: str = "") -> None:
        self.is_silent = False
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
        statements += [
            history.new_call(ref, call, ordinal, self._plan.tools.idempotent(call.name), now)
            for ordinal, call in enumerate(message.calls)
        ]
        self._may_have_calls = self._may_have_calls or bool(message.calls)
        self._parts += history.parts_of(message, self._plan.titles)
        tokens = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        over = None if end is None else self._over(end, error)
        statements.append(
            history.turn_after_step(
                self.claimed.turn_id, self.claimed.fence, message.step, self._parts, tokens, None if over is None else over[1]
            )
        )
        if spent := usage.input_tokens + usage.output_tokens:
            statements.append(quotas.spent(self.claimed.tenant, self.claimed.turn_id, spent))
        statements.append(self._counted(usage))
        statements += self._conversation.compacted(now)
        happenings = self._with_unsaid(history.text_events(turn, message.step, message.text, message.thinking))
        happenings += [_ready(turn, message.step, call) for call in message.calls]
        for call in message.calls:
            if call.runner == "client" and call.name in self._plan.forms:
                opened, statement = forms.opened(ref, turn, call, now)
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
        if over is not None:
            await self._commit_end([*happenings, over[0]], statements)
            return
        await self._commit(happenings, statements)
        await self._hand_over_if_asked()

    def _counted(self, usage: Usage) -> Statement:
        loaded, turn = self._loaded, self.claimed.turn_id
        return model_use.counted(self.claimed.tenant, loaded.session_public_id, turn, loaded.spec, self._plan.full_model, usage)

    async def call_running(self, call: Call) -> None:
        self._started.add(call.call_id)
        self._running[call.call_id] = self._plan.titles.get(call.name) or call.name
        happenings = [Happening(Kind.CALL_RUNNING, {"turn": self._loaded.public_id, "call": call.call_id}), self._activity()]
        await self._commit(happenings, [history.call_running(self._step_ref(self._step), call.call_id, timezone.now())])

    async def call_finished(self, call: Call, content: Content, *, failed: bool) -> None:
        now, ref, turn = timezone.now(), self._step_ref(self._step), self._loaded.public_id
        if call.call_id in self._with_forms:
            self._with_forms.discard(call.call_id)
            if (opening := self._opening.pop(call.call_id, None)) is not None:
                await asyncio.wait({opening})
            for closed, closing in await self._database(forms.given_up, self.claimed.turn_id, turn, call.call_id, now):
                await self._commit([closed], [closing])
        ran = self._running.pop(call.call_id, None) is not None
        tool = self._loaded.spec.tool(call.name) if ran else None
        if tool is not None and tool.confirm_result:
            statements = [history.call_in_review(ref, call.call_id, content, now, failed=failed)]
            happening = history.finished_event(turn, call.call_id, content, failed=failed, by="server", shown=True, reviewed=True)
        else:
            statements = [
                history.call_final(ref, call.call_id, CallState.DONE, content, now, failed=failed),
                *history.message(ref, "tool", content, now, origin=Origin.SERVER, tool_call_id=call.call_id),
            ]
            self._remember_result(call.call_id, content)
            happening = history.finished_event(turn, call.call_id, content, failed=failed, by="server", shown=True)
        await self._commit([happening, self._activity()] if ran else [happening], statements)

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:
        if not await self._database(connections.attended, self.claimed.tenant, self.claimed.session):
            return FormAnswer("decline")
        ref, turn = self._step_ref(self._step), self._loaded.public_id
        form_id, opened, statement = forms.asked(ref, turn, call, form, timezone.now())
        news = asyncio.Event()
        self._asking.add(news)
        self._with_forms.add(call.call_id)
        try:
            opening = self._opening[call.call_id] = asyncio.create_task(self._commit([opened], [statement]))
            # Asked for, so that the loop does not report it as never retrieved.
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(opening)
            while True:
                news.clear()
                if (answer := await self._database(forms.answer_of, self.claimed.turn_id, form_id)) is not None:
                    return answer
                # The worker's sweep tells as well, so a lost word costs a second.
                await news.wait()
        finally:
            self._asking.discard(news)

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
        self._told.clear()
        if not self._may_have_calls:
            return []
        rows = await self._database(_looked_at, self.claimed.turn_id)
        for row in rows:
            if row.state not in OPEN_CALL_STATES:
                await self._store_answer(row)
            elif row.state == CallState.RUNNING and row.call_id not in self._started:
                # A dead run's: what it leaves behind is this one's to clear.
                self._started.add(row.call_id)
                self._running[row.call_id] = row.title or row.name
                self._with_forms.add(row.call_id)
        return [
            Call(
                call_id=row.call_id,
                name=row.name,
                arguments=row.arguments,
                runner=row.runner,  # type: ignore[arg-type]  # the column holds the three words alone
                state=row.state,  # type: ignore[arg-type]
                asks=row.runner == CallRunner.SERVER,
            )
            for row in rows
            if row.state in OPEN_CALL_STATES
        ]

    async def _store_answer(self, row: ToolCall) -> None:
        """An answer that came while this run was busy becomes a message now."""
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
        news = await self._database(turns.look, self.claimed)
        if news is None:
            raise RunLost
        self._decided.settings, self._decided.approval, self._decided.visitor = news.settings, news.approval, news.visitor
        if news.steering:
            await self._take_steering()
        change = planning.change(self._loaded.spec, self._decided, self._plan)
        self._plan = loop.changed(self._plan, change)
        return change

    async def _take_steering(self) -> None:
        ref = self._step_ref(self._step)
        position = self._conversation.next_position()
        images = self._loaded.spec.images
        taken = await self._database(turns.take_steering, self.claimed, ref, position, self._loaded.public_id, images)
        if taken is not None:
            self._conversation.remember(Message("user", taken, turn=self.claimed.turn_id, step=self._step, position=position))

    async def model_messages(self) -> Sequence[Message]:
        return await self._conversation.for_model(self._plan, self._waits)

    def _waits(self) -> None:
        # Until the model is asked, another worker can do all of this again and nobody notices.
        self.is_silent = True

    async def told(self) -> None:
        await self._told.wait()

    async def wait(self) -> bool:
        paused = Happening(Kind.RUN_PAUSED, {"turn": self._loaded.public_id, "run": self._loaded.run})
        statement = history.turn_waiting(self.claimed.turn_id, self.claimed.fence)
        await self._is_claimed()
        outcome = await self._writer.submit(self._unit([paused], [statement], unless_answered=True))
        if outcome == "stale":
            raise RunLost
        return outcome == "stored"

    def _over(self, reason: EndReason, error: str) -> tuple[Happening, history.End]:
        payload = {"turn": self._loaded.public_id, "run": self._loaded.run, "in_run": True}
        failure = None
        if self._failure is not None:
            failure = failures.facts(self._failure, self._plan.full_model)
            if error == failures.FAILED:
                error = failures.code_of(self._failure, self._loaded.spec, self._loaded.options)
        if reason == "error":
            happening = Happening(Kind.TURN_FAILED, {**payload, "error": error})
        else:
            happening = Happening(Kind.TURN_ENDED, {**payload, "reason": reason})
        state = TurnState.ERROR if reason == "error" else TurnState.DONE
        return happening, history.End(state, reason, error, failure)

    async def end(self, reason: EndReason, error: str = "") -> None:
        over, how = self._over(reason, error)
        await self._commit_end([over], [history.turn_ended(self.claimed.turn_id, self.claimed.fence, how)])
