"""What every end of a turn leaves behind: each open call with a result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils import timezone

from sessions_app.core.base import prepared
from sessions_app.core.base.events import Happening
from sessions_app.core.records import history
from sessions_app.core.records.history import StepRef
from sessions_app.models import LIVE_STATES, OPEN_CALL_STATES, CallRunner, CallState, Form, Origin, Session, ToolCall, Turn


def lock_live_turn(session: Session) -> Turn | None:
    return Turn.objects.select_for_update(no_key=True).filter(session=session, state__in=LIVE_STATES).first()


def lock_open_calls(session: Session) -> list[ToolCall]:
    rows = ToolCall.objects.select_for_update(no_key=True).filter(session=session, state__in=OPEN_CALL_STATES)
    return list(rows.order_by("step", "ordinal", "pk"))


def void_forms(turn: Turn) -> None:
    """The turn is over: whoever was asked is asked no longer."""
    Form.objects.filter(turn_id=turn.pk, response="").update(response="void", closed_at=timezone.now())


def close_calls(
    ref: StepRef, turn: str, calls: Sequence[ToolCall], closing: str, closing_of_running: str, now: datetime, *, shown: bool
) -> list[Happening]:
    """Give every open call a result, so that the history can be sent to a model again.

    Only a server tool's closing is shown in a stream: a client knows about its own calls.
    """
    happenings = []
    for call in calls:
        of_client = call.runner == CallRunner.CLIENT
        text = closing_of_running if call.state == CallState.RUNNING else closing
        prepared.execute(
            [
                history.call_final(ref, call.call_id, CallState.DENIED, text, now, by="server", how="skipped"),
                *history.message(
                    ref, "tool", text, now, origin=Origin.NOTE if of_client else Origin.SERVER, tool_call_id=call.call_id
                ),
            ]
        )
        reason = text.partition(": ")[2]
        happenings.append(history.denied_event(turn, call.call_id, reason, text, shown=shown and not of_client, closing=True))
    return happenings
