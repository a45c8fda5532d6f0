"""Claims queued turns, and takes over runs of dead workers. The queue is the table of turns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Protocol

from django.conf import settings
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Now

from agents_app import queue_names
from sessions_app.core.base import lock_timeouts, raw_sql
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Following, Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import live_workers
from sessions_app.core.turns import stopping, tasks
from sessions_app.core.turns.types import Claimed, Stop
from sessions_app.models import TURN_FORMAT, Turn, TurnState

MAX_TAKEOVERS = 2


# A queued turn's position is the number of its tenant's running turns, plus its own number among the tenant's queued
# turns, both in its queue: claiming several turns at once is as fair as claiming one by one. Position 1: the tenant has no
# running turn there.
# Skipped: turns that another worker is claiming, those of newer formats, those of suspended tenants and revoked keys
# (the sweep ends them), and those whose session has no tail, because they cannot get a fence.
_QUEUED = """select id, tenant_id, session_id, api_key_id, queue, queued_at,
     row_number() over (partition by queue, tenant_id order by queued_at, id) as nth from sessions_app_turn
     where {in_queue}state = 'queued' and format <= %s and (%s or queued_at <= {moment}) and not tenant_id {among}"""
_CLAIM_QUEUED = """
with live as (select tenant_id, queue, count(*) as runs from sessions_app_turn where state = 'running' group by tenant_id, queue),
 line as (select t.id, t.queued_at,
   coalesce(live.runs, 0) + t.nth as queue_position
   from ({queued}) t
   join sessions_app_tenant x on x.id = t.tenant_id left join live on live.tenant_id = t.tenant_id and live.queue = t.queue
   where t.nth <= %s and x.suspended_at is null
   and not exists (select 1 from sessions_app_apikey k where k.id = t.api_key_id and k.revoked_at is not null)
   and exists (select 1 from session_tail s where s.session_id = t.session_id)),
 next as (select t.id from line join sessions_app_turn t on t.id = line.id where t.state = 'queued' and line.queue_position <= %s
   order by line.queue_position, line.queued_at, line.id limit %s {for_change_of_turn})
update sessions_app_turn set state = 'running', worker = %s, lease_expires_at = null, provider_closed_at = null,
 started_at = coalesce(started_at, {now}),
 fence = (select s.fence + 1 from session_tail s where s.session_id = sessions_app_turn.session_id)
where id in (select id from next) returning id, tenant_id, session_id, fence,
 '{"turn":' || cast({as_json}(public_id) as text) || ',"run":' || cast(run as text)
  || ',"takeover":' || cast(takeovers as text) || '}' as data,
 (select coalesce(sum(amount), 0) from sessions_app_usagetotal u where u.tenant_id = sessions_app_turn.tenant_id
   and u.measure = 'session' and u.day = '1970-01-01' and u.key_id = sessions_app_turn.session_id)
 + (select coalesce(sum(amount), 0) from sessions_app_usageentry u where u.tenant_id = sessions_app_turn.tenant_id
   and u.measure = 'session' and u.day = '1970-01-01' and u.key_id = sessions_app_turn.session_id) as stored
"""


@lru_cache(maxsize=8)
def _claim_of(queues: tuple[str, ...] | None) -> str:
    """The statement that claims turns of these queues; None: of all.

    Each queue is compared by itself, and its name is in the statement: with one comparison for all of them, or with a
    parameter in a plan that is kept, Postgres takes an index with the turns of every queue (docs/decisions/0103).
    """
    if queues is None:
        each = [_QUEUED.replace("{in_queue}", "")]
    else:
        each = [_QUEUED.replace("{in_queue}", f"queue = '{queue_names.parsed(name)}' and ") for name in queues]
    return _CLAIM_QUEUED.replace("{queued}", " union all ".join(each))


_TAKE_OVER = """
update sessions_app_turn set state = 'running', worker = %s, fence = %s, lease_expires_at = {moment}, takeovers = %s,
 started_at = coalesce(started_at, {now}), provider_closed_at = null where id = %s
