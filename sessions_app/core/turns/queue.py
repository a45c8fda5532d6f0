"""The queue: turns that wait for a worker, and runs whose worker died."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.conf import settings
from django.db.models import Case, Value, When
from django.db.models.functions import Now

from sessions_app.core.base import lock_waits, prepared
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.prepared import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import live_workers
from sessions_app.core.turns import stopping, tasks
from sessions_app.core.turns.values import Claimed, Stop
from sessions_app.models import TURN_FORMAT, Turn, TurnState

MAX_TAKEOVERS = 2


# A tenant's first queued turn stands behind its live runs, its second one place further back: so a queue that is
# taken in lots is as fair as one that is taken turn by turn. Turns that another worker is claiming are passed over,
# those of newer formats are not ours, and those of a suspended tenant or a revoked key are ended by the sweep. A turn
# whose session has no tail cannot be given a fence and holds up nobody. The first place is the turn's of whose tenant
# nothing runs.
_CLAIM_QUEUED = """
with live as (select tenant_id, count(*) as runs from sessions_app_turn where state = 'running' group by tenant_id),
 line as (select t.id, t.queued_at,
   coalesce(live.runs, 0) + t.nth as place
   from (select id, tenant_id, session_id, api_key_id, queued_at,
     row_number() over (partition by tenant_id order by queued_at, id) as nth from sessions_app_turn
     where state = 'queued' and format <= %s and (%s or queued_at <= {moment})) t
   join sessions_app_tenant x on x.id = t.tenant_id left join live on live.tenant_id = t.tenant_id
   where t.nth <= %s and x.suspended_at is null and not t.tenant_id {among}
   and not exists (select 1 from sessions_app_apikey k where k.id = t.api_key_id and k.revoked_at is not null)
   and exists (select 1 from session_tail s where s.session_id = t.session_id)),
 next as (select t.id from line join sessions_app_turn t on t.id = line.id where t.state = 'queued' and line.place <= %s
   order by line.place, line.queued_at, line.id limit %s {for_change_of_turn})
update sessions_app_turn set state = 'running', worker = %s, lease_expires_at = {moment}, provider_closed_at = null,
 started_at = coalesce(started_at, {now}),
 fence = (select s.fence + 1 from session_tail s where s.session_id = sessions_app_turn.session_id)
where id in (select id from next) returning id, public_id, tenant_id, session_id, fence, run, takeovers
"""

_TAKE_OVER = """
update sessions_app_turn set state = 'running', worker = %s, fence = %s, lease_expires_at = {moment}, takeovers = %s,
 started_at = coalesce(started_at, {now}), provider_closed_at = null where id = %s
"""

_FIRST, _ANY = 1, 2**31 - 1

_LOOKED_AT = 200
"""A tenant's oldest turns, more than anybody claims at once: of a long queue the rest is not even looked at."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What one look at the queue gave. ``passed_over``: there were turns that somebody's transaction stood before."""

    runs: list[Claimed]
    passed_over: bool = False


def claim(
    worker: str,
    most: int = 1,
    older_than: float = 0,
    *,
    newcomers: bool = False,
    meanwhile: Callable[[Sequence[Claimed]], object] | None = None,
) -> Claims:
    """Queued turns in fair order. A wake-up that was lost, late or double costs nothing.

    ``newcomers``: only turns of tenants of which nothing runs.
    Waits for no lock: a tenant whose counter somebody holds is left for later, with all its turns.
    ``meanwhile`` is called with what was claimed while that is on its way to the disk: not to be relied on before
    this returns.
    """
    busy: set[int] = set()
    while True:
        try:
            with journal.transaction(waiting=False) as tx:
                runs = _claim_queued(tx, worker, most, older_than, busy, _FIRST if newcomers else _ANY)
                if runs and meanwhile is not None:
                    tx.after_commit(partial(meanwhile, runs))
        except journal.CounterHeld as found:
            busy.update(found.tenants)
        else:
            return Claims(runs, bool(busy))


def _claim_queued(
    tx: journal.Transaction, worker: str, most: int, older_than: float, besides: Collection[int], place: int
) -> list[Claimed]:
    lease = float(settings.AGENTHOST_LEASE_SECONDS)
    # The transaction's BEGIN goes with it.
    values = (TURN_FORMAT, older_than == 0, -older_than, _LOOKED_AT, list(besides), place, most, worker, lease)
    (found,) = prepared.answers([Statement(_CLAIM_QUEUED, values)])
    runs = []
    for turn_id, public_id, tenant, session, fence, run, takeovers in found:
        claimed = Claimed(turn_id, tenant, session, fence)
        _append_start(tx, claimed, public_id, run, takeovers)
        runs.append(claimed)
    return runs


def _append_start(tx: journal.Transaction, claimed: Claimed, public_id: str, run: int, takeovers: int) -> None:
    payload = {"turn": public_id, "run": run, "takeover": takeovers}
    tx.append(NewEvent(claimed.tenant, claimed.session, Happening(Kind.RUN_STARTED, payload), fence=claimed.fence))


def give_back(runs: Sequence[Claimed]) -> None:
    """Back into the queue, as if they had never been claimed: runs of which nothing was said, by their worker."""
    for claimed in runs:
        with journal.transaction() as tx:
            given = Turn.objects.filter(pk=claimed.turn_id, fence=claimed.fence, state=TurnState.RUNNING).update(
                state=TurnState.QUEUED, worker="", lease_expires_at=None, queued_at=Now()
            )
            if given:
                tx.after_commit(tasks.wake)


class CannotTakeOver(Exception):
    """Something about this one turn is in the way; the cause says what."""

    def __init__(self, turn_id: int, tenant: int) -> None:
        self.turn_id, self.tenant = turn_id, tenant
        super().__init__(f"turn {turn_id} cannot be taken over")


@dataclass(frozen=True, slots=True)
class NeedsSlot:
    """A run that can go on, which its worker has no slot for."""

    turn_id: int
    tenant: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that could not go on: its turn was ended."""

    turn_id: int
    tenant: int


