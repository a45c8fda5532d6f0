"""The state machine of a turn: start, answer, claim, take over, stop.

Every change of a turn's state that does not come from its own run happens here, each in one transaction
that ends with the events it caused. The order of locks is session, turn, call, then the journal's.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.messages import Content
from agents_app.spec import AgentSpec
from sessions_app.core import access, agents, broadcast, history, idempotency, journal, quotas, session_settings, tasks
from sessions_app.core.caller import Caller
from sessions_app.core.errors import Fault, InvalidInput, TurnAlreadyRunning
from sessions_app.core.events import Happening, Kind
from sessions_app.core.history import Place
from sessions_app.core.idempotency import Earlier, Once
from sessions_app.core.identifiers import new_id
from sessions_app.core.journal.types import Event, NewEvent
from sessions_app.core.session_settings import Overrides
from sessions_app.models import (
    LIVE_STATES,
    OPEN_CALL_STATES,
    TURN_FORMAT,
    CallRunner,
    CallState,
    Message,
    Origin,
    Session,
    ToolCall,
    Turn,
    TurnState,
)

__all__ = [
    "Accepted",
    "Begun",
    "CancelReceipt",
    "CannotTakeOver",
    "ClientResult",
    "Overrides",
    "Permission",
    "Stop",
    "accepted_before",
    "answer",
    "begin",
    "cancel",
    "claim",
    "decide",
    "give_back",
    "start",
    "stop",
    "take_over",
]

MAX_TAKEOVERS = 2


@dataclass(frozen=True, slots=True)
class Accepted:
    """A turn that will end. ``start`` is the number of the event that began this run.

    ``repeated``: the request came before and was accepted then. Its events may be kept no longer;
    ``start`` is 0 then. ``standings``: where the caller's rates stand after it.
    """

    turn_id: int
    public_id: str
    run: int
    start: int
    repeated: bool = False
    standings: tuple[quotas.Standing, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client says a call gave. ``index`` is its place in the request, for faults."""

    index: int
    call_id: str
    content: Content = field(repr=False)


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a server tool may run."""

    index: int
    call_id: str
    granted: bool
    reason: str = ""


Answer = ClientResult | Permission


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """``provider_closed``: the call to the provider is known to be closed (or there was none)."""

    cancelled: bool
    provider_closed: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a turn is stopped from outside its run, and what its stream says."""

    cause: Literal["client", "deadline", "deleted", "suspended", "limit", "interrupted", "internal"]
    reason: Literal["end_turn", "error"]

    @property
    def state(self) -> TurnState:
        return TurnState.ERROR if self.cause in ("limit", "interrupted", "internal") else TurnState.CANCELLED

    @property
    def closing_of_running(self) -> str:
        """What a call that may have run is told; who cancels knows that it was cut."""
        return history.CANCELLED if self.state is TurnState.CANCELLED else history.INTERRUPTED


@dataclass(frozen=True, slots=True)
class Stopped:
    """A turn that was stopped; ``worker`` is who was running it, if anybody."""

    turn_id: int
    worker: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A turn that this worker may run: its writes are valid while its fence is ``fence``."""

    turn_id: int
    tenant: int
    session: int
    fence: int


# --- starting ------------------------------------------------------------------------------------


def lock_live_turn(session: Session) -> Turn | None:
    return Turn.objects.select_for_update(no_key=True).filter(session=session, state__in=LIVE_STATES).first()


def _refuse_if_running(session: Session, live: Turn | None) -> None:
    if live is not None and live.state != TurnState.WAITING:
        raise TurnAlreadyRunning(session.public_id)


def _open_calls(session: Session) -> list[ToolCall]:
    rows = ToolCall.objects.select_for_update(no_key=True).filter(session=session, state__in=OPEN_CALL_STATES)
    return list(rows.order_by("step", "ordinal", "pk"))


def _create_turn(caller: Caller, session: Session, turn_id: str, definition: int, now: datetime, deadline: float | None) -> Turn:
    try:
        with transaction.atomic(savepoint=False):
            return Turn.objects.create(
                tenant_id=session.tenant_id,
                session=session,
                api_key_id=caller.key,
                public_id=turn_id,
                definition_id=definition,
                created_at=now,
                queued_at=now,
                deadline_at=_deadline(deadline),
            )
    except IntegrityError as error:
        if "one_live_turn_a_session" in str(error) or "sessions_app_turn.session_id" in str(error):
            raise TurnAlreadyRunning(session.public_id) from error
        raise


def _deadline(seconds: float | None) -> Any:
    """When a run that begins now is stopped, by the database's clock (A123)."""
    return None if seconds is None else Now() + timedelta(seconds=seconds)


