"""Forks of sessions by operators of the server."""

from __future__ import annotations

from sessions_app.core.base.errors import NotPossible
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.records import addresses
from sessions_app.core.sessions import creating
from sessions_app.core.sessions.creating import Actor, ClientSessionRequest, Created, Fork
from sessions_app.core.tenancy import keys
from sessions_app.models import Session


def fork(session: Session, turn: str, *, actor: str, address: str) -> Created:
    """A new session of the same tenant with a copy of the turns up to this one. No model is called.

    It counts for the key that created the session, and has its rights. NotPossible if that key is not valid any more;
    TurnUnknown; TurnAlreadyRunning; the errors of quotas.
    """
    caller = keys.callers([] if session.created_by_id is None else [session.created_by_id]).get(session.created_by_id or 0)
    if caller is None:
        raise NotPossible("the key that created this session is not valid any more, so nothing can be created with its rights")
    uri = addresses.default(session.agent_name, new_id("fork"))
    source = Fork(session, turn, by=Actor(actor, address))
    return creating.create(caller, ClientSessionRequest(uri=uri, agent=None, fork=source))
