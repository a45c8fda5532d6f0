"""The forms that a run's tools show to the user, and wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from agents_app import tracing
from agents_app.runtime.interface import Call, FormAnswer
from sessions_app.core.sessions import connections, forms
from sessions_app.core.turns import Claimed
from sessions_app.core.worker import outage
from sessions_app.core.worker.progress import Progress


class ToolForms:
    """``turn``: the turn's public id."""

    def __init__(self, claimed: Claimed, turn: str, progress: Progress) -> None:
        self._claimed, self._turn, self._progress = claimed, turn, progress
        self._answered: set[asyncio.Event] = set()
        """One event per tool that waits for a form: set when a client may have answered."""
        self._opening: dict[str, asyncio.Task[None]] = {}
        """Forms that are being stored, by call id: a form can be closed only after that."""
        self._calls: set[str] = set()
        """The ids of calls that may have open forms."""

    def notify_answers(self) -> None:
        """A client may have answered a form."""
        for each in self._answered:
            each.set()

    def may_be_open_for(self, call_id: str) -> None:
        """An earlier run may have opened forms for this call."""
        self._calls.add(call_id)

    async def ask(self, call: Call, form: Mapping[str, Any], part: int) -> FormAnswer:
        """Show a form as this part of the turn; returns its answer."""
        with tracing.span("wait_for_form", attributes={"gen_ai.tool.call.id": call.call_id}) as span:
            answer = await self._ask(call, form, part)
            span.set({"agenthost.form.response": answer.response})
            return answer

    async def _ask(self, call: Call, form: Mapping[str, Any], part: int) -> FormAnswer:
        tenant = self._claimed.tenant
        if not await outage.run_for(tenant, connections.is_attended, tenant, self._claimed.session):
            return FormAnswer("decline")
        ref = self._progress.step_ref()
        form_id, opened, statement = forms.open_for_tool(ref, self._turn, call, form, part, timezone.now())
        answered = asyncio.Event()
        self._answered.add(answered)
        self._calls.add(call.call_id)
        try:
            opening = self._opening[call.call_id] = asyncio.create_task(self._progress.commit([opened], [statement]))
            # The exception is read, so that asyncio does not report it as never retrieved.
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(opening)
            while True:
                answered.clear()
                if (answer := await outage.run_for(tenant, forms.answer_of, self._claimed.turn_id, form_id)) is not None:
                    return answer
                # The worker's sweep sets this too, so a lost notification costs a second.
                await answered.wait()
        finally:
            self._answered.discard(answered)

    async def cancel(self, call_id: str, now: datetime) -> None:
        """Close the forms of a call that has finished."""
        if call_id not in self._calls:
            return
        self._calls.discard(call_id)
        if (opening := self._opening.pop(call_id, None)) is not None:
            await asyncio.wait({opening})
        tenant, turn_id = self._claimed.tenant, self._claimed.turn_id
        for closed, closing in await outage.run_for(tenant, forms.cancel_open, turn_id, self._turn, call_id, now):
            await self._progress.commit([closed], [closing])