def accepted_before(session: Session, earlier: Earlier) -> Accepted:
    """What the same request was answered with before (A98)."""
    turn = Turn.objects.get(session=session, public_id=earlier.turn)
    began = journal.run_start(session.pk, earlier.turn, earlier.run)
    return Accepted(turn.pk, turn.public_id, earlier.run, began or 0, repeated=True)


def start(
    caller: Caller,
    session: Session,
    *,
    content: Content,
    overrides: Overrides,
    once: Once | None = None,
    deadline: float | None = None,
) -> Accepted:
    """Begin a turn with a user message. ``deadline``: the seconds after which its run is stopped.

    A turn that waits for its client ends: who writes something new has given up on it. Its open calls
    are closed first, because a model's API refuses a call without a result.
    """
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        if (earlier := idempotency.recall(caller, once)) is not None:
            return accepted_before(session, earlier)
        asking.take_turn()
        spec = agents.for_turn(caller, session)
        live = lock_live_turn(session)
        _refuse_if_running(session, live)
        definition = session_settings.apply_overrides(session, spec, overrides)
        turn_id = new_id("turn")
        idempotency.remember(caller, once, session=session.public_id, turn=turn_id, run=1)
        begun = begin(tx, caller, session, turn_id, content=content, definition=definition, deadline=deadline, live=live)
        asking.admit_turn()
    return begun.accepted(tx, asking.standings)


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn in its transaction; ``first`` is the place of its first event among the transaction's."""

    turn: Turn
    first: int

    def accepted(self, tx: journal.Transaction, standings: tuple[quotas.Standing, ...]) -> Accepted:
        """Once the transaction is over."""
        return Accepted(self.turn.pk, self.turn.public_id, 1, tx.stored[self.first].seq, standings=standings)


def begin(
    tx: journal.Transaction,
    caller: Caller,
    session: Session,
    turn_id: str,
    *,
    content: Content,
    definition: int,
    deadline: float | None,
    live: Turn | None = None,
) -> Begun:
    """A turn with a user message, inside the transaction that has locked or made its session.

    ``live`` is the waiting turn that ends with it.
    """
    now = timezone.now()
    calls = _open_calls(session)
    if live is not None:
        _end_waiting(tx, live, now)
    turn = _create_turn(caller, session, turn_id, definition, now, deadline)
    place = Place(session.tenant_id, session.pk, turn.pk, run=1, step=0)
    closed = _close_calls(place, live or turn, calls, history.REPLACED, history.REPLACED, now, shown=True)
    journal.execute(history.message(place, "user", content, now, origin=Origin.CLIENT))
    started = Happening(Kind.TURN_STARTED, {"turn": turn.public_id, "run": 1, "message": {"content": content}})
    first = tx.append(NewEvent(session.tenant_id, session.pk, started))
    for happening in closed:
        tx.append(NewEvent(session.tenant_id, session.pk, happening))
    tx.after_commit(tasks.wake)
    return Begun(turn, first)


def _start_of(tx: journal.Transaction, happenings: Sequence[Happening]) -> int:
    """The number of the first of the events appended last."""
    return tx.stored[-len(happenings)].seq


def _end_waiting(tx: journal.Transaction, turn: Turn, now: datetime) -> None:
    Turn.objects.filter(pk=turn.pk).update(state=TurnState.CANCELLED, stop_reason="end_turn", ended_at=now)
    payload = {"turn": turn.public_id, "run": turn.run, "reason": "end_turn", "cause": "replaced", "in_run": False}
    tx.append(NewEvent(turn.tenant_id, turn.session_id, Happening(Kind.TURN_CANCELLED, payload)))


