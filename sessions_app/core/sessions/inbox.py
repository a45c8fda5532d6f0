"""The inbox: users' messages that wait for a session, queued ones for a turn of their own, one for the running turn.

The first queued one is taken when a turn ends of itself. After an error or a cancel the queue rests, until a
client starts a turn, or puts, removes or reorders a message here: nothing starts spending again by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from django.db.models import Max
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.user_messages import UserMessage, content_of
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import clients, dispatches
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import access, agents, definitions, quotas
from sessions_app.models import PendingKind, PendingMessage, Session, Turn, TurnState

__all__ = ["UserMessage", "put", "remove", "reorder"]

LONGEST_ID = 256
MOST_QUEUED = 100

PendingName = Literal["queued", "steering"]


class _Change:
    """A locked session whose inbox is changed, and what is told of it."""

    def __init__(self, tx: journal.Transaction, session: Session, dispatched: Dispatched | None) -> None:
        self.session, self._tx, self._dispatched = session, tx, dispatched
        self.live: Turn | None = None

    def tell(self, kind: Kind, payload: dict[str, object]) -> None:
        happening = dispatches.told(Happening(kind, payload), self._dispatched)
        self._tx.append(NewEvent(self.session.tenant_id, self.session.pk, happening))


@contextmanager
def _changing(caller: Caller, session: Session, dispatched: Dispatched | None) -> Iterator[_Change]:
    """The transaction around a change. With it the queue rests no longer: if nothing lives, its first message is taken."""
    definitions.prepare(session.agent_name)
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.remember(caller, dispatched)
        change = _Change(tx, session, dispatched)
        with quotas.counting_guests(session) as growth:
            yield change
        asking.admit_bytes(growth.bytes)
        change.live = clients.draw_attention(session.pk)
        if change.live is None and PendingMessage.objects.filter(session=session, kind=PendingKind.QUEUED).exists():
            asking.take_turn()
            if turns.take_first(tx, session):
                asking.admit_turn()
    live = change.live
    if live is not None and live.state == TurnState.RUNNING and live.worker:
        broadcast.tell_worker(live.worker, {"turn": live.pk, "what": "news"})


def put(
    caller: Caller, session: Session, kind: PendingName, message_id: str, message: UserMessage, *, dispatched: Dispatched | None
) -> None:
    """A message waits. Under the same id it takes the other's place; a steering message takes any other's."""
    if not message_id or len(message_id) > LONGEST_ID or content.unstorable(message_id, ()):
        raise NotPossible(f"a message's id has 1 to {LONGEST_ID} characters")
    with _changing(caller, session, dispatched) as change:
        spec = agents.for_turn(caller, change.session)
        content_of(message, spec.images)
        there = PendingMessage.objects.filter(session=change.session, kind=kind)
        document = exact_json.dumps(message.document())
        if kind == PendingKind.STEERING.value:
            there.delete()
        elif not there.filter(message_id=message_id).exists() and there.count() >= MOST_QUEUED:
            raise NotPossible(f"{MOST_QUEUED} messages wait already")
        place = (there.aggregate(last=Max("position"))["last"] or 0) + 1
        PendingMessage.objects.update_or_create(
            session=change.session,
            kind=kind,
            message_id=message_id,
            defaults={"message": document, "api_key_id": caller.key},
            create_defaults={
                "tenant_id": change.session.tenant_id,
                "message": document,
                "api_key_id": caller.key,
                "position": place,
                "created_at": timezone.now(),
            },
        )
        change.tell(Kind.MESSAGE_PENDING, {"kind": kind, "id": message_id, "message": message.document()})


def remove(caller: Caller, session: Session, kind: PendingName, message_id: str, *, dispatched: Dispatched | None) -> None:
    """A message waits no longer, and no model gets it. Who takes it and who removes it meet at the session's lock."""
    if content.unstorable(message_id, ()):
        raise NotPossible("no such message is pending")
    with _changing(caller, session, dispatched) as change:
        gone, _ = PendingMessage.objects.filter(session=change.session, kind=kind, message_id=message_id).delete()
        if not gone:
            raise NotPossible("no such message is pending")
        change.tell(Kind.MESSAGE_NOT_PENDING, {"kind": kind, "id": message_id, "taken": False})


def reorder(caller: Caller, session: Session, order: Sequence[str], *, dispatched: Dispatched | None) -> None:
    """The queue in this order; what is not named comes after, as it stood. Unknown ids mean nothing."""
    with _changing(caller, session, dispatched) as change:
        rows = list(PendingMessage.objects.filter(session=change.session, kind=PendingKind.QUEUED).order_by("position", "pk"))
        by_id = {row.message_id: row for row in rows}
        wanted = [by_id.pop(each) for each in dict.fromkeys(order) if each in by_id]
        after = [*wanted, *by_id.values()]
        for place, row in enumerate(after, 1):
            row.position = place
        PendingMessage.objects.bulk_update(after, ["position"])
        change.tell(Kind.MESSAGES_REORDERED, {"order": [row.message_id for row in after]})
