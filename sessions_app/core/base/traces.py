"""The trace of a turn: its context is stored with the turn, so that whichever process goes on with it continues the trace.

The turn's own span is recorded by the process that ends it, with the id that was chosen when the turn was accepted: the other
spans refer to it before. Nothing is stored or recorded while tracing is off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from agents_app import tracing
from agents_app.tracing import CONSUMER, INTERNAL, PRODUCER, Attributes, Context

QUEUE = "agenthost.turns"
_MESSAGING: Attributes = {"messaging.system": "celery", "messaging.destination.name": QUEUE}
IN_QUEUE = "agenthost.queue"
"""The attribute with the queue in which a turn is, as its agent names it. In the broker, the default one has another name."""


@dataclass(frozen=True, slots=True)
class TurnTrace:
    """``context``: of the turn's span. ``parent``: the id of the span above it, "" if it has none."""

    context: Context
    parent: str


def of_request() -> str | None:
    """The context of the current request, for a message that will start a turn later."""
    own = tracing.context()
    return None if own is None else _text(own, "")


def of_new_turn(message: str | None = None) -> str | None:
    """The trace of a turn that is accepted now. ``message``: what ``of_request`` returned for the message that starts it."""
    stored = None if message is None else read(message)
    above = tracing.context() if stored is None else stored.context
    if above is None or not tracing.is_on():
        return None
    own = Context(above.trace_id, tracing.new_span_id(), above.sampled, above.state)
    return _text(own, above.span_id)


def read(stored: str | None) -> TurnTrace | None:
    """What was stored; None if nothing was, or nothing that this release can read."""
    if not stored:
        return None
    first, _, state = stored.partition("\n")
    traceparent, _, parent = first.partition(" ")
    found = tracing.parse(traceparent, state)
    return None if found is None else TurnTrace(found, parent)


def _text(own: Context, parent: str) -> str:
    return f"{own.traceparent} {parent}" + (f"\n{own.state}" if own.state else "")


def context_of(stored: str | None) -> Context | None:
    """The context of the turn's span."""
    found = None if not tracing.is_on() else read(stored)
    return None if found is None else found.context


def nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000


def accepted(stored: str | None, began: int, run: int, queue: str) -> None:
    """Record that a transaction which began then has queued a run, and asked for a worker. Called after its COMMIT."""
    if (parent := context_of(stored)) is not None:
        tracing.begin("accept turn", INTERNAL, {"agenthost.run.number": run}, parent=parent, began=began).end()
        sent = {**_MESSAGING, IN_QUEUE: queue, "messaging.operation.type": "send", "messaging.operation.name": "send"}
        tracing.begin(f"send {QUEUE}", PRODUCER, sent, parent=parent).end()


def claimed(parent: Context, queued_at: datetime, queue: str) -> None:
    """Record a claim: its span lasts as long as the turn was queued."""
    taken = {**_MESSAGING, IN_QUEUE: queue, "messaging.operation.type": "receive", "messaging.operation.name": "claim"}
    tracing.begin(f"receive {QUEUE}", CONSUMER, taken, parent=parent, began=nanoseconds(queued_at)).end()


def answered(stored: str | None, waits: Iterable[tuple[str, Attributes, datetime]], by: Context | None) -> None:
    """Record how long clients were waited for: each with the span's name, its attributes and its begin. Called after COMMIT.

    ``by``: the request that has the answers, which is usually of another trace.
    """
    if (parent := context_of(stored)) is None:
        return
    for name, attributes, began in waits:
        span = tracing.begin(name, INTERNAL, attributes, parent=parent, began=nanoseconds(began))
        if by is not None and by.trace_id != parent.trace_id:
            span.link(by)
        span.end()


def link_request(stored: str | None) -> None:
    """Let the current request's span refer to this turn's trace."""
    span, turn = tracing.current.get(), context_of(stored)
    if span is not None and span.context is not None and turn is not None and span.context.trace_id != turn.trace_id:
        span.link(turn)


class _Turn(Protocol):
    public_id: str
    tenant_id: int
    run: int
    queue: str

    @property
    def session(self) -> Any: ...


def ids_of(turn: _Turn) -> Attributes:
    """Attributes of a turn's row, whose session is loaded; empty while tracing is off."""
    return turn_ids(turn.tenant_id, turn.session.public_id, turn.public_id, turn.run, turn.queue) if tracing.is_on() else {}


def turn_ids(tenant: int, session: str, turn: str, run: int, queue: str) -> Attributes:
    return {
        "gen_ai.conversation.id": session,
        "agenthost.tenant.id": tenant,
        "agenthost.turn.id": turn,
        "agenthost.run.number": run,
        IN_QUEUE: queue,
    }


def ended(stored: str | None, began: datetime, agent: str, failure: str, attributes: Attributes) -> None:
    """Record the turn's own span. ``failure``: the code of its error, else "". Called after COMMIT."""
    found = None if not tracing.is_on() else read(stored)
    if found is None or not found.context.sampled:
        return
    own = found.context
    parent = Context(own.trace_id, found.parent or "0" * 16, sampled=True, state=own.state)
    about: Attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent, **attributes}
    span = tracing.begin(f"invoke_agent {agent}", INTERNAL, about, parent=parent, began=nanoseconds(began), span_id=own.span_id)
    if not found.parent:
        span.parent_id = ""
    if failure:
        span.fail(failure)
    span.end()