def _close_calls(
    place: Place, turn: Turn, calls: Sequence[ToolCall], closing: str, closing_of_running: str, now: datetime, *, shown: bool
) -> list[Happening]:
    """Give every open call a result, so that the history can be sent to a model again.

    Only a server tool's closing is shown in a stream: a client knows about its own calls.
    """
    happenings = []
    for call in calls:
        of_client = call.runner == CallRunner.CLIENT
        text = closing_of_running if call.state == CallState.RUNNING else closing
        journal.execute(
            [
                history.call_final(place, call.call_id, CallState.DENIED, text, now, by="server"),
                *history.message(
                    place, "tool", text, now, origin=Origin.NOTE if of_client else Origin.SERVER, tool_call_id=call.call_id
                ),
            ]
        )
        happenings.append(
            history.denied(turn.public_id, call.call_id, text.partition(": ")[2], text, shown=shown and not of_client)
        )
    return happenings


# --- answering -----------------------------------------------------------------------------------


def answer(
    caller: Caller,
    session: Session,
    *,
    answers: Sequence[Answer],
    overrides: Overrides,
    once: Once | None = None,
    deadline: float | None = None,
) -> Accepted:
    """Answer calls of a session that waits (or whose seed left calls open) and go on with the turn."""
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        if (earlier := idempotency.recall(caller, once)) is not None:
            return accepted_before(session, earlier)
        asking.take_turn()
        spec = agents.for_turn(caller, session)
        live = lock_live_turn(session)
        _refuse_if_running(session, live)
        calls = _open_calls(session)
        client_names = {tool["name"] for tool in session_settings.settings_of(session).client_tools}
        _check_answers(answers, calls, client_names)
        definition = session_settings.apply_overrides(session, spec, overrides)
        now = timezone.now()
        if live is None:
            turn = _create_turn(caller, session, new_id("turn"), definition, now, deadline)
            began = Happening(Kind.TURN_STARTED, {"turn": turn.public_id, "run": 1, "message": None})
            ToolCall.objects.filter(pk__in=[call.pk for call in calls]).update(turn=turn)
        else:
            turn = live
            turn.run += 1
            Turn.objects.filter(pk=turn.pk).update(
                state=TurnState.QUEUED,
                api_key_id=caller.key,
                run=turn.run,
                queued_at=now,
                definition_id=definition,
                takeovers=0,
                deadline_at=_deadline(deadline),
            )
            began = Happening(Kind.TURN_RESUMED, {"turn": turn.public_id, "run": turn.run})
        idempotency.remember(caller, once, session=session.public_id, turn=turn.public_id, run=turn.run)
        place = Place(session.tenant_id, session.pk, turn.pk, turn.run, step=0)
        stored = _store_answers(
            place, turn, calls, answers, grantable=_grantable(spec, session), by=_by(caller), now=now, stored=True
        )
        happenings = [began, *stored]
        asking.admit_turn()
        for happening in happenings:
            tx.append(NewEvent(session.tenant_id, session.pk, happening))
        tx.after_commit(tasks.wake)
    return Accepted(turn.pk, turn.public_id, turn.run, _start_of(tx, happenings), standings=asking.standings)


def decide(caller: Caller, session: Session, *, answers: Sequence[Answer]) -> None:
    """Answer open calls in any state of the live turn: a fact in the call's row.

    If the turn waits, the same transaction queues it. If it runs, the run is told and finds the answer
    at its next look; its message is written by the run.
    """
    told: Stopped | None = None
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        spec = agents.for_turn(caller, session)
        live = lock_live_turn(session)
        calls = _open_calls(session) if live is not None else []
        client_names = {tool["name"] for tool in session_settings.settings_of(session).client_tools}
        _check_answers(answers, calls, client_names)
        assert live is not None, "an open call without a live turn was found by no check"
        now = timezone.now()
        happenings: list[Happening] = []
        waiting = live.state == TurnState.WAITING
        if waiting:
            asking.take_turn()
            live.run += 1
            Turn.objects.filter(pk=live.pk).update(
                state=TurnState.QUEUED, api_key_id=caller.key, run=live.run, queued_at=now, takeovers=0
            )
            happenings.append(Happening(Kind.TURN_RESUMED, {"turn": live.public_id, "run": live.run}))
            tx.after_commit(tasks.wake)
        else:
            told = Stopped(live.pk, live.worker)
        place = Place(session.tenant_id, session.pk, live.pk, live.run, step=0)
        happenings += _store_answers(
            place, live, calls, answers, grantable=_grantable(spec, session), by=_by(caller), now=now, stored=waiting
        )
        if waiting:
            asking.admit_turn()
        for happening in happenings:
            tx.append(NewEvent(session.tenant_id, session.pk, happening))
    if told is not None and told.worker:
        broadcast.tell_worker(told.worker, {"turn": told.turn_id, "what": "answered"})


