"""Starting a turn with a user's message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from agents_app.runtime.messages import Content
from sessions_app.core import access, agents, history, idempotency, journal, prepared, quotas, session_settings, tasks
from sessions_app.core.caller import Caller
from sessions_app.core.events import Happening, Kind
from sessions_app.core.history import Place
from sessions_app.core.idempotency import Once
from sessions_app.core.identifiers import new_id
from sessions_app.core.journal.types import NewEvent
from sessions_app.core.session_settings import Overrides
from sessions_app.core.turns.closing import close_calls
from sessions_app.core.turns.opening import accepted_before, append_all, insert_turn, what_is_open
from sessions_app.core.turns.values import Accepted
from sessions_app.models import Origin, Session, ToolCall, Turn, TurnState


def start(
    caller: Caller,
    session: Session,
    *,
    content: Content,
    overrides: Overrides,
    once: Once | None = None,
    deadline: float | None = None,
) -> Accepted:
    """Begin a turn with a user message. ``deadline``: the seconds after which its run is stopped.

    A turn that waits for its client ends: who writes something new has given up on it. Its open calls
    are closed first, because a model's API refuses a call without a result.
    """
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        if (earlier := idempotency.recall(caller, once)) is not None:
            return accepted_before(session, earlier)
        asking.take_turn()
        spec = agents.for_turn(caller, session)
        live, calls = what_is_open(session)
        definition = session_settings.apply_overrides(session, spec, overrides)
        turn_id = new_id("turn")
        idempotency.remember(caller, once, session=session.public_id, turn=turn_id, run=1)
        begun = _begin(tx, caller, session, turn_id, content, definition, deadline, live, calls)
        asking.admit_turn()
    return begun.accepted(tx, asking.standings)


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn in its transaction; ``first`` is the place of its first event among the transaction's."""

    turn: int
    public_id: str
    first: int

    def accepted(self, tx: journal.Transaction, standings: tuple[quotas.Standing, ...]) -> Accepted:
        """Once the transaction is over."""
        return Accepted(self.turn, self.public_id, 1, tx.stored[self.first].seq, standings=standings)


def begin(
    tx: journal.Transaction,
    caller: Caller,
    session: Session,
    turn_id: str,
    *,
    content: Content,
    definition: int,
    deadline: float | None,
) -> Begun:
    """A turn with a user message, inside the transaction that has made its session; a seed's open calls are closed."""
    live, calls = what_is_open(session)
    return _begin(tx, caller, session, turn_id, content, definition, deadline, live, calls)


def _begin(
    tx: journal.Transaction,
    caller: Caller,
    session: Session,
    turn_id: str,
    content: Content,
    definition: int,
    deadline: float | None,
    live: Turn | None,
    calls: Sequence[ToolCall],
) -> Begun:
    now = timezone.now()
    if live is not None:
        _end_waiting(tx, live, now)
    turn = insert_turn(caller, session, turn_id, definition, now, deadline)
    place = Place(session.tenant_id, session.pk, turn, run=1, step=0)
    ended = turn_id if live is None else live.public_id
    happenings = [
        Happening(Kind.TURN_STARTED, {"turn": turn_id, "run": 1, "message": {"content": content}}),
        *close_calls(place, ended, calls, history.REPLACED, history.REPLACED, now, shown=True),
    ]
    message = history.message(place, "user", content, now, origin=Origin.CLIENT)
    prepared.execute([session_settings.touched(session, now), *message])
    first = append_all(tx, session, happenings)
    tx.after_commit(tasks.wake)
    return Begun(turn, turn_id, first)


def _end_waiting(tx: journal.Transaction, turn: Turn, now: datetime) -> None:
    Turn.objects.filter(pk=turn.pk).update(state=TurnState.CANCELLED, stop_reason="end_turn", ended_at=now)
    payload = {"turn": turn.public_id, "run": turn.run, "reason": "end_turn", "cause": "replaced", "in_run": False}
    tx.append(NewEvent(turn.tenant_id, turn.session_id, Happening(Kind.TURN_CANCELLED, payload)))
