"""Database calls that a run makes between two steps: what clients have changed, and the steering message."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.messages import Content
from sessions_app.core.base import raw_sql
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.user_messages import UserMessage, content_of, files_of
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import clients, history, session_settings
from sessions_app.core.records.history import StepRef
from sessions_app.core.records.session_settings import Settings
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.turns.closing import lock_run
from sessions_app.core.turns.types import ActiveClient, Claimed
from sessions_app.models import Message, Origin, PendingKind, PendingMessage, Session


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """The settings of a session by now. ``has_steering``: there is a message for the running turn."""

    settings: Settings
    approval: str
    active_clients: list[ActiveClient]
    has_steering: bool


def read_update(claimed: Claimed) -> SessionUpdate | None:
    """The session's settings, active clients and pending steering message; None: the session is deleted."""
    session = Session.objects.filter(pk=claimed.session).first()
    if session is None:
        return None
    active = [ActiveClient(row.client, exact_json.loads(row.tools)) for row in clients.active_ones(session.pk)]
    has_steering = PendingMessage.objects.filter(session=session, kind=PendingKind.STEERING).exists()
    return SessionUpdate(session_settings.settings_of(session), session.approval, active, has_steering)


def take_steering(claimed: Claimed, ref: StepRef, position: int, turn_id: str, images: Collection[str]) -> Content | None:
    """Store the steering message as a user message of the running turn, before its next model call.

    Safe to repeat: if an earlier call committed and its answer was lost, the message that it stored is returned.
    ``position``: the first one behind the messages that this run knows. None: there is no steering message (any more),
    or the turn is no longer this run's; its next write reports that.
    """
    with journal.transaction() as tx:
        locked = lock_run(claimed)
        if locked is None:
            return None
        session, _ = locked
        row = PendingMessage.objects.filter(session=session, kind=PendingKind.STEERING).first()
        stored = Message.objects.filter(turn_id=claimed.turn_id, role="user", position__gte=position).first()
        if stored is not None:
            content: Content = exact_json.loads(stored.content)
            return content
        if row is None:
            return None
        message = UserMessage.of(exact_json.loads(row.message))
        try:
            content = content_of(message, images, files_of(row.files))
        except InvalidInput:
            return None
        with usage_entries.counting_client_bytes(session):
            row.delete()
        raw_sql.execute(history.message(ref, "user", content, timezone.now(), origin=Origin.CLIENT))
        shown = {"content": content, **({} if message.attachments is None else message.document())}
        for happening in (
            Happening(Kind.MESSAGE_NOT_PENDING, {"kind": PendingKind.STEERING.value, "id": row.message_id, "taken": True}),
            Happening(Kind.TURN_STEERED, {"turn": turn_id, "step": ref.step, "id": row.message_id, **shown}),
        ):
            tx.append(NewEvent(claimed.tenant, claimed.session, happening, fence=claimed.fence))
    return content
