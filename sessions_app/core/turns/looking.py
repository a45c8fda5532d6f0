"""Where a turn stands, for whoever joins its stream."""

from __future__ import annotations

from sessions_app.core.log import journal
from sessions_app.models import LIVE_STATES, Session, Turn, TurnState


def reason_of_run(turn_id: int, run: int) -> str | None:
    """Why a run stopped, told from the turn's row when its events are kept no longer; None: it runs."""
    turn = Turn.objects.get(pk=turn_id)
    if turn.run > run or turn.state == TurnState.WAITING:
        return "tool_use"
    return None if turn.state in LIVE_STATES else turn.stop_reason


def position_of_run(session: Session) -> int | None:
    """The number before the ``turn_start`` of the run in progress; None if nothing runs."""
    if not Turn.objects.filter(session=session, state__in=[TurnState.QUEUED, TurnState.RUNNING]).exists():
        return None
    began = journal.latest_run_start(session.pk)
    return None if began is None else began - 1