def _check_answers(answers: Sequence[Answer], calls: Sequence[ToolCall], client_names: set[str]) -> None:
    # A call nobody can serve is answered by the run itself, which may be doing so now.
    pending = {call.call_id: call for call in calls if call.state == CallState.PENDING and call.runner != CallRunner.NOBODY}
    faults: list[Fault] = []
    seen: set[str] = set()
    for each in answers:
        path = ("messages", each.index, "toolCallId")
        if each.call_id in seen:
            faults.append(Fault(path, "this call is answered twice in one request"))
        elif each.call_id not in pending:
            faults.append(Fault(path, "no pending call has this id"))
        elif isinstance(each, Permission) and each.granted:
            call = pending[each.call_id]
            if call.runner == CallRunner.CLIENT or call.name in client_names:
                faults.append(
                    Fault(("messages", each.index, "granted"), "this is a call of a client tool; the server cannot run it")
                )
        seen.add(each.call_id)
    if faults:
        raise InvalidInput(faults)


def _by(caller: Caller) -> str:
    return f"key:{caller.key_prefix}"


def _grantable(spec: AgentSpec, session: Session) -> frozenset[str]:
    """What a permission can run: exposed tools that the session has enabled, and nothing else (A90)."""
    return session_settings.settings_of(session).enabled & {tool.name for tool in spec.exposed_tools}


def _store_answers(
    place: Place,
    turn: Turn,
    calls: Sequence[ToolCall],
    answers: Sequence[Answer],
    *,
    grantable: frozenset[str],
    by: str,
    now: datetime,
    stored: bool,
) -> list[Happening]:
    """The clients' results first, then the decisions (A63). ``stored``: their messages are written now."""
    happenings: list[Happening] = []
    names = {call.call_id: call.name for call in calls}
    for each in answers:
        if isinstance(each, ClientResult):
            journal.execute([history.call_final(place, each.call_id, CallState.DONE, each.content, now, by=by, stored=stored)])
            if stored:
                journal.execute(
                    history.message(place, "tool", each.content, now, origin=Origin.CLIENT, tool_call_id=each.call_id)
                )
            happenings.append(
                history.finished(turn.public_id, each.call_id, each.content, failed=False, by="client", shown=False)
            )
    for each in answers:
        if isinstance(each, ClientResult):
            continue
        if each.granted and names[each.call_id] in grantable:
            journal.execute([history.call_granted(place, each.call_id, by, now)])
            happenings.append(Happening(Kind.CALL_GRANTED, {"turn": turn.public_id, "call": each.call_id, "by": by}))
            continue
        if each.granted:
            text = f"Tool not found: {names[each.call_id]}"
            final = history.call_final(place, each.call_id, CallState.DONE, text, now, failed=True, by=by, stored=stored)
            happenings.append(history.finished(turn.public_id, each.call_id, text, failed=True, by="server", shown=True))
        else:
            text = history.denial(each.reason)
            final = history.call_final(place, each.call_id, CallState.DENIED, text, now, reason=each.reason, by=by, stored=stored)
            happenings.append(history.denied(turn.public_id, each.call_id, each.reason, text, shown=True))
        journal.execute([final])
        if stored:
            journal.execute(history.message(place, "tool", text, now, origin=Origin.SERVER, tool_call_id=each.call_id))
    return happenings


# --- the queue -----------------------------------------------------------------------------------


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
order by coalesce(running.live, 0), t.queued_at, t.id limit 1 {lock}
"""

_CLAIM = """
update sessions_app_turn set state = 'running', worker = %s, fence = %s, lease_expires_at = {moment}, takeovers = %s,
 started_at = coalesce(started_at, {now}), provider_closed_at = null where id = %s
