"""The state machine of a turn: start, answer, claim, take over, stop.

Every change of a turn's state from outside its run is here, each in one transaction that appends its events last. Rows are
locked in the order session, turn, call, then the journal's.
"""

from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.turns.between_steps import SessionUpdate, read_update, take_steering
from sessions_app.core.turns.calls import (
    answer,
    answering,
    complete,
    confirm,
    confirm_result,
    fail_calls_of,
    show_content,
    tell_worker_of_answer,
)
from sessions_app.core.turns.closing import lock_live_turn
from sessions_app.core.turns.finishing import finish, take_first
from sessions_app.core.turns.opening import accepted_before
from sessions_app.core.turns.queue import CannotTakeOver, Claims, Ended, NeedsSlot, claim, give_back, take_over
from sessions_app.core.turns.reopening import reopen
from sessions_app.core.turns.revoking import revoke_key, revoke_key_for, suspend_tenant
from sessions_app.core.turns.run_status import position_before_run, stop_reason_of_run
from sessions_app.core.turns.starting import StartedTurn, begin, start
from sessions_app.core.turns.stopping import (
    cancel,
    cancel_turn,
    provider_closed,
    stop,
    stop_by_operator,
    stop_live_turn,
    stop_overdue,
    stop_revoked,
    stop_suspended,
    tell_worker,
)
from sessions_app.core.turns.types import (
    Accepted,
    ActiveClient,
    Answer,
    CancelReceipt,
    Claimed,
    ClientResult,
    Decision,
    FormEnd,
    Outcome,
    Permission,
    Stop,
    Stopped,
    TurnModel,
)

__all__ = [
    "Accepted",
    "ActiveClient",
    "Answer",
    "CancelReceipt",
    "CannotTakeOver",
    "Claimed",
    "Claims",
    "ClientResult",
    "Decision",
    "Ended",
    "FormEnd",
    "NeedsSlot",
    "Outcome",
    "Overrides",
    "Permission",
    "SessionUpdate",
    "StartedTurn",
    "Stop",
    "Stopped",
    "TurnModel",
    "accepted_before",
    "answer",
    "answering",
    "begin",
    "cancel",
    "cancel_turn",
    "claim",
    "complete",
    "confirm",
    "confirm_result",
    "fail_calls_of",
    "finish",
    "give_back",
    "lock_live_turn",
    "position_before_run",
    "provider_closed",
    "read_update",
    "reopen",
    "revoke_key",
    "revoke_key_for",
    "show_content",
    "start",
    "stop",
    "stop_by_operator",
    "stop_live_turn",
    "stop_overdue",
    "stop_reason_of_run",
    "stop_revoked",
    "stop_suspended",
    "suspend_tenant",
    "take_first",
    "take_over",
    "take_steering",
    "tell_worker",
    "tell_worker_of_answer",
]
