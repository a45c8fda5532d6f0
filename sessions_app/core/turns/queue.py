"""The queue: turns that wait for a worker, and runs whose worker died."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.core import journal, prepared, tasks
from sessions_app.core.events import Happening, Kind
from sessions_app.core.journal.types import NewEvent
from sessions_app.core.prepared import Statement
from sessions_app.core.turns import stopping
from sessions_app.core.turns.values import Claimed, Stop
from sessions_app.models import TURN_FORMAT, Turn, TurnState

MAX_TAKEOVERS = 2


@dataclass(frozen=True, slots=True)
class _Claimable:
    """A locked turn, as a claim sees it. ``tail_fence`` is the highest fence its session has had."""

    turn_id: int
    public_id: str
    tenant: int
    session: int
    run: int
    takeovers: int
    tail_fence: int
    suspended: bool = False

    @staticmethod
    def of(turn: Turn) -> _Claimable:
        fence = journal.tail(turn.session_id).fence
        return _Claimable(turn.pk, turn.public_id, turn.tenant_id, turn.session_id, turn.run, turn.takeovers, fence)


# Written out, because each claim runs these two and the ORM takes longer to write them than Postgres to run them.
_NEXT_QUEUED = """
with running as (select tenant_id, count(*) as live from sessions_app_turn where state = 'running' group by tenant_id)
select t.id, t.public_id, t.tenant_id, t.session_id, t.run, t.takeovers,
 (select fence from session_tail s where s.session_id = t.session_id),
 (select suspended_at is not null from sessions_app_tenant x where x.id = t.tenant_id)
from sessions_app_turn t left join running on running.tenant_id = t.tenant_id
where t.state = 'queued' and t.format <= %s and t.queued_at <= {moment}
order by coalesce(running.live, 0), t.queued_at, t.id limit 1 {for_change_of_turn}
"""

_CLAIM = """
update sessions_app_turn set state = 'running', worker = %s, fence = %s, lease_expires_at = {moment}, takeovers = %s,
 started_at = coalesce(started_at, {now}), provider_closed_at = null where id = %s
"""


def _next_queued(older_than: float) -> _Claimable | None:
    """The tenant with the fewest live runs first, then the oldest; turns of newer formats are not ours.

    Turns that another worker is claiming are passed over.
    """
    row = prepared.row(_NEXT_QUEUED, (TURN_FORMAT, _LATER if older_than == 0 else -older_than))
    return None if row is None else _Claimable(*row)


_LATER = 3600.0
"""Whoever queues a turn may have a clock that is ahead of the database's."""


def _claim_locked(tx: journal.Transaction, turn: _Claimable, worker: str, takeovers: int) -> Claimed:
    fence = turn.tail_fence + 1
    lease = float(settings.AGENTHOST_LEASE_SECONDS)
    prepared.execute([Statement(_CLAIM, (worker, fence, lease, takeovers, turn.turn_id))])
    payload = {"turn": turn.public_id, "run": turn.run, "takeover": takeovers}
    tx.append(NewEvent(turn.tenant, turn.session, Happening(Kind.RUN_STARTED, payload), fence=fence))
    return Claimed(turn.turn_id, turn.tenant, turn.session, fence)


def claim(worker: str, older_than: float = 0) -> Claimed | None:
    """The next queued turn in fair order, or None. A wake-up that was lost, late or double costs nothing."""
    while True:
        with journal.transaction() as tx:
            turn = _next_queued(older_than)
            if turn is None:
                return None
            if not turn.suspended:
                return _claim_locked(tx, turn, worker, turn.takeovers)
            # It was accepted while the suspension was being written, and would be run after it.
            stopping.stop_locked(tx, Turn.objects.get(pk=turn.turn_id), Stop(cause="suspended", reason="error"))


def give_back(runs: Sequence[Claimed]) -> None:
    """Back into the queue, as if they had never been claimed: runs of which nothing was said, by their worker."""
    for claimed in runs:
        with journal.transaction() as tx:
            given = Turn.objects.filter(pk=claimed.turn_id, fence=claimed.fence, state=TurnState.RUNNING).update(
                state=TurnState.QUEUED, worker="", lease_expires_at=None, queued_at=timezone.now()
            )
            if given:
                tx.after_commit(tasks.wake)


class CannotTakeOver(Exception):
    """Something about this one turn stands in the way; the cause says what."""

    def __init__(self, turn_id: int) -> None:
        self.turn_id = turn_id
        super().__init__(f"turn {turn_id} cannot be taken over")


def take_over(worker: str, besides: Collection[int] = ()) -> Claimed | bool:
    """One run whose lease ran out: go on from its last commit point, or end it.

    What a client has seen of an answer cannot be said again in other words, so a step with stored
    deltas ends with an error, its text kept. Answers the claimed turn, True if one was ended, False
    if there was none. ``besides`` names turns to be left alone.
    """
    with journal.transaction() as tx:
        turn = (
            Turn.objects.select_for_update(no_key=True, skip_locked=connection.features.has_select_for_update_skip_locked)
            .filter(state=TurnState.RUNNING, lease_expires_at__lt=Now(), format__lte=TURN_FORMAT)
            .exclude(pk__in=list(besides))
            .order_by("lease_expires_at")
            .first()
        )
        if turn is None:
            return False
        try:
            said = any(event.kind in (Kind.TEXT_DELTA, Kind.THINKING_DELTA) for event in stopping.open_step(turn))
            if not said and turn.takeovers < MAX_TAKEOVERS:
                return _claim_locked(tx, _Claimable.of(turn), worker, turn.takeovers + 1)
            ended = stopping.stop_locked(tx, turn, Stop(cause="interrupted", reason="error"))
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            raise CannotTakeOver(turn.pk) from error
    stopping.tell_worker(ended)
    return True
