"""The row of a turn that begins, behind whatever stands in its way."""

from __future__ import annotations

from typing import Any

from sessions_app.core.base import prepared
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import TurnAlreadyRunning
from sessions_app.core.base.events import Happening
from sessions_app.core.base.prepared import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records.idempotency import Earlier
from sessions_app.core.tenancy import access, definitions, quotas
from sessions_app.core.turns.closing import lock_live_turn, lock_open_calls
from sessions_app.core.turns.values import Accepted
from sessions_app.models import Session, ToolCall, Turn, TurnState

Looked = list[tuple[Any, ...]]

_ANYTHING_OPEN = f"""
select exists (select 1 from sessions_app_turn where session_id = %s and state in ('queued', 'running', 'waiting')),
 exists (select 1 from sessions_app_toolcall where session_id = %s
  and state in ('pending', 'granted', 'running', 'review')), {quotas.SESSION_BYTES}
"""


def lock_and_look(caller: Caller, session: Session) -> tuple[Session, Looked]:
    """The session as it is now, locked, whether anything is open in it, and its bytes: one round trip."""
    return access.lock_session_and(caller, session, _question(session))


def _question(session: Session) -> Statement:
    return Statement(_ANYTHING_OPEN, (session.pk, session.pk) + (session.tenant_id, session.pk) * 2)


def admit_into(looked: Looked) -> None:
    """``SessionFull`` if the session has reached its limit."""
    quotas.admit_into(int(looked[0][2]))


def what_is_open(session: Session, looked: Looked | None = None) -> tuple[Turn | None, list[ToolCall]]:
    """A locked session's waiting turn and its calls without a result, locked too.

    TurnAlreadyRunning if its turn does not wait. Most sessions have neither, and one look says so: while
    the session is locked no turn begins, and without a turn no call is made. Of a turn the look may be too old: its run
    does not lock the session, and may have stored calls and paused while the turn's row was waited for.
    """
    if looked is None:
        question = _question(session)
        looked = prepared.rows(question.sql, question.params)
    ((any_turn, any_call, _bytes),) = looked
    live = lock_live_turn(session) if any_turn else None
    if live is not None and live.state != TurnState.WAITING:
        raise TurnAlreadyRunning(session.public_id)
    return live, lock_open_calls(session) if any_call or live is not None else []


_INSERT = """
insert into sessions_app_turn (tenant_id, session_id, api_key_id, public_id, definition_id, format, state, stop_reason, error,
 run, step, parts, fence, worker, takeovers, input_tokens, output_tokens, cache_read_tokens, created_at, queued_at, deadline_at,
 said, attention)
values (%s, %s, %s, %s, %s, %s, 'queued', '', '', 1, 0, '[]', 0, '', 0, 0, 0, 0, {now}, {now}, {moment}, %s,
 exists (select 1 from sessions_app_pendingmessage where session_id = %s)
 or exists (select 1 from sessions_app_sessionclient where session_id = %s))
on conflict do nothing returning id
"""


def insert_turn(
    key: int | None,
    session: Session,
    public_id: str,
    definition: int,
    deadline: float | None,
    said: str | None = None,
) -> int:
    """A queued turn's row. Of two at once for one session the constraint lets one through.

    ``key``: who asked for it. ``deadline``: the seconds after which its run is stopped, by the database's clock
    (A123). ``said``: the user's message as its client wrote it, if the model gets it otherwise.
    """
    stored_as = definitions.format_of(definition)
    values = (
        session.tenant_id,
        session.pk,
        key,
        public_id,
        definition,
        stored_as,
        deadline,
        said,
        session.pk,
        session.pk,
    )
    found = prepared.row(_INSERT, values)
    if found is None:
        raise TurnAlreadyRunning(session.public_id)
    return int(found[0])


def accepted_before(session: Session, earlier: Earlier) -> Accepted:
    """What the same request was answered with the first time (A98)."""
    turn = Turn.objects.get(session=session, public_id=earlier.turn)
    began = journal.run_start(session.pk, earlier.turn, earlier.run)
    return Accepted(turn.pk, turn.public_id, earlier.run, began or 0, repeated=True)


def append_all(tx: journal.Transaction, session: Session, happenings: list[Happening]) -> int:
    """The index in ``tx.stored`` of the first of them."""
    indexes = [tx.append(NewEvent(session.tenant_id, session.pk, happening)) for happening in happenings]
    return indexes[0]
