"""Starting a turn with a user's message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.messages import Content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import unstorable
from sessions_app.core.base.errors import NotPossible, TurnAlreadyRunning
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.user_messages import UserMessage, title_of
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import dispatches, history, idempotency, session_settings
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.records.history import StepRef
from sessions_app.core.records.idempotency import Once
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.tenancy import agents, definitions, quotas
from sessions_app.core.turns import tasks
from sessions_app.core.turns.closing import close_calls, void_forms
from sessions_app.core.turns.deferred import take_deferred
from sessions_app.core.turns.opening import accepted_before, admit_into, append_all, insert_turn, lock_and_look, what_is_open
from sessions_app.core.turns.values import Accepted
from sessions_app.models import Origin, Session, ToolCall, Turn, TurnState

NOTHING = Overrides()
LONGEST_TURN_ID = 256


def start(
    caller: Caller,
    session: Session,
    *,
    content: Content,
    overrides: Overrides = NOTHING,
    once: Once | None = None,
    deadline: float | None = None,
    turn_id: str | None = None,
    said: UserMessage | None = None,
    alone: bool = False,
    dispatched: Dispatched | None = None,
) -> Accepted:
    """Begin a turn with a user message. ``deadline``: the seconds after which its run is stopped.

    A turn that waits for its client ends: who writes something new has given up on it. Its open calls
    are closed first, because a model's API refuses a call without a result. ``alone``: it is in the way instead.
    ``turn_id``: the client's own name for the turn. ``said``: the message as the client wrote it.
    """
    definitions.prepare(session.agent_name)
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session, looked = lock_and_look(caller, session)
        if (earlier := idempotency.recall(caller, once)) is not None:
            return accepted_before(session, earlier)
        dispatches.remember(caller, dispatched)
        admit_into(looked)
        asking.take_turn()
        spec = agents.for_turn(caller, session)
        live, calls = what_is_open(session, looked)
        if live is not None and alone:
            raise TurnAlreadyRunning(session.public_id)
        if turn_id is None:
            turn_id = new_id("turn")
        else:
            check_new_id(session, turn_id)
        definition = session_settings.apply_overrides(session, spec, overrides)
        for happening in session_settings.told(spec, overrides):
            tx.append(NewEvent(session.tenant_id, session.pk, happening))
        idempotency.remember(caller, once, session=session.public_id, turn=turn_id, run=1)
        message = Message(content, said, dispatched=dispatched)
        begun = begin_locked(tx, caller.key, session, turn_id, message, definition, deadline, live, calls)
        asking.admit_turn(tx.write)
    return begun.accepted(tx, asking.standings)


def check_new_id(session: Session, turn_id: str) -> None:
    """Whether a client may call its turn so; the session is locked."""
    if not turn_id or len(turn_id) > LONGEST_TURN_ID or unstorable(turn_id, ()):
        raise NotPossible(f"a turn's id has 1 to {LONGEST_TURN_ID} characters")
    if Turn.objects.filter(session=session, public_id=turn_id).exists():
        raise NotPossible("this session has had a turn with this id")


@dataclass(frozen=True, slots=True)
class Message:
    """A user's message that begins a turn. ``queued``: the id under which it waited for that."""

    content: Content
    said: UserMessage | None = None
    queued: str | None = None
    dispatched: Dispatched | None = None

    def happening(self, turn_id: str) -> Happening:
        shown: dict[str, Any] = {"content": self.content}
        if self.said is not None and self.said.attachments is not None:
            shown.update(self.said.document())
        payload: dict[str, Any] = {"turn": turn_id, "run": 1, "message": shown}
        if self.queued is not None:
            payload["queued"] = self.queued
        return dispatches.told(Happening(Kind.TURN_STARTED, payload), self.dispatched)

    @property
    def kept(self) -> str | None:
        """What the turn's row has to keep because its message does not tell it."""
        return exact_json.dumps(self.said.document()) if self.said is not None and self.said.attachments is not None else None


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn in its transaction; ``first`` is the place of its first event among the transaction's."""

    turn: int
    public_id: str
    first: int

    def accepted(self, tx: journal.Transaction, standings: tuple[quotas.Standing, ...]) -> Accepted:
        """Once the transaction is over."""
        return Accepted(self.turn, self.public_id, 1, tx.stored[self.first].seq, standings=standings)


def begin(
    tx: journal.Transaction,
    caller: Caller,
    session: Session,
    turn_id: str,
    *,
    content: Content,
    definition: int,
    deadline: float | None,
) -> Begun:
    """A turn with a user message, inside the transaction that has made its session; a seed's open calls are closed."""
    live, calls = what_is_open(session)
    return begin_locked(tx, caller.key, session, turn_id, Message(content), definition, deadline, live, calls)


def begin_locked(
    tx: journal.Transaction,
    key: int | None,
    session: Session,
    turn_id: str,
    message: Message,
    definition: int,
    deadline: float | None,
    live: Turn | None,
    calls: Sequence[ToolCall],
) -> Begun:
    """A turn in a session that is locked. ``live``: the waiting turn that it takes the place of; ``calls``: what is open."""
    now = timezone.now()
    if live is not None:
        _end_waiting(tx, live)
    turn = insert_turn(key, session, turn_id, definition, deadline, message.kept)
    ref = StepRef(session.tenant_id, session.pk, turn, run=1, step=0)
    ended = turn_id if live is None else live.public_id
    happenings = [
        message.happening(turn_id),
        *close_calls(ref, ended, calls, history.REPLACED, history.REPLACED, now, shown=True),
    ]
    title = title_of(message.content) if session.title is None else None
    if title is not None:
        happenings.append(Happening(Kind.TITLE_CHANGED, {"title": title}))
    line = history.message(ref, "user", message.content, now, origin=Origin.CLIENT)
    tx.last([session_settings.begun(session, title), *line])
    first = append_all(tx, session, happenings)
    tx.after_commit(tasks.wake)
    return Begun(turn, turn_id, first)


def _end_waiting(tx: journal.Transaction, turn: Turn) -> None:
    Turn.objects.filter(pk=turn.pk).update(state=TurnState.CANCELLED, stop_reason="end_turn", ended_at=Now())
    payload = {"turn": turn.public_id, "run": turn.run, "reason": "end_turn", "cause": "replaced", "in_run": False}
    for happening in (Happening(Kind.TURN_CANCELLED, payload), *take_deferred(turn)):
        tx.append(NewEvent(turn.tenant_id, turn.session_id, happening))
    void_forms(turn)
