"""The agent loop: model call, tool calls, results, next model call, until the agent is done.

It drives one run of a turn and reports each event to the host, which stores it. When a client has to be
asked, the run ends and a later run continues from the stored state. The loop keeps no state of its own
between runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from agents_app import exact_json, metrics, tracing
from agents_app.compaction import TooLong
from agents_app.errors import ProviderError, ProviderFault, ToolFailed
from agents_app.runtime import opaque, traces
from agents_app.runtime.interface import (
    Access,
    Call,
    Change,
    CommandResult,
    EndReason,
    FileEdit,
    FileState,
    Finish,
    FinishReason,
    Host,
    Limits,
    ModelRequest,
    Opaque,
    Provider,
    ProviderEvent,
    StepMessage,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSet,
    Usage,
)
from agents_app.runtime.messages import Content, Message, ToolSchema
from agents_app.runtime.size_limits import MAX_CALLS, PART_BYTES, MessageSize, SizeLimitReached, SizeLimits
from agents_app.runtime.unicode import Mender, storable, storable_value
from agents_app.tools.caller import current_call, edits, seen

log = logging.getLogger(__name__)

FAILED = "Tool execution failed: "
NO_ROOM = FAILED + "its result is larger than the room that is left in this turn"
TURN_TOO_LARGE = "turn_too_large"
INTERRUPTED = FAILED + "interrupted, it may have run"
BAD_ARGUMENTS = FAILED + "the arguments are not a JSON object"
"""Also used for an object above the limits on members and nesting."""
_ENDS: Mapping[ProviderFault, EndReason] = {"context_too_long": "max_tokens", "declined": "refusal"}
"""Failures of a provider that end the turn without ``error``."""
_MOST_LEVELS, _MOST_MEMBERS = 100, 20_000
"""Limits of a call's arguments: they are parsed in the event loop that all runs share."""
_MOST_TOKENS = 10**12
_PREVIEW_SECONDS, _MOST_PREVIEWS = 3.0, 20
"""Limits of the changes of files that one message's calls show before a client permits them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run needs, resolved from the agent's definition and the session when the run starts.

    ``assemble`` fills the fields up to ``fair_key``; the host adds its own with ``dataclasses.replace``.
    ``model`` is the provider's name of the model, ``full_model`` has the provider in front.
    """

    provider: Provider
    full_model: str
    model: str
    instructions: str
    settings: Mapping[str, Any]
    api_key: str | None = field(repr=False)
    base_url: str | None
    headers: Mapping[str, str] = field(repr=False)
    limits: Limits
    tools: ToolSet
    tool_schemas: Sequence[ToolSchema]
    forms: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = field(default_factory=dict)
    """For each tool that asks the user: a check of its arguments that returns the fault, or None."""
    fair_key: Hashable = None
    """The owner whose share of threads builds long requests."""
    why_free: Callable[[str], str] = lambda _name: ""
    """Why a server tool may run without a client's permission; empty: it asks for one."""
    access: Access | None = None
    """The operator's rules; None: there are none."""
    client_tools: Mapping[str, str | None] = field(default_factory=dict)
    """The tools that clients run, each with its client (None: the application's)."""
    provider_failed: Callable[[ProviderError], None] = lambda _error: None
    """Called with each failure of a provider that ends the turn, for the log."""
    titles: Mapping[str, str] = field(default_factory=dict)
    size_limits: SizeLimits = field(default_factory=SizeLimits)


def changed(plan: Plan, change: Change) -> Plan:
    return replace(plan, tool_schemas=change.tool_schemas, client_tools=change.client_tools, titles=change.titles)


async def run(plan: Plan, host: Host, steps_done: int) -> None:
    """Continue a turn from its last commit point until it ends or waits."""
    with tracing.Sections() as sections:
        await _run(plan, host, steps_done, sections)


