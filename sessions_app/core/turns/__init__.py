"""The state machine of a turn: start, answer, claim, take over, stop.

Every change of a turn's state that does not come from its own run happens here, each in one transaction
that ends with the events it caused. The order of locks is session, turn, call, then the journal's.
"""

from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.turns.calls import answer, answering, complete, confirm, confirm_result, fail_calls_of, show_content
from sessions_app.core.turns.closing import lock_live_turn
from sessions_app.core.turns.following import finish, look, take_first, take_steering
from sessions_app.core.turns.looking import position_of_run, reason_of_run
from sessions_app.core.turns.opening import accepted_before
from sessions_app.core.turns.queue import CannotTakeOver, Claims, Ended, NeedsSlot, claim, give_back, take_over
from sessions_app.core.turns.starting import Begun, begin, start
from sessions_app.core.turns.stopping import (
    cancel,
    cancel_turn,
    provider_closed,
    stop,
    stop_live_turn,
    stop_overdue,
    stop_revoked,
    stop_suspended,
    tell_worker,
)
from sessions_app.core.turns.values import (
    Accepted,
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
    Visitor,
)
from sessions_app.core.turns.withdrawing import revoke_key, suspend_tenant

__all__ = [
    "Accepted",
    "Answer",
    "Begun",
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
    "Stop",
    "Stopped",
    "Visitor",
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
    "look",
    "position_of_run",
    "provider_closed",
    "reason_of_run",
    "revoke_key",
    "show_content",
    "start",
    "stop",
    "stop_live_turn",
    "stop_overdue",
    "stop_revoked",
    "stop_suspended",
    "suspend_tenant",
    "take_first",
    "take_over",
    "take_steering",
    "tell_worker",
]
