"""Locks a session's live turn and open calls, and closes the calls and forms that a turn leaves open at its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from sessions_app.core.base import raw_sql, times
from sessions_app.core.base.events import Happening
from sessions_app.core.records import conversation_facts, history
from sessions_app.core.records.history import StepRef
from sessions_app.core.turns.types import Claimed
from sessions_app.models import (
    LIVE_STATES,
    OPEN_CALL_STATES,
    CallRunner,
    CallState,
    Form,
    Origin,
    Session,
    ToolCall,
    Turn,
    TurnState,
)


def lock_live_turn(session: Session) -> Turn | None:
    turn = Turn.objects.select_for_update(no_key=True).filter(session=session, state__in=LIVE_STATES).first()
    if turn is not None:
        turn.session = session
    return turn


def lock_open_calls(session: Session) -> list[ToolCall]:
    rows = ToolCall.objects.select_for_update(no_key=True).filter(session=session, state__in=OPEN_CALL_STATES)
    return list(rows.order_by("step", "ordinal", "pk"))


def lock_run(claimed: Claimed) -> tuple[Session, Turn] | None:
    """Lock the session and the turn of a run; None if the turn is no longer this run's."""
    session = Session.objects.select_for_update(no_key=True).filter(pk=claimed.session).first()
    turn = Turn.objects.select_for_update(no_key=True).filter(pk=claimed.turn_id).first()
    if session is None or turn is None or (turn.fence, turn.state) != (claimed.fence, TurnState.RUNNING):
        return None
    return session, turn


def void_forms(turn: Turn) -> None:
    """Close the open forms of a turn that has ended."""
    Form.objects.filter(turn_id=turn.pk, response="").update(response="void", closed_at=timezone.now())


def close_calls(
    ref: StepRef, turn: str, calls: Sequence[ToolCall], result: str, result_if_running: str, now: datetime, *, shown: bool
) -> list[Happening]:
    """Give every open call a result, because models refuse a history with calls that have none.

    ``shown``: the closing of a server tool's call is visible in the turn's stream; that of a client's own call never is.
    """
    happenings = []
    for call in calls:
        of_client = call.runner == CallRunner.CLIENT
        text = result_if_running if call.state == CallState.RUNNING else result
        raw_sql.execute(
            [
                history.call_final(ref, call.call_id, CallState.DENIED, text, now, by="server", how="skipped"),
                *history.message(
                    ref, "tool", text, now, origin=Origin.NOTE if of_client else Origin.SERVER, tool_call_id=call.call_id
                ),
            ]
        )
        reason = text.partition(": ")[2]
        shown_to = {} if (kind := conversation_facts.attention_of(call)) is None else {"open": kind}
        happenings.append(
            history.denied_event(turn, call.call_id, reason, text, shown=shown and not of_client, closing=True, **shown_to)
        )
    return happenings


def duration_of(turn: Turn, now: datetime) -> int:
    """By the server's clock, also if a client's clock said when the turn began."""
    return min(times.between(turn.created_at, now), times.LONGEST_MS)


def end_times(turn: Turn, duration_ms: int | None) -> dict[str, Any]:
    """The times in the event of a turn's end."""
    return {"started_at": turn.began or times.text_of(turn.created_at), "duration_ms": duration_ms}