async def _run(plan: Plan, host: Host, steps_done: int, sections: tracing.Sections) -> None:
    step = steps_done
    calls: Sequence[Call] = await host.look()
    while True:
        if _open(calls) and not await _settle(plan, host, calls):
            return
        if step >= plan.limits.max_steps:
            await host.end("error", "too_many_steps")
            return
        if plan.size_limits.is_reached:
            await host.end("error", TURN_TOO_LARGE)
            return
        step += 1
        sections.next("step", {"agenthost.step.number": step})
        if (change := await host.next_step()) is not None:
            plan = changed(plan, change)
        try:
            messages = await host.model_messages()
        except TooLong:
            await host.end("max_tokens")
            return
        said = await _Step(plan, host, step).call_model(messages)
        if said is None:
            return
        calls = said


# --- tool calls ----------------------------------------------------------------------------------


async def _settle(plan: Plan, host: Host, calls: Sequence[Call]) -> bool:
    """Run the granted calls, concurrently; one that a client grants meanwhile starts at once.

    True: every call is final. False: the turn waits for clients.
    """
    running: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            for call in calls:
                if call.call_id not in running and (job := _job(plan, host, call)) is not None:
                    running[call.call_id] = asyncio.create_task(job)
            if unfinished := [task for task in running.values() if not task.done()]:
                await _first_of(unfinished, host)
                for task in running.values():
                    if task.done():
                        task.result()
                if any(not task.done() for task in running.values()):
                    calls = await host.look()
                    continue
            calls = await host.look()
            running = {}
            if any(call.state in ("granted", "running") or call.runner == "nobody" for call in _open(calls)):
                continue
            if not _open(calls):
                return True
            if await host.wait():
                return False
            calls = await host.look()
    finally:
        await _stop_all([task for task in running.values() if not task.done()])


def _open(calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if call.state in ("pending", "granted", "running", "review")]


async def _stop_all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tools whose results are not needed any more, and drop their exceptions."""
    for task in tasks:
        task.cancel()
    if tasks:
        # Not by awaiting each task: a cancellation of this run would look like the cancellation of the task.
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def _first_of(tasks: Sequence[asyncio.Task[None]], host: Host) -> None:
    """Wait until a task is done or a client has answered something."""
    answered = asyncio.create_task(host.answered())
    try:
        await asyncio.wait([*tasks, answered], return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Not awaited: a cancellation of this run would look like the cancellation of this task.
        answered.cancel()


def _job(plan: Plan, host: Host, call: Call) -> Any:
    """The next action for a call, if there is one."""
    if call.state == "pending" and call.runner == "nobody":
        return _refuse(plan, host, call)
    if call.state == "granted":
        return _run_tool(plan, host, call)
    if call.state == "running":
        # The run that started it has died.
        return _run_tool(plan, host, call) if plan.tools.idempotent(call.name) else _interrupted(host, call)
    return None


async def _interrupted(host: Host, call: Call) -> None:
    await host.call_finished(call, INTERRUPTED, failed=True)


async def _refuse(plan: Plan, host: Host, call: Call) -> None:
    if call.name in plan.forms and (fault := plan.forms[call.name](exact_json.loads(call.arguments))) is not None:
        await host.call_finished(call, FAILED + fault, failed=True)
        return
    known = plan.tools.has(call.name) or call.name in plan.client_tools
    await host.call_finished(call, BAD_ARGUMENTS if known else f"Tool not found: {call.name}", failed=True)


async def _run_tool(plan: Plan, host: Host, call: Call) -> None:
    if not plan.tools.has(call.name):
        await host.call_finished(call, f"Tool not found: {call.name}", failed=True)
        return
    if _arguments(call.arguments) is None:
        # A client has edited the arguments.
        await host.call_finished(call, BAD_ARGUMENTS, failed=True)
        return
    await host.call_running(call)
    failed = False
    content: Content
    made: list[FileEdit] = []
    # Each call has a task of its own, so this holds for this call only.
    edits.set(made)
    seen.set(call.seen)
    current_call.set(_CurrentCall(host, call))
    try:
        arguments = exact_json.loads_plain(call.arguments.strip() or "{}")
        if plan.access is not None:
            await plan.access.admit(call.name, arguments, permitted=call.permitted)
        with traces.tool_call(call) as span, metrics.tool_call(call.name):
            content = storable_value(await plan.tools.run(call.name, arguments, partial(host.ask, call)))
            tracing.content(span, "gen_ai.tool.call.result", lambda: content)
    except ToolFailed as error:
        content, failed = FAILED + storable(error.reason), True
    size = len(exact_json.dumps(content).encode())
    plan.size_limits.left -= size
    if plan.size_limits.left < 0:
        log.warning("tool_result_dropped bytes=%d limit=AGENTHOST_TURN_BYTES", size)
        content, failed = NO_ROOM, True
    await host.call_finished(call, content, failed=failed, edits=tuple(made))


class _CurrentCall:
    """The call in progress, for its tool (tools.caller.CurrentCall)."""

    def __init__(self, host: Host, call: Call) -> None:
        self._host, self._call = host, call

    @property
    def call_id(self) -> str:
        return self._call.call_id

    async def show_terminal(self, resource: str, title: str, *, stays: bool = False, result: CommandResult | None = None) -> None:
        await self._host.show_terminal(self._call, resource, title, stays=stays, result=result)


def _arguments(text: str) -> dict[str, Any] | None:
    """The arguments as an object; None if the text is not an object or exceeds the limits. Blank text is an empty object."""
    if not text.strip():
        return {}
    if exact_json.excess(text, members=_MOST_MEMBERS, levels=_MOST_LEVELS) is not None:
        return None
    try:
        value = exact_json.loads(text)
    except exact_json.NotJSON:
        return None
    return storable_value(value) if isinstance(value, dict) else None


def _as_written(text: str, arguments: dict[str, Any] | None) -> str:
    """The model's own text if it equals the arguments that run, else these arguments as JSON."""
    if not arguments:
        return text if arguments is not None and text.strip() and storable(text) == text else "{}"
    return text if storable(text) == text and exact_json.loads(text) == arguments else exact_json.dumps(arguments)