"""

_FIRST_POSITION, _ANY_POSITION = 1, 2**31 - 1

_READ_PER_TENANT = 200
"""A tenant's oldest queued turns, more than one claim takes; later ones of a long queue are not read."""


class Loader(Protocol):
    """Reads what claimed runs need, with their claim's barrier."""

    def queries(self, runs: Mapping[Claimed, int]) -> Sequence[Statement]:
        """``runs`` have the bytes of their sessions."""

    def begin(self, rows: list[Rows]) -> object:
        """The rows of each query."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The result of one claim. ``skipped``: some turns were not claimed because another transaction holds a lock."""

    runs: list[Claimed]
    skipped: bool = False


def claim(
    worker: str,
    most: int = 1,
    older_than: float = 0,
    *,
    queues: Sequence[str] | None = None,
    idle_tenants_only: bool = False,
    loader: Loader | None = None,
) -> Claims:
    """Claim queued turns of these queues (None: of all) in fair order. Lost, late and repeated wake-ups do no harm.

    ``idle_tenants_only``: only turns of tenants that have no running turn.
    Waits for no lock: all turns of a tenant whose counter is locked are skipped.
    ``loader`` gets the claimed turns while the claim is being made durable; until this function returns, a crash may undo
    the claim.
    """
    busy: set[int] = set()
    position = _FIRST_POSITION if idle_tenants_only else _ANY_POSITION

    def follow(written: Sequence[Sequence[Any]]) -> Following | None:
        return None if loader is None else Following(loader.queries(_claimed(written)), loader.begin)

    while True:
        of_each = (TURN_FORMAT, older_than == 0, -older_than, list(busy))
        queued = of_each * (1 if queues is None else len(queues))
        values = (*queued, _READ_PER_TENANT, position, most, worker)
        claiming = Statement(_claim_of(None if queues is None else tuple(queues)), values)
        try:
            written = journal.append_for_each(claiming, Kind.RUN_STARTED, follow)
        except journal.CounterLocked as found:
            busy.update(found.tenants)
        else:
            return Claims(list(_claimed(written)), bool(busy))


def _claimed(written: Sequence[Sequence[Any]]) -> dict[Claimed, int]:
    """The claimed runs, and the bytes of their sessions."""
    return {Claimed(turn, tenant, session, fence): int(stored) for turn, tenant, session, fence, _, stored in written}


def _append_start(tx: journal.Transaction, claimed: Claimed, public_id: str, run: int, takeovers: int) -> None:
    payload = {"turn": public_id, "run": run, "takeover": takeovers}
    tx.append(NewEvent(claimed.tenant, claimed.session, Happening(Kind.RUN_STARTED, payload), fence=claimed.fence))


def give_back(runs: Sequence[Claimed]) -> None:
    """Put runs whose model has not answered yet back into the queue, as if they had never been claimed."""
    for claimed in runs:
        with journal.transaction() as tx:
            given = Turn.objects.filter(pk=claimed.turn_id, fence=claimed.fence, state=TurnState.RUNNING).update(
                state=TurnState.QUEUED, worker="", lease_expires_at=None, queued_at=Now()
            )
            if given:
                queue = Turn.objects.values_list("queue", flat=True).get(pk=claimed.turn_id)
                tx.after_commit(partial(tasks.wake, queue))


class CannotTakeOver(Exception):
    """This one turn cannot be taken over now; ``__cause__`` is the reason."""

    def __init__(self, turn_id: int, tenant: int) -> None:
        self.turn_id, self.tenant = turn_id, tenant
        super().__init__(f"turn {turn_id} cannot be taken over")