"""


def _written_for(sql: str) -> str:
    """The statement in the default database's words; ``{moment}`` takes seconds from now."""
    if connection.vendor == "postgresql":
        words = {
            "now": "statement_timestamp()",
            "moment": "statement_timestamp() + %s * interval '1 second'",
            "lock": "for no key update of t skip locked",
        }
    else:
        now = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'"
        words = {"now": f"{now})", "moment": f"{now}, %s || ' seconds')", "lock": ""}
    return sql.format(**words)


def _next_queued(older_than: float) -> _Claimable | None:
    """The tenant with the fewest live runs first, then the oldest; turns of newer formats are not ours.

    Turns that another worker is claiming are passed over.
    """
    with connection.cursor() as cursor:
        cursor.execute(_written_for(_NEXT_QUEUED), (TURN_FORMAT, _LATER if older_than == 0 else -older_than))
        row = cursor.fetchone()
    return None if row is None else _Claimable(*row)


_LATER = 3600.0
"""Whoever queues a turn may have a clock that is ahead of the database's."""


def _claim_locked(tx: journal.Transaction, turn: _Claimable, worker: str, takeovers: int) -> Claimed:
    fence = turn.tail_fence + 1
    with connection.cursor() as cursor:
        cursor.execute(_written_for(_CLAIM), (worker, fence, float(settings.AGENTHOST_LEASE_SECONDS), takeovers, turn.turn_id))
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
            _stop_locked(tx, Turn.objects.get(pk=turn.turn_id), Stop(cause="suspended", reason="error"))


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
            said = any(event.kind in (Kind.TEXT_DELTA, Kind.THINKING_DELTA) for event in _open_step(turn))
            if not said and turn.takeovers < MAX_TAKEOVERS:
                return _claim_locked(tx, _Claimable.of(turn), worker, turn.takeovers + 1)
            ended = _stop_locked(tx, turn, Stop(cause="interrupted", reason="error"))
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            raise CannotTakeOver(turn.pk) from error
    tell_worker(ended)
    return True


# --- stopping ------------------------------------------------------------------------------------


def _open_step(turn: Turn) -> list[Event]:
    """The stream events of the step that has no stored message yet; empty if there is none."""
    events = journal.open_step(turn.session_id)
    if not events or any(event.kind == Kind.STEP_DONE for event in events):
        return []
    payload = exact_json.loads(events[0].data)
    return events if payload["turn"] == turn.public_id else []


@dataclass(slots=True)
class _Partial:
    """The open step as the journal has it."""

    step: int = 0
    text: str = ""
    thinking: str = ""
    parts: list[dict[str, object]] = field(default_factory=list)

    @staticmethod
    def of(events: Sequence[Event]) -> _Partial:
        partial = _Partial()
        by_id: dict[str, dict[str, object]] = {}
        for event in events:
            payload = exact_json.loads(event.data)
            match event.kind:
                case Kind.STEP_STARTED:
                    partial.step = payload["step"]
                case Kind.TEXT_OPENED | Kind.THINKING_OPENED:
                    kind = "text" if event.kind == Kind.TEXT_OPENED else "thinking"
                    by_id[payload["part"]] = {"id": payload["part"], "kind": kind, "text": ""}
                    partial.parts.append(by_id[payload["part"]])
                case Kind.TEXT_DELTA | Kind.THINKING_DELTA:
                    part = by_id.get(payload["part"])
                    if part is not None:
                        part["text"] = f"{part['text']}{payload['delta']}"
                    if event.kind == Kind.TEXT_DELTA:
                        partial.text += payload["delta"]
                    elif not payload.get("late"):
                        partial.thinking += payload["delta"]
        return partial


