"""The end of a run's turn, where the same transaction has to start the next queued message or apply deferred changes.

Other ends are units of the journal's writer. Rows are locked in the order session, turn, others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db.models import Q
from django.db.models.functions import Now

from agents_app import exact_json, registry
from sessions_app.core.base import raw_sql
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.base.user_messages import UserMessage, content_of, files_of
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import options
from sessions_app.core.tenancy import definitions, usage_entries
from sessions_app.core.turns.closing import lock_run
from sessions_app.core.turns.deferred import apply_deferred_models
from sessions_app.core.turns.opening import open_turn_and_calls
from sessions_app.core.turns.starting import FirstMessage, begin_locked
from sessions_app.core.turns.types import Claimed, TurnModel
from sessions_app.models import ApiKey, PendingKind, PendingMessage, Session


def finish(
    claimed: Claimed,
    agent: str,
    happenings: Sequence[Happening],
    statements: Sequence[Statement],
    then: Callable[[], object] = lambda: None,
) -> bool:
    """Write the end of a run's turn, and call ``then``; False if the turn is no longer this run's.

    If the agent ended the turn, the first queued message starts the next one. After an error the queue waits for a client.
    """
    # A queued message starts a turn of this agent.
    definitions.prepare(agent)
    with journal.transaction() as tx:
        locked = lock_run(claimed)
        if locked is None:
            return False
        session, turn = locked
        raw_sql.execute(statements)
        tx.after_commit(then)
        tx.know(session.pk, session)
        for happening in happenings:
            tx.append(NewEvent(claimed.tenant, claimed.session, happening, fence=claimed.fence))
        for happening in apply_deferred_models(turn):
            tx.append(NewEvent(claimed.tenant, claimed.session, happening))
        if happenings[-1].kind is Kind.TURN_ENDED:
            take_first(tx, session)
    return True


def take_first(tx: journal.Transaction, session: Session) -> bool:
    """Start a turn with the first queued message of a locked session without a live turn; False: nothing was started.

    The message stays queued if its agent is gone or no longer accepts it, or its key may not use the agent any more.
    """
    row = PendingMessage.objects.filter(session=session, kind=PendingKind.QUEUED).order_by("position", "pk").first()
    spec = registry.find(session.agent_name)
    if row is None or spec is None or not _may_use(row.api_key_id, session.agent_name):
        return False
    message = UserMessage.of(exact_json.loads(row.message))
    try:
        content = content_of(message, spec.images, files_of(row.files))
    except InvalidInput:
        # The agent has changed and accepts none of the message's parts.
        return False
    # A steering message of the same id goes too: clients take both for the message that starts the turn.
    with usage_entries.counting_client_bytes(session):
        PendingMessage.objects.filter(session=session, message_id=row.message_id).delete()
    taken = {"kind": PendingKind.QUEUED.value, "id": row.message_id, "taken": True}
    tx.append(NewEvent(session.tenant_id, session.pk, Happening(Kind.MESSAGE_NOT_PENDING, taken)))
    model = TurnModel.of(spec, options.shown([session.pk]).get(session.pk, {}), message)
    first = FirstMessage(content, message, queued_id=row.message_id, model=model, client=row.client, trace=row.trace)
    _, calls = open_turn_and_calls(session)
    begin_locked(tx, None, row.api_key_id, session, new_id("turn"), first, definitions.resolve(spec), None, None, calls)
    return True


def _may_use(key: int | None, agent: str) -> bool:
    if key is None:
        return False
    valid = ApiKey.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=Now()), pk=key, revoked_at=None, tenant__suspended_at=None
    )
    row = valid.select_related("tenant").first()
    return row is not None and all(
        allowed is None or agent in allowed for allowed in (row.allowed_agents, row.tenant.allowed_agents)
    )