@dataclass(frozen=True, slots=True)
class NeedsSlot:
    """A run that can continue, but its worker has no free slot."""

    turn_id: int
    tenant: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that could not continue: its turn was ended."""

    turn_id: int
    tenant: int


def take_over(
    worker: str,
    excluded: Collection[int] = (),
    *,
    queues: Sequence[str] | None = None,
    excluded_tenants: Collection[int] = (),
    locked_tenants: Collection[int] = (),
    served_tenants: Collection[int] = (),
    until: datetime | None = None,
    may_continue: bool = True,
) -> Claimed | NeedsSlot | Ended | None:
    """Take over one run of these queues (None: of all) whose lease has expired; None: there is none.

    It continues from its last commit point, or its turn ends.

    A step with stored deltas cannot be repeated, because the model would answer with another text: its turn ends with an
    error, and the text is kept. ``excluded``, ``excluded_tenants``: turns and tenants to leave alone. ``locked_tenants``:
    something of theirs was locked a moment ago; do not wait for their locks again. ``served_tenants``: their runs come
    last, because reading a run's stream may take a second. ``until``: take over nothing once the database's clock has
    passed it, because the statement was delayed, and so may have been the renewals of the leases.
    ``may_continue`` False: a run that could continue is left as it is (NeedsSlot); others are ended.

    Waits for no lock: CounterHeld names the tenant whose counter is locked; CannotTakeOver if something else of the turn
    fails. Any other error comes from the query for expired leases.
    """
    turn: Turn | None = None
    served_last = [Case(When(tenant__in=list(served_tenants), then=Value(1)), default=Value(0))] if served_tenants else []
    try:
        with lock_timeouts.short(journal.transaction(waiting=False)) as tx:
            turn = (
                Turn.objects.select_for_update(no_key=True, skip_locked=lock_timeouts.skip_locked())
                .filter(_expired(), state=TurnState.RUNNING, format__lte=TURN_FORMAT)
                .filter(live_workers.not_after(until), live_workers.of_queues(queues))
                .exclude(pk__in=list(excluded))
                .exclude(tenant__in=list(excluded_tenants))
                .order_by(*served_last, "lease_expires_at", "pk")
                .first()
            )
            if turn is None:
                return None
            if turn.tenant_id in locked_tenants:
                lock_timeouts.set_shortest()
            has_deltas = any(event.kind in (Kind.TEXT_DELTA, Kind.THINKING_DELTA) for event in stopping.open_step(turn))
            if not has_deltas and turn.takeovers < MAX_TAKEOVERS:
                return _continue(tx, turn, worker) if may_continue else NeedsSlot(turn.pk, turn.tenant_id)
            ended = stopping.stop_locked(tx, turn, Stop(cause="interrupted", reason="error"))
    except journal.CounterLocked:
        raise
    except Exception as error:
        if turn is None:
            raise
        raise CannotTakeOver(turn.pk, turn.tenant_id) from error
    stopping.tell_worker(ended)
    return Ended(turn.pk, turn.tenant_id)


def _expired() -> Q:
    """Turns whose lease has expired: their own, or, if they have none, that of their worker."""
    return Q(lease_expires_at__lt=Now()) | (Q(lease_expires_at=None) & ~Q(worker__in=live_workers.with_lease()))


def _continue(tx: journal.Transaction, turn: Turn, worker: str) -> Claimed:
    fence, takeovers = journal.tail(turn.session_id).fence + 1, turn.takeovers + 1
    lease = float(settings.AGENTHOST_LEASE_SECONDS)
    raw_sql.execute([Statement(_TAKE_OVER, (worker, fence, lease, takeovers, turn.pk))])
    claimed = Claimed(turn.pk, turn.tenant_id, turn.session_id, fence)
    _append_start(tx, claimed, turn.public_id, turn.run, takeovers)
    if (abandoned := stopping.abandon_step(turn)) is not None:
        tx.append(NewEvent(turn.tenant_id, turn.session_id, abandoned, fence=fence))
    return claimed
