"""What follows a turn's end in the same transaction, and what a run takes in between its steps.

A run's end is a unit of the journal's writer, unless something has to follow it: then it is written here.
The order of locks is session, turn, then the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json, registry
from agents_app.runtime.messages import Content
from sessions_app.core.base import prepared
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.prepared import Statement
from sessions_app.core.base.user_messages import UserMessage, content_of
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import history, session_settings
from sessions_app.core.records.history import StepRef
from sessions_app.core.records.session_settings import Settings
from sessions_app.core.tenancy import definitions, quotas
from sessions_app.core.turns.deferred import take_deferred
from sessions_app.core.turns.opening import what_is_open
from sessions_app.core.turns.starting import Message, begin_locked
from sessions_app.core.turns.values import Claimed, Visitor
from sessions_app.models import (
    ApiKey,
    Origin,
    PendingKind,
    PendingMessage,
    Session,
    SessionClient,
    Turn,
    TurnState,
)
from sessions_app.models import Message as StoredMessage


def _lock_run(claimed: Claimed) -> tuple[Session, Turn] | None:
    """The session and the turn of a run, locked; None if the turn is no longer this run's."""
    session = Session.objects.select_for_update(no_key=True).filter(pk=claimed.session).first()
    turn = Turn.objects.select_for_update(no_key=True).filter(pk=claimed.turn_id).first()
    if session is None or turn is None or (turn.fence, turn.state) != (claimed.fence, TurnState.RUNNING):
        return None
    return session, turn


def finish(claimed: Claimed, agent: str, happenings: Sequence[Happening], statements: Sequence[Statement]) -> bool:
    """Write a run's end with what follows it; False if the turn is no longer this run's.

    The first queued message is taken if the turn ended of itself. After an error the queue rests.
    """
    # The message that is taken begins a turn.
    definitions.prepare(agent)
    with journal.transaction() as tx:
        locked = _lock_run(claimed)
        if locked is None:
            return False
        session, turn = locked
        prepared.execute(statements)
        for happening in happenings:
            tx.append(NewEvent(claimed.tenant, claimed.session, happening, fence=claimed.fence))
        for happening in take_deferred(turn):
            tx.append(NewEvent(claimed.tenant, claimed.session, happening))
        if happenings[-1].kind is Kind.TURN_ENDED:
            take_first(tx, session)
    return True


def take_first(tx: journal.Transaction, session: Session) -> bool:
    """Begin a turn with the first queued message of a locked session in which nothing lives; whether there was one.

    It rests if its agent is gone, or the key that sent it may not use it any more.
    """
    row = PendingMessage.objects.filter(session=session, kind=PendingKind.QUEUED).order_by("position", "pk").first()
    spec = registry.find(session.agent_name)
    if row is None or spec is None or not _may_ask(row.api_key_id, session.agent_name):
        return False
    said = UserMessage.of(exact_json.loads(row.message))
    try:
        content = content_of(said, spec.images)
    except InvalidInput:
        # The agent has changed, and takes nothing of what it says.
        return False
    # A steering message of the same id goes with it: clients take both for the message that the turn begins with.
    with quotas.counting_guests(session):
        PendingMessage.objects.filter(session=session, message_id=row.message_id).delete()
    gone = {"kind": PendingKind.QUEUED.value, "id": row.message_id, "taken": True}
    tx.append(NewEvent(session.tenant_id, session.pk, Happening(Kind.MESSAGE_NOT_PENDING, gone)))
    message = Message(content, said, queued=row.message_id)
    _, calls = what_is_open(session)
    begin_locked(tx, row.api_key_id, session, new_id("turn"), message, definitions.resolve(spec), None, None, calls)
    return True


def _may_ask(key: int | None, agent: str) -> bool:
    if key is None:
        return False
    valid = ApiKey.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=Now()), pk=key, revoked_at=None, tenant__suspended_at=None
    )
    row = valid.select_related("tenant").first()
    return row is not None and all(
        allowed is None or agent in allowed for allowed in (row.allowed_agents, row.tenant.allowed_agents)
    )


# --- between two steps ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class News:
    """What clients have decided by now. ``steering``: there is a message for the running turn."""

    settings: Settings
    approval: str
    visitor: Visitor | None
    steering: bool


def look(claimed: Claimed) -> News | None:
    """None: the session is gone."""
    session = Session.objects.filter(pk=claimed.session).first()
    if session is None:
        return None
    client = SessionClient.objects.filter(session=session, left_at=None).first()
    visitor = None if client is None else Visitor(client.client, exact_json.loads(client.tools))
    steering = PendingMessage.objects.filter(session=session, kind=PendingKind.STEERING).exists()
    return News(session_settings.settings_of(session), session.approval, visitor, steering)


def take_steering(claimed: Claimed, ref: StepRef, position: int, turn_id: str, images: Collection[str]) -> Content | None:
    """Put the steering message into the running turn, as a user's message before the next model call.

    ``position``: of the next message that this run knows of. If this was called before and its answer was lost, the
    message that was stored then is returned.
    None: there is none any more, or the turn is no longer this run's, which its next write will tell.
    """
    with journal.transaction() as tx:
        locked = _lock_run(claimed)
        if locked is None:
            return None
        row = PendingMessage.objects.filter(session_id=claimed.session, kind=PendingKind.STEERING).first()
        taken = StoredMessage.objects.filter(turn_id=claimed.turn_id, role="user", position__gte=position).first()
        if taken is not None:
            content: Content = exact_json.loads(taken.content)
            return content
        if row is None:
            return None
        said = UserMessage.of(exact_json.loads(row.message))
        try:
            content = content_of(said, images)
        except InvalidInput:
            return None
        with quotas.counting_guests(locked[0]):
            row.delete()
        prepared.execute(history.message(ref, "user", content, timezone.now(), origin=Origin.CLIENT))
        shown = {"content": content, **({} if said.attachments is None else said.document())}
        for happening in (
            Happening(Kind.MESSAGE_NOT_PENDING, {"kind": PendingKind.STEERING.value, "id": row.message_id, "taken": True}),
            Happening(Kind.TURN_STEERED, {"turn": turn_id, "step": ref.step, "id": row.message_id, **shown}),
        ):
            tx.append(NewEvent(claimed.tenant, claimed.session, happening, fence=claimed.fence))
    return content
