"""The inbox: pending messages of a session. Queued messages start turns; a steering message goes to the running turn.

The first queued message is taken when the agent ends a turn. After an error or a cancel the queue is paused until a client
starts a turn or changes the inbox, so that nothing spends tokens again on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from django.db.models import Max
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.base import content, traces
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.user_messages import UserMessage, content_of, kept_files
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import clients, dispatches
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import access, agents, definitions, quotas, usage_entries
from sessions_app.models import PendingKind, PendingMessage, Session, Turn, TurnState

__all__ = ["UserMessage", "put", "remove", "reorder"]

LONGEST_ID = 256
MOST_QUEUED = 100

PendingName = Literal["queued", "steering"]


class _Change:
    """A change of a locked session's inbox, with its event."""

    def __init__(self, tx: journal.Transaction, session: Session, dispatched: Dispatched | None) -> None:
        self.session, self._tx, self._dispatched = session, tx, dispatched
        self.live: Turn | None = None

    def append(self, kind: Kind, payload: dict[str, object]) -> None:
        happening = dispatches.with_origin(Happening(kind, payload), self._dispatched)
        self._tx.append(NewEvent(self.session.tenant_id, self.session.pk, happening))


@contextmanager
def _changing(caller: Caller, session: Session, dispatched: Dispatched | None) -> Iterator[_Change]:
    """The transaction of a change. It ends the queue's pause: without a live turn, the first queued message starts one."""
    definitions.prepare(session.agent_name)
    with quotas.check(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        change = _Change(tx, session, dispatched)
        with usage_entries.counting_client_bytes(session) as growth:
            yield change
        asking.admit_bytes(growth.bytes)
        change.live = clients.request_attention(session.pk)
        if change.live is None and PendingMessage.objects.filter(session=session, kind=PendingKind.QUEUED).exists():
            asking.take_turn()
            if turns.take_first(tx, session):
                asking.admit_turn(tx.write)
    live = change.live
    if live is not None and live.state == TurnState.RUNNING and live.worker:
        broadcast.notify_worker(live.worker, {"turn": live.pk, "what": "news"})


def put(
    caller: Caller,
    session: Session,
    kind: PendingName,
    message_id: str,
    message: UserMessage,
    *,
    files: Mapping[str, bytes] | None = None,
    dispatched: Dispatched | None,
) -> None:
    """Add a message, or replace the one with the same id. A steering message replaces any other steering message.

    ``files``: the content of attached files, by URI. They are stored, so the model gets them as they are now.
    """
    if not message_id or len(message_id) > LONGEST_ID or content.unstorable(message_id, ()):
        raise NotPossible(f"a message's id needs 1 to {LONGEST_ID} characters that can be stored")
    with _changing(caller, session, dispatched) as change:
        spec = agents.for_turn(caller, change.session)
        content_of(message, spec.images, files)
        pending = PendingMessage.objects.filter(session=change.session, kind=kind)
        document = exact_json.dumps(message.document())
        if kind == PendingKind.STEERING.value:
            pending.delete()
        elif not pending.filter(message_id=message_id).exists() and pending.count() >= MOST_QUEUED:
            raise NotPossible(f"the session already has {MOST_QUEUED} queued messages, which is the limit")
        kept = kept_files(message, files or {})
        client = None if dispatched is None else dispatched.client
        stored = {"message": document, "files": kept, "api_key_id": caller.key, "client": client}
        stored["trace"] = traces.of_request()
        position = (pending.aggregate(last=Max("position"))["last"] or 0) + 1
        PendingMessage.objects.update_or_create(
            session=change.session,
            kind=kind,
            message_id=message_id,
            defaults=stored,
            create_defaults={
                **stored,
                "tenant_id": change.session.tenant_id,
                "position": position,
                "created_at": timezone.now(),
            },
        )
        change.append(Kind.MESSAGE_PENDING, {"kind": kind, "id": message_id, "message": message.document()})


def remove(caller: Caller, session: Session, kind: PendingName, message_id: str, *, dispatched: Dispatched | None) -> None:
    """Remove a message, so that no model gets it. The session's lock decides between removing and taking it."""
    if content.unstorable(message_id, ()):
        raise NotPossible("no pending message has this id")
    with _changing(caller, session, dispatched) as change:
        gone, _ = PendingMessage.objects.filter(session=change.session, kind=kind, message_id=message_id).delete()
        if not gone:
            raise NotPossible("no pending message has this id")
        change.append(Kind.MESSAGE_NOT_PENDING, {"kind": kind, "id": message_id, "taken": False})


def reorder(caller: Caller, session: Session, order: Sequence[str], *, dispatched: Dispatched | None) -> None:
    """Put the queued messages into this order. Messages that are not named follow in their old order; unknown ids are ignored."""
    with _changing(caller, session, dispatched) as change:
        rows = list(
            PendingMessage.objects.filter(session=change.session, kind=PendingKind.QUEUED)
            .defer("message", "files")
            .order_by("position", "pk")
        )
        by_id = {row.message_id: row for row in rows}
        wanted = [by_id.pop(each) for each in dict.fromkeys(order) if each in by_id]
        reordered = [*wanted, *by_id.values()]
        for position, row in enumerate(reordered, 1):
            row.position = position
        PendingMessage.objects.bulk_update(reordered, ["position"])
        change.append(Kind.MESSAGES_REORDERED, {"order": [row.message_id for row in reordered]})


def is_untouched(session: Session) -> bool:
    """Whether nothing was said in the session yet, and nothing waits to be said."""
    return not (Turn.objects.filter(session=session).exists() or PendingMessage.objects.filter(session=session).exists())
