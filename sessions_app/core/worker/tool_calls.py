"""The tool calls of one run: they are stored as they start and end, and their answers are read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.interface import Call, CommandResult, FileEdit
from agents_app.runtime.messages import Content, Message
from agents_app.runtime.unicode import storable
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.records import file_edits, history
from sessions_app.core.sessions.entries import activity_of
from sessions_app.core.terminals import disposing as terminals
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage
from sessions_app.core.worker.conversation import Conversation
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.progress import Progress
from sessions_app.core.worker.tool_forms import ToolForms
from sessions_app.models import OPEN_CALL_STATES, CallRunner, CallState, Origin, ToolCall

_LONGEST_CALL_ID = 256


def _unfinished_calls(turn_id: int) -> list[ToolCall]:
    """Calls that are open, or that were answered during this run and whose result is not in the history yet."""
    rows = ToolCall.objects.filter(turn_id=turn_id).exclude(state__in=[CallState.DONE, CallState.DENIED], stored=True)
    return list(rows.order_by("step", "ordinal", "pk"))


def _call_id_is_taken(session: int, call_id: str) -> bool:
    return ToolCall.objects.filter(session_id=session, call_id=call_id).exists()


def ready(turn: str, step: int, call: Call, preview: Sequence[file_edits.Edit]) -> Happening:
    """The event of a call that the model has asked for."""
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


class ToolCalls:
    def __init__(
        self, claimed: Claimed, loaded: Loaded, progress: Progress, conversation: Conversation, tool_forms: ToolForms
    ) -> None:
        self._claimed, self._loaded = claimed, loaded
        self._progress, self._conversation, self._forms = progress, conversation, tool_forms
        self.may_exist = loaded.has_calls
        """Whether the turn may have calls."""
        self._ids: set[str] = set()
        """The ids of the current step's calls."""
        self._given_up = {str(part["call"]) for part in loaded.parts if part["kind"] == "given_up"}
        """The ids of calls that earlier runs of the turn have left unfinished: they have no rows, but clients know them."""
        self._running: dict[str, str] = {}
        """The titles of the server tools that are running, by call id."""
        self._started: set[str] = set()
        """The ids of all calls that were ever in ``_running``."""
        self._terminals: dict[str, _Terminal] = {}
        """The terminals of running calls, by call id."""
        self._recording_edits = asyncio.Lock()

    # --- what the model asks for ---

    def begin_step(self) -> None:
        self._ids.clear()

    async def free_id(self, wanted: str | None) -> str:
        """The model's id, or a new one if the session cannot use that."""
        clean = storable(wanted) if wanted else ""
        usable = bool(clean) and len(clean) <= _LONGEST_CALL_ID and clean not in self._ids | self._given_up
        if not usable or await outage.run_for(self._claimed.tenant, _call_id_is_taken, self._claimed.session, clean):
            clean = new_id("call")
        self._ids.add(clean)
        return clean

    async def previews(self, calls: Sequence[Call]) -> dict[str, list[file_edits.Edit]]:
        """The changes that the calls would make, by call id, with their contents stored."""
        tenant, session = self._claimed.tenant, self._claimed.session
        return {
            call.call_id: await outage.run_for(tenant, file_edits.previewed, session, call.preview)
            for call in calls
            if call.preview
        }

    # --- while tools run ---

    async def running(self, call: Call, title: str) -> None:
        self._started.add(call.call_id)
        self._running[call.call_id] = title
        happenings = [Happening(Kind.CALL_RUNNING, {"turn": self._loaded.public_id, "call": call.call_id}), self._activity()]
        statement = history.call_running(self._progress.step_ref(), call.call_id, timezone.now())
        await self._progress.commit(happenings, [statement])

    async def finished(self, call: Call, content: Content, *, failed: bool, edits: Sequence[FileEdit]) -> None:
        if not edits:
            await self._finish(call, content, failed=failed)
            return
        # One at a time: each list of the session's changed files continues the one before.
        async with self._recording_edits:
            recorded = await outage.run_for(self._claimed.tenant, file_edits.record, self._claimed.session, edits)
            await self._finish(call, content, failed=failed, recorded=recorded)

    async def _finish(self, call: Call, content: Content, *, failed: bool, recorded: file_edits.Recorded | None = None) -> None:
        now, ref, turn = timezone.now(), self._progress.step_ref(), self._loaded.public_id
        await self._forms.cancel(call.call_id, now)
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
            self._remember(call.call_id, content)
        happening = history.finished_event(turn, call.call_id, content, failed=failed, by="server", shown=True, **more)
        happenings = [happening, self._activity()] if ran else [happening]
        if terminal is not None:
            statements.append(history.call_shows(ref, call.call_id, blocks))
        if recorded is not None:
            statements.append(history.call_edits(ref, call.call_id, recorded.edits))
            statements.append(recorded.statement(self._claimed.tenant, self._claimed.session))
            happenings.append(recorded.happening())
        await self._progress.commit(happenings, statements)
        if terminal is not None and not terminal.stays:
            # The result has the output. If this fails, the sweep disposes of it.
            await outage.run_for(self._claimed.tenant, terminals.dispose_of_call, self._claimed.session, call.call_id)

    async def show_terminal(self, call: Call, resource: str, title: str, *, stays: bool, result: CommandResult | None) -> None:
        shown = _Terminal({"type": "terminal", "resource": resource, "title": title}, stays, result)
        before, self._terminals[call.call_id] = self._terminals.get(call.call_id), shown
        if before is None or before.block != shown.block:
            payload = {"turn": self._loaded.public_id, "call": call.call_id, "content": [shown.block]}
            statement = history.call_shows(self._progress.step_ref(), call.call_id, [shown.block])
            await self._progress.commit([Happening(Kind.CALL_CONTENT_CHANGED, payload)], [statement])

    def _activity(self) -> Happening:
        return Happening(Kind.ACTIVITY_CHANGED, {"activity": activity_of(list(self._running.values()))})

    # --- answers ---

    async def look(self) -> list[Call]:
        """Store the answers that came, and return the open calls."""
        if not self.may_exist:
            return []
        rows = await outage.run_for(self._claimed.tenant, _unfinished_calls, self._claimed.turn_id)
        for row in rows:
            if row.state not in OPEN_CALL_STATES:
                await self._store_answer(row)
            elif row.state == CallState.RUNNING and row.call_id not in self._started:
                # It was running in a run that died: this run has to finish it.
                self._started.add(row.call_id)
                self._running[row.call_id] = row.title or row.name
                self._forms.may_be_open_for(row.call_id)
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
        ref = self._progress.step_ref(row.step)
        content = exact_json.loads(row.result or '""')
        origin = Origin.SERVER if row.state == CallState.DENIED or row.started_at is not None else Origin.CLIENT
        self._remember(row.call_id, content)
        await self._progress.commit(
            [Happening(Kind.CALL_STORED, {"turn": self._loaded.public_id, "call": row.call_id})],
            [
                *history.message(ref, "tool", content, timezone.now(), origin=origin, tool_call_id=row.call_id),
                history.call_stored(ref, row.call_id),
            ],
        )

    def _remember(self, call_id: str, content: Content) -> None:
        self._conversation.remember(
            Message(
                "tool",
                content,
                tool_call_id=call_id,
                turn=self._claimed.turn_id,
                step=self._progress.step,
                position=self._conversation.next_position(),
            )
        )