def _stop_locked(tx: journal.Transaction, turn: Turn, stop: Stop) -> Stopped:
    """Write a live turn's end from outside its run; the turn (and its session) are locked.

    The open step is stored as far as the journal has it. Then the tenant's counter is taken, which
    stops the run's deltas, and what came in between is added: nothing that a client saw is missing.
    The raised fence refuses whatever the run still sends.
    """
    now = timezone.now()
    was = turn.state
    in_run = was in (TurnState.QUEUED, TurnState.RUNNING)
    fence = journal.tail(turn.session_id).fence + 1
    events = _open_step(turn) if was == TurnState.RUNNING else []
    partial = _Partial.of(events)
    place = Place(turn.tenant_id, turn.session_id, turn.pk, turn.run, partial.step or turn.step)
    content = history.assistant_content(partial.text, partial.thinking, [])
    if content is not None:
        journal.execute(history.message(place, "assistant", content, now, origin=Origin.SERVER))
    calls = list(
        ToolCall.objects.select_for_update(no_key=True)
        .filter(turn=turn, state__in=OPEN_CALL_STATES)
        .order_by("step", "ordinal", "pk")
    )
    unstored = list(ToolCall.objects.filter(turn=turn, state__in=[CallState.DONE, CallState.DENIED], stored=False))
    for call in unstored:
        _store_late_answer(place, call, now)
    closed = _close_calls(place, turn, calls, history.CANCELLED, stop.closing_of_running, now, shown=in_run)
    Turn.objects.filter(pk=turn.pk).update(
        state=stop.state,
        stop_reason=stop.reason,
        error="" if stop.state is TurnState.CANCELLED else stop.cause,
        ended_at=now,
        fence=fence,
        lease_expires_at=None,
        parts=exact_json.dumps([*exact_json.loads(turn.parts), *partial.parts]),
    )
    if was == TurnState.RUNNING:
        journal.lock_counter(turn.tenant_id)
        late = _open_step(turn)
        if len(late) > len(events):
            partial = _amend(place, turn, content, _Partial.of(late), now)
    happenings = [*history.said(turn.public_id, partial.step, partial.text, partial.thinking), *closed]
    end = {"turn": turn.public_id, "run": turn.run, "in_run": in_run}
    if stop.state is TurnState.CANCELLED:
        happenings.append(Happening(Kind.TURN_CANCELLED, {**end, "reason": stop.reason, "cause": stop.cause}))
    else:
        happenings.append(Happening(Kind.TURN_FAILED, {**end, "error": stop.cause}))
    for happening in happenings:
        tx.append(NewEvent(turn.tenant_id, turn.session_id, happening, fence=fence))
    return Stopped(turn.pk, turn.worker if was == TurnState.RUNNING else "")


def _amend(place: Place, turn: Turn, before: Content | None, partial: _Partial, now: datetime) -> _Partial:
    """Add the deltas that were stored while the end was being written."""
    content = history.assistant_content(partial.text, partial.thinking, [])
    if content is not None and before is None:
        journal.execute(history.message(place, "assistant", content, now, origin=Origin.SERVER))
    elif content is not None:
        newest = (
            Message.objects.filter(turn=turn, run=turn.run, role="assistant", origin=Origin.SERVER)
            .order_by("-position")
            .values_list("pk", flat=True)[:1]
        )
        text = exact_json.dumps(content)
        if Message.objects.filter(pk__in=list(newest)).update(content=text):
            grown = quotas.size(text) - quotas.size(exact_json.dumps(before))
            journal.execute([quotas.stored(place.tenant, place.session, grown)])
    Turn.objects.filter(pk=turn.pk).update(parts=exact_json.dumps([*exact_json.loads(turn.parts), *partial.parts]))
    return partial


def _store_late_answer(place: Place, call: ToolCall, now: datetime) -> None:
    origin = Origin.SERVER if call.state == CallState.DENIED else Origin.CLIENT
    content = exact_json.loads(call.result or '""')
    journal.execute(
        [
            *history.message(place, "tool", content, now, origin=origin, tool_call_id=call.call_id),
            history.call_stored(place, call.call_id),
        ]
    )


def stop_live_turn(tx: journal.Transaction, session: Session, stop: Stop) -> Stopped | None:
    """Stop whatever lives in a locked session, inside its transaction; call ``tell_worker`` after it."""
    turn = lock_live_turn(session)
    return None if turn is None else _stop_locked(tx, turn, stop)


