"""The journal: an append-only log of events with one number sequence per tenant.

It stores and reads events. core.log.broadcast announces them, and core.base.events defines their kinds.
"""

from sessions_app.core.log.journal.barriers import barrier, barrier_async, close
from sessions_app.core.log.journal.errors import BadUnit, CounterLocked, JournalError, MissingTail, StaleFence, WriterClosed
from sessions_app.core.log.journal.pruning import forget_session, prune, prune_covered
from sessions_app.core.log.journal.reading import (
    Shown,
    Tail,
    before_open_step,
    browse,
    counter_and_sessions,
    counters,
    events_of,
    first_number,
    gaps,
    knows_position,
    latest,
    latest_run_start,
    open_step,
    read_session,
    read_several,
    read_tenant,
    run_start,
    snapshot,
    span,
    tail,
)
from sessions_app.core.log.journal.transactions import (
    Transaction,
    append_for_each,
    create_counter,
    create_tail,
    lock_counter,
    new_tail,
    transaction,
)
from sessions_app.core.log.journal.writer import Writer

__all__ = [
    "BadUnit",
    "CounterLocked",
    "JournalError",
    "MissingTail",
    "Shown",
    "StaleFence",
    "Tail",
    "Transaction",
    "Writer",
    "WriterClosed",
    "append_for_each",
    "barrier",
    "barrier_async",
    "before_open_step",
    "browse",
    "close",
    "counter_and_sessions",
    "counters",
    "create_counter",
    "create_tail",
    "events_of",
    "first_number",
    "forget_session",
    "gaps",
    "knows_position",
    "latest",
    "latest_run_start",
    "lock_counter",
    "new_tail",
    "open_step",
    "prune",
    "prune_covered",
    "read_session",
    "read_several",
    "read_tenant",
    "run_start",
    "snapshot",
    "span",
    "tail",
    "transaction",
]
