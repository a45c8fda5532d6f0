"""The position at which a run's stream begins, and the reason why the run stopped."""

from __future__ import annotations

from sessions_app.core.log import journal
from sessions_app.models import LIVE_STATES, Session, Turn, TurnAttempt, TurnState


def stop_reason_of_run(turn_id: int, run: int) -> str | None:
    """Why a run stopped, from its turn's row, for a run whose events are pruned; None: it has not stopped."""
    turn = Turn.objects.get(pk=turn_id)
    if TurnAttempt.objects.filter(turn=turn, run=run).exists():
        return "error"
    if turn.run > run or turn.state == TurnState.WAITING:
        return "tool_use"
    return None if turn.state in LIVE_STATES else turn.stop_reason


def position_before_run(session: Session) -> int | None:
    """The number before the ``turn_start`` of the run in progress; None if no run is in progress."""
    if not Turn.objects.filter(session=session, state__in=[TurnState.QUEUED, TurnState.RUNNING]).exists():
        return None
    start = journal.latest_run_start(session.pk)
    return None if start is None else start - 1
