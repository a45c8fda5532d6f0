"""Reopening a failed turn: it goes on from its last finished step, with the same id, as a further attempt.

Finished messages, calls and results stay. What the failed attempt left unfinished stays visible, but its model gets it no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db.models import Exists
from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json, tracing
from sessions_app.core.base import raw_sql, traces
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotPossible, TurnAlreadyRunning
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import conversation_facts, dispatches, history, session_settings
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.tenancy import access, agents, definitions, quotas, usage_entries
from sessions_app.core.turns import stopping, tasks
from sessions_app.core.turns.closing import lock_live_turn
from sessions_app.core.turns.types import Accepted
from sessions_app.models import (
    DEFAULT_QUEUE,
    NAMED_QUEUE_FORMAT,
    REOPENED_FORMAT,
    PendingMessage,
    Session,
    SessionClient,
    Turn,
    TurnAttempt,
    TurnState,
)


def reopen(caller: Caller, session: Session, turn: str, *, dispatched: Dispatched | None = None) -> Accepted:
    """Queue the session's latest turn again, which failed in a way that may pass; NotPossible for every other turn.

    It is admitted like a turn that starts, and its next run counts for the caller's key. The agent's definition, the options
    and the tools are those of now.
    """
    definitions.prepare(session.agent_name)
    began = tracing.now()
    with quotas.check(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        row = _lock_resumable(session, turn)
        usage_entries.check_session_size(usage_entries.bytes_of_session(session))
        asking.take_turn()
        spec = agents.for_turn(caller, session)
        if row.model_named and row.model not in agents.models(spec):
            raise NotPossible("the agent does not have the model of this turn's message any more")
        definition = definitions.resolve(spec)
        tx.know(session.pk, session)
        # Nothing of an earlier run can be stored any more, however late it comes.
        fence = journal.tail(session.pk).fence + 1
        happenings = _queue_again(caller, session, row, definition, fence, dispatched)
        asking.admit_turn()
        if row.trace is not None:
            tx.after_commit(partial(traces.accepted, row.trace, began, row.run, row.queue))
        first, *_ = [tx.append(NewEvent(session.tenant_id, session.pk, each, fence=fence)) for each in happenings]
        tx.after_commit(partial(tasks.wake, row.queue))
    return Accepted(row.pk, row.public_id, row.run, tx.stored[first].seq, standings=asking.rate_statuses)


def _lock_resumable(session: Session, turn: str) -> Turn:
    if lock_live_turn(session) is not None:
        raise TurnAlreadyRunning(session.public_id)
    row = Turn.objects.select_for_update(no_key=True).filter(session=session, cut_at=None).order_by("-pk").first()
    if row is None or row.public_id != turn:
        raise NotPossible("only the latest turn of a session can be resumed")
    if row.state != TurnState.ERROR or not row.resumable:
        raise NotPossible("this turn did not end with an error after which it could be resumed")
    return row


def _queue_again(
    caller: Caller, session: Session, row: Turn, definition: int, fence: int, dispatched: Dispatched | None
) -> list[Happening]:
    now, parts = timezone.now(), exact_json.loads(row.parts)
    TurnAttempt.objects.create(
        tenant_id=row.tenant_id,
        session_id=row.session_id,
        turn=row,
        number=row.attempt,
        place=len(parts),
        run=row.run,
        key_id=row.api_key_id or 0,
        error=row.error,
        failure=row.failure,
        ended_at=row.ended_at or now,
    )
    history.supersede_unfinished(row, now)
    closed = _close_step(row, parts)
    row.run, row.attempt = row.run + 1, row.attempt + 1
    # The span of the failed attempt has ended, so this one gets its own.
    row.trace = traces.of_new_turn()
    _update(caller, session, row, definition, fence)
    _show_again(session, row)
    reopened = Happening(Kind.TURN_REOPENED, {"turn": row.public_id, "attempt": row.attempt})
    resumed = Happening(Kind.TURN_RESUMED, {"turn": row.public_id, "run": row.run})
    return [dispatches.with_origin(reopened, dispatched), resumed, *closed]


def _close_step(row: Turn, parts: list[Mapping[str, Any]]) -> list[Happening]:
    """The event that ends a step at which the turn was stopped from outside, if it has none."""
    open_step, numbers = stopping.open_step(row), [int(part["id"].partition(".")[0]) for part in parts]
    step = max([row.step, *numbers])
    if step == row.step and not open_step:
        return []
    row.step = step
    return [stopping.step_done(row, step)]


def _update(caller: Caller, session: Session, row: Turn, definition: int, fence: int) -> None:
    """What lists show as the time of the chat stays that of the last end of a turn, until this one ends again."""
    newest = Turn.objects.filter(session=row.session_id).exclude(chat_modified="").order_by("-pk").first()
    shown = conversation_facts.chat_modified(session, newest)
    Turn.objects.filter(session=row.session_id, pk__gt=row.pk).update(chat_modified="")
    pending = PendingMessage.objects.filter(session=row.session_id)
    clients = SessionClient.objects.filter(session=row.session_id)
    Turn.objects.filter(pk=row.pk).update(
        state=TurnState.QUEUED,
        api_key_id=caller.key,
        definition_id=definition,
        # It stays in its queue, also if its agent is in another one by now.
        format=max(REOPENED_FORMAT, definitions.format_of(definition), NAMED_QUEUE_FORMAT if row.queue != DEFAULT_QUEUE else 0),
        run=row.run,
        attempt=row.attempt,
        step=row.step,
        fence=fence,
        takeovers=0,
        stop_reason="",
        error="",
        failure=None,
        resumable=False,
        deadline_at=None,
        provider_closed_at=None,
        ended_at=None,
        duration_ms=None,
        chat_modified=shown,
        queued_at=Now(),
        trace=row.trace,
        attention=Exists(pending) | Exists(clients),
    )


def _show_again(session: Session, row: Turn) -> None:
    """The session is used and unread, and shows the turn's next failure, also if truncating has hidden the last one."""
    raw_sql.execute([session_settings.turn_started(session, None)])
    Session.objects.filter(pk=session.pk, failures_seen_through__gte=row.pk).update(failures_seen_through=row.pk - 1)