def _is_seen(before: FileState | None) -> bool:
    return before is None or before.content is not None


def _digest(state: FileState | None) -> str | None:
    return None if state is None else state.digest


def _counted(usage: Usage) -> Usage:
    """``usage`` with each count clamped, so that the sums of a turn can be stored."""
    return Usage(
        *(min(max(count, 0), _MOST_TOKENS) for count in (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens))
    )


# --- one model call ------------------------------------------------------------------------------


@dataclass(slots=True)
class _OpenCall:
    """A call while its arguments still stream in."""

    call_id: str
    part_id: str
    name: str
    arguments: list[str] = field(default_factory=list)
    mender: Mender = field(default_factory=Mender)


class _Step:
    """One model call and its message."""

    def __init__(self, plan: Plan, host: Host, step: int) -> None:
        self._plan, self._host, self._step = plan, host, step
        self._parts: list[tuple[str, Literal["text", "thinking", "call"], list[str]]] = []
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self._opaque: list[Opaque] = []
        self._usage = Usage()
        self._finish: FinishReason | None = None
        self._size = MessageSize(plan.size_limits)
        self._menders: dict[str, Mender] = {"text": Mender(), "thinking": Mender()}
        self._traced = tracing.NOTHING

    async def call_model(self, messages: Sequence[Message]) -> Sequence[Call] | None:
        """Call the model once; returns the calls of its message, or None if the turn has ended."""
        plan, host = self._plan, self._host
        await host.step_started(self._step)
        request = ModelRequest(
            model=plan.model,
            instructions=plan.instructions,
            messages=messages,
            tools=plan.tool_schemas,
            settings=plan.settings,
            api_key=plan.api_key,
            base_url=plan.base_url,
            headers=plan.headers,
            limits=plan.limits,
            full_model=plan.full_model,
            fair_key=plan.fair_key,
            at_once=self._take_at_once,
        )
        fault: ProviderError | None = None
        limit_reached: SizeLimitReached | None = None
        with traces.model_call(request) as self._traced:
            try:
                async with aclosing(plan.provider.stream(request)) as stream:  # type: ignore[type-var]  # providers are async generators
                    async for batch in stream:
                        for event in batch:
                            await self._take(event)
                if self._finish is None:
                    fault = ProviderError("broken_stream", "the stream ended without a finish reason")
            except ProviderError as error:
                fault = error
            except SizeLimitReached as error:
                limit_reached = error
            finally:
                traces.answer(self._traced, self._usage, self._finish, fault, self._said, self._asked_for)
        if limit_reached is not None:
            await self._cut(limit_reached)
            return None
        await self._take_held()
        if fault is not None:
            plan.provider_failed(fault)
            reason = _ENDS.get(fault.fault, "error")
            await host.message_done(self._message([], broken=True), reason, "provider_failed" if reason == "error" else "")
            return None
        if self._finish in ("max_tokens", "refusal"):
            ended: EndReason = "max_tokens" if self._finish == "max_tokens" else "refusal"
            await host.message_done(self._message([], broken=bool(self._calls)), ended)
            return None
        calls = [await self._call(each) for _, each in sorted(self._calls.items())]
        if not calls:
            await host.message_done(self._message([], broken=False), "end_turn")
            return None
        await self._preview(calls)
        await host.message_done(self._message(calls, broken=False))
        return calls

    async def _preview(self, calls: Sequence[Call]) -> None:
        """Add the changes of files that the calls would make, as far as they are found in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PREVIEW_SECONDS):
                for call in [each for each in calls if each.asks][:_MOST_PREVIEWS]:
                    arguments = exact_json.loads_plain(call.arguments)
                    call.preview = await self._plan.tools.preview(call.name, arguments)
                    call.seen = {edit.path: _digest(edit.before) for edit in call.preview if _is_seen(edit.before)}

    async def _cut(self, limit_reached: SizeLimitReached) -> None:
        """End the turn with the part of the message that was shown."""
        limit = "AGENTHOST_MESSAGE_BYTES" if limit_reached.bound == "message" else "AGENTHOST_TURN_BYTES"
        log.warning("model_message_cut limit=%s", limit)
        message = self._message([], broken=True)
        if limit_reached.bound == "message":
            await self._host.message_done(message, "max_tokens")
        else:
            await self._host.message_done(message, "error", TURN_TOO_LARGE)

    async def _take(self, event: ProviderEvent) -> None:
        match event:
            case TextDelta(text):
                await self._say("text", self._menders["text"].feed(text))
                self._size.check()
            case ThinkingDelta(text):
                await self._say("thinking", self._menders["thinking"].feed(text))
                self._size.check()
            case ToolCallDelta():
                await self._take_call(event)
            case Opaque():
                self._size.take(len(exact_json.dumps(event.data)))
                self._opaque.append(event)
            case Usage():
                self._usage = _counted(event)
            case Finish(reason):
                self._finish = reason

    def _take_at_once(self, events: Sequence[ProviderEvent]) -> bool:
        """Take a list that has one delta, if it continues a part and nothing has to be waited for."""
        event = events[0]
        kind: Literal["text", "thinking"]
        if isinstance(event, TextDelta):
            kind = "text"
        elif isinstance(event, ThinkingDelta):
            kind = "thinking"
        else:
            return False
        if len(events) != 1 or not self._parts:
            return False
        part_id, of_kind, texts = self._parts[-1]
        mender = self._menders[kind]
        if of_kind != kind or not mender.is_whole(event.text) or not self._size.has_room(event.text):
            return False
        late = kind == "thinking" and bool(self._text)
        text = storable(event.text)
        if not self._host.delta_at_once(self._step, part_id, kind, text, late=late):
            return False
        self._size.fit(text)
        texts.append(text)
        if kind == "text":
            self._text.append(text)
        elif not late:
            self._thinking.append(text)
        return True

    async def _take_held(self) -> None:
        with contextlib.suppress(SizeLimitReached):
            await self._say("thinking", self._menders["thinking"].rest())
            await self._say("text", self._menders["text"].rest())

    async def _say(self, kind: Literal["text", "thinking"], text: str) -> None:
        if not text:
            return
        # A history message has its thinking first; thinking that comes after text is stored
        # in the turn's parts only.
        late = kind == "thinking" and bool(self._text)
        opens = not self._parts or self._parts[-1][1] != kind
        if opens:
            self._size.take(PART_BYTES)
        text = self._size.fit(text)
        if not text:
            return
        if opens:
            part_id = f"{self._step}.{len(self._parts)}"
            if not self._parts:
                traces.first_output(self._traced)
            self._parts.append((part_id, kind, []))
            await self._host.part_opened(self._step, part_id, kind, late=late)
        part_id, _, texts = self._parts[-1]
        texts.append(text)
        if kind == "text":
            self._text.append(text)
        elif not late:
            self._thinking.append(text)
        await self._host.delta(self._step, part_id, kind, text, late=late)

    async def _take_call(self, piece: ToolCallDelta) -> None:
        call = self._calls.get(piece.index)
        if call is None:
            if len(self._calls) == MAX_CALLS:
                raise SizeLimitReached("message")
            self._size.take(PART_BYTES + len(piece.name or ""))
            call_id = await self._host.free_call_id(piece.id)
            call = _OpenCall(call_id, f"{self._step}.{len(self._parts)}", storable(piece.name or ""))
            self._calls[piece.index] = call
            if not self._parts:
                traces.first_output(self._traced)
            self._parts.append((call.part_id, "call", [call_id]))
            await self._host.call_opened(self._step, call.part_id, call_id, call.name)
        elif piece.name and not call.name:
            call.name = storable(piece.name)
        if piece.arguments:
            self._size.take(len(piece.arguments.encode("utf-8", "surrogatepass")))
            call.arguments.append(piece.arguments)
            if said := call.mender.feed(piece.arguments):
                await self._host.call_arguments(self._step, call.call_id, said)

    def _said(self) -> str:
        return "".join(self._text)

    def _asked_for(self) -> list[tuple[str, str, str]]:
        """The calls so far: id, name, arguments."""
        return [(each.call_id, each.name, "".join(each.arguments)) for each in self._calls.values()]

    async def _call(self, each: _OpenCall) -> Call:
        plan, raw = self._plan, "".join(each.arguments)
        arguments = _arguments(raw)
        runner: Literal["server", "client", "nobody"] = "nobody"
        if arguments is not None:
            if each.name in plan.forms:
                # The user answers it, so the loop treats it as a client's tool.
                runner = "client" if plan.forms[each.name](arguments) is None else "nobody"
            elif plan.tools.has(each.name):
                runner = "server"
            elif each.name in plan.client_tools:
                runner = "client"
        why = plan.why_free(each.name) if runner == "server" else "not-needed"
        if why and runner == "server" and plan.access is not None and await plan.access.asks(each.name, arguments or {}):
            why = ""
        asks = runner == "server" and not why
        return Call(
            call_id=each.call_id,
            name=each.name,
            arguments=_as_written(raw, arguments),
            runner=runner,
            state="granted" if runner == "server" and not asks else "pending",
            asks=asks,
            part_id=each.part_id,
            why=why,
            title=plan.titles.get(each.name, ""),
            client=plan.client_tools.get(each.name) if runner == "client" else None,
        )

    def _message(self, calls: Sequence[Call], *, broken: bool) -> StepMessage:
        kept = {call.call_id for call in calls}
        parts = [(part_id, kind, "".join(texts)) for part_id, kind, texts in self._parts]
        given_up = {each.call_id: each.name for each in self._calls.values() if each.call_id not in kept}
        return StepMessage(
            step=self._step,
            text="".join(self._text),
            thinking="".join(self._thinking),
            parts=parts,
            calls=calls,
            provider_data=opaque.kept(self._plan.full_model, self._opaque),
            usage=self._usage,
            broken=broken,
            given_up=given_up,
        )
