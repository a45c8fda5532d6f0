"""Sessions that begin with a turn: made and started in one transaction, both or neither."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from agents_app.runtime.messages import Content
from sessions_app.core import turns
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import journal
from sessions_app.core.records import idempotency
from sessions_app.core.records.idempotency import Earlier, Once
from sessions_app.core.sessions import sessions
from sessions_app.core.sessions.sessions import Wanted
from sessions_app.core.tenancy import access, definitions, quotas
from sessions_app.core.turns import Accepted
from sessions_app.models import Session


@dataclass(frozen=True, slots=True)
class Opened:
    session: Session
    accepted: Accepted


def open_session(
    caller: Caller, wanted: Wanted, content: Content, once: Once | None = None, deadline: float | None = None
) -> Opened:
    """A session with its seed, and a turn in it with a user message, which core.base.content has checked.

    A repeated request gets the session and the turn of the first.
    """

    def recalled(earlier: Earlier) -> Opened:
        session = access.session(caller, earlier.session)
        return Opened(session, turns.accepted_before(session, earlier))

    return idempotency.once_only(caller, once, recalled, partial(_open, caller, wanted, content, once, deadline))


def _open(caller: Caller, wanted: Wanted, content: Content, once: Once | None, deadline: float | None) -> Opened:
    spec = sessions.checked(caller, wanted)
    definitions.prepare(spec.name)
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session_id, turn_id = new_id("sess"), new_id("turn")
        # Before any lock: whoever sends the same request at the same moment waits here.
        idempotency.remember(caller, once, session=session_id, turn=turn_id, run=1)
        asking.take_turn()
        session = sessions.make(tx, caller, spec, session_id, wanted)
        definition = definitions.resolve(spec)
        begun = turns.begin(tx, caller, session, turn_id, content=content, definition=definition, deadline=deadline)
        asking.admit_session(tx.write)
        asking.admit_turn(tx.write)
    return Opened(session, begun.accepted(tx, asking.standings))