def take_over(
    worker: str,
    besides: Collection[int] = (),
    *,
    tenants_besides: Collection[int] = (),
    tenants_held: Collection[int] = (),
    tenants_served: Collection[int] = (),
    until: datetime | None = None,
    may_go_on: bool = True,
) -> Claimed | NeedsSlot | Ended | None:
    """One run whose lease ran out: go on from its last commit point, or end it.

    What a client has seen of an answer cannot be said again in other words, so a step with stored
    deltas ends with an error, its text kept. Returns what became of it; None if there was none.
    ``besides`` names turns to be left alone, ``tenants_besides`` tenants; ``tenants_held`` those of which something was
    locked a moment ago, so that nothing of theirs is waited for again. Runs of ``tenants_served`` come after all others:
    what a run has streamed may take a second to read. Nothing is taken over once the database's clock has passed ``until``:
    the statement was delayed, and the owners of the runs may have been too.
    ``may_go_on`` False: a run that can go on is left as it is (NeedsSlot), one that cannot is ended.

    Waits for no lock: CounterHeld names the tenant whose counter is held; CannotTakeOver if anything else of the
    turn fails. Any other error is one of the statement that looks for leases.
    """
    turn: Turn | None = None
    last = [Case(When(tenant__in=list(tenants_served), then=Value(1)), default=Value(0))] if tenants_served else []
    try:
        with lock_waits.briefly(journal.transaction(waiting=False)) as tx:
            turn = (
                Turn.objects.select_for_update(no_key=True, skip_locked=lock_waits.skip_locked())
                .filter(state=TurnState.RUNNING, lease_expires_at__lt=Now(), format__lte=TURN_FORMAT)
                .filter(live_workers.not_after(until))
                .exclude(pk__in=list(besides))
                .exclude(tenant__in=list(tenants_besides))
                .order_by(*last, "lease_expires_at")
                .first()
            )
            if turn is None:
                return None
            if turn.tenant_id in tenants_held:
                lock_waits.hardly()
            said = any(event.kind in (Kind.TEXT_DELTA, Kind.THINKING_DELTA) for event in stopping.open_step(turn))
            if not said and turn.takeovers < MAX_TAKEOVERS:
                return _go_on_with(tx, turn, worker) if may_go_on else NeedsSlot(turn.pk, turn.tenant_id)
            ended = stopping.stop_locked(tx, turn, Stop(cause="interrupted", reason="error"))
    except journal.CounterHeld:
        raise
    except Exception as error:
        if turn is None:
            raise
        raise CannotTakeOver(turn.pk, turn.tenant_id) from error
    stopping.tell_worker(ended)
    return Ended(turn.pk, turn.tenant_id)


def _go_on_with(tx: journal.Transaction, turn: Turn, worker: str) -> Claimed:
    fence, takeovers = journal.tail(turn.session_id).fence + 1, turn.takeovers + 1
    lease = float(settings.AGENTHOST_LEASE_SECONDS)
    prepared.execute([Statement(_TAKE_OVER, (worker, fence, lease, takeovers, turn.pk))])
    claimed = Claimed(turn.pk, turn.tenant_id, turn.session_id, fence)
    _append_start(tx, claimed, turn.public_id, turn.run, takeovers)
    if (abandoned := stopping.abandon_step(turn)) is not None:
        tx.append(NewEvent(turn.tenant_id, turn.session_id, abandoned, fence=fence))
    return claimed