def stop(turn_id: int, stop: Stop, *, fence: int | None = None) -> Stopped | None:
    """Stop this one turn, never the next; None if it had ended already.

    ``fence`` is for a run that ends its own turn: if it runs under another fence, or waits, it is left alone.
    """
    with journal.transaction() as tx:
        session_id = Turn.objects.filter(pk=turn_id).values_list("session_id", flat=True).first()
        if session_id is None:
            return None
        Session.with_deleted.select_for_update(no_key=True).filter(pk=session_id).first()
        turn = Turn.objects.select_for_update(no_key=True).filter(pk=turn_id, state__in=LIVE_STATES).first()
        if turn is None or (fence is not None and (turn.fence, turn.state) != (fence, TurnState.RUNNING)):
            return None
        stopped = _stop_locked(tx, turn, stop)
    tell_worker(stopped)
    return stopped


def tell_worker(stopped: Stopped | None) -> None:
    """Tell the worker of a stopped run; without this it finds out at its next write or look."""
    if stopped is not None and stopped.worker:
        broadcast.tell_worker(stopped.worker, {"turn": stopped.turn_id, "what": "stopped"})


_PROVIDER_CLOSE_WAIT = 1.0
_PROVIDER_CLOSE_LOOK = 0.02


def cancel(caller: Caller, session: Session, reason: str = "") -> CancelReceipt:  # noqa: ARG001 - for the audit to come
    """Stop the turn in progress and wait up to a second for the word that the provider's call is closed."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        stopped = stop_live_turn(tx, session, Stop(cause="client", reason="end_turn"))
    if stopped is None:
        return CancelReceipt(cancelled=False)
    if not stopped.worker:
        return CancelReceipt(cancelled=True, provider_closed=True)
    tell_worker(stopped)
    deadline = time.monotonic() + _PROVIDER_CLOSE_WAIT
    while True:
        if Turn.objects.filter(pk=stopped.turn_id, provider_closed_at__isnull=False).exists():
            return CancelReceipt(cancelled=True, provider_closed=True)
        if time.monotonic() >= deadline:
            return CancelReceipt(cancelled=True, provider_closed=False)
        time.sleep(_PROVIDER_CLOSE_LOOK)


def cancel_tenant(tenant_id: int, cause: Literal["suspended"] = "suspended") -> int:
    """Stop every live turn of a tenant; how many there were."""
    live = list(Turn.objects.filter(tenant_id=tenant_id, state__in=LIVE_STATES).values_list("pk", flat=True))
    return sum(stop(turn_id, Stop(cause=cause, reason="error")) is not None for turn_id in live)


def stop_overdue() -> int:
    """Stop the runs whose client's deadline has passed (A123); how many there were.

    A worker watches its own runs' deadlines; this finds those that no worker is driving.
    """
    overdue = Turn.objects.filter(state__in=[TurnState.QUEUED, TurnState.RUNNING], deadline_at__lt=Now())
    found = list(overdue.order_by("deadline_at").values_list("pk", flat=True)[:100])
    return sum(stop(turn_id, Stop(cause="deadline", reason="error")) is not None for turn_id in found)


def reason_of_run(turn_id: int, run: int) -> str | None:
    """Why a run stopped, told from the turn's row when its events are kept no longer; None: it runs."""
    turn = Turn.objects.get(pk=turn_id)
    if turn.run > run or turn.state == TurnState.WAITING:
        return "tool_use"
    return None if turn.state in LIVE_STATES else turn.stop_reason


def provider_closed(claimed: Claimed) -> None:
    """The run's word that its call to the provider is closed, once its turn was stopped: the one write without a fence.

    A stop raises the fence by one, so another number means that a later run's call is the one that counts.
    """
    ended = Turn.objects.filter(pk=claimed.turn_id, fence=claimed.fence + 1).exclude(state__in=LIVE_STATES)
    ended.update(provider_closed_at=Now())


def position_of_run(session: Session) -> int | None:
    """The number before the ``turn_start`` of the run in progress; None if nothing runs."""
    if not Turn.objects.filter(session=session, state__in=[TurnState.QUEUED, TurnState.RUNNING]).exists():
        return None
    began = journal.latest_run_start(session.pk)
    return None if began is None else began - 1
