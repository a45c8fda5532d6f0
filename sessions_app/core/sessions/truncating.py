"""Truncating: sets a session back to the end of an earlier turn. Later turns and messages leave every history."""

from __future__ import annotations

from django.db.models import Max
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.core import turns
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import dispatches, history, seed_turns, summary_queue
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import access, api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import LIVE_STATES, Message, Session, Turn


def end_of(session: Session, turn: str) -> tuple[int, int] | None:
    """The turn row and the last message position of an ended turn; None if there is no such turn.

    A turn of the seed has no row: 0.
    """
    if UNSTORABLE.search(turn):
        return None
    row = Turn.objects.filter(session=session, public_id=turn, cut_at=None).exclude(state__in=LIVE_STATES).first()
    if row is not None:
        # The turn itself may have no messages; those of earlier turns and of the seed are kept.
        upto = Message.objects.filter(session=session, turn_id__lte=row.pk).aggregate(last=Max("position"))["last"]
        seed = Message.objects.filter(session=session, turn=None).aggregate(last=Max("position"))["last"]
        return row.pk, max(upto or 0, seed or 0)
    seeded = seed_turns.find(session, turn)
    return None if seeded is None else (0, seeded.last)


def truncate(caller: Caller, session: Session, turn: str | None, *, dispatched: Dispatched | None) -> None:
    """Cut everything behind this turn; None: cut all turns. A live turn is stopped and cut too.

    If there is no such ended turn, nothing is cut and a live turn continues: that is no error.
    """
    stopped: turns.Stopped | None = None
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        kept = (0, 0) if turn is None else end_of(session, turn)
        if kept is not None:
            # Otherwise its run could end it after the cut, which would take its message but not the turn.
            turns.lock_live_turn(session)
            _cut(session, *kept)
            stopped = turns.stop_live_turn(tx, session, turns.Stop(cause="cut", reason="error"))
            if stopped is not None:
                _cut(session, *kept)
            summary_queue.remove(session)
            kept_text = "all turns" if turn is None else f"what followed turn {turn}"
            api_audit.record(caller, Action.SESSION_TRUNCATED, f"session {session.public_id}", kept_text)
        happening = Happening(Kind.HISTORY_CUT, {"turn": turn, "found": kept is not None})
        tx.append(NewEvent(session.tenant_id, session.pk, dispatches.with_origin(happening, dispatched)))
    turns.tell_worker(stopped)


def _cut(session: Session, row: int, position: int) -> None:
    history.cut(session, row, position, timezone.now())
    newest = Turn.objects.filter(session=session).aggregate(last=Max("pk"))["last"] or 0
    Session.objects.filter(pk=session.pk).update(failures_seen_through=newest, modified_at=Now())
