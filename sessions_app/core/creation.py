"""Sessions that a client of AHP makes: under a URI of its choice, with all tools of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sessions_app.core import access, addresses, agents, clients, journal, quotas, session_changes, sessions
from sessions_app.core.caller import Caller
from sessions_app.core.errors import Fault, InvalidInput
from sessions_app.core.identifiers import new_id
from sessions_app.core.session_changes import Approval
from sessions_app.models import LONGEST_URI, Session


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a session comes from: the turns of another, up to and with this one."""

    session: Session
    turn: str


def create(
    caller: Caller,
    *,
    uri: str,
    agent: str | None,
    model: str | None = None,
    options: Mapping[str, str] | None = None,
    approval: Approval | None = None,
    client: clients.Entry | None = None,
    fork: Fork | None = None,
) -> Session:
    """A session with this URI. ``agent`` None: the fork's, which also gives the model and options not named."""
    if len(uri) > LONGEST_URI or not uri.isascii():
        raise InvalidInput([Fault(("session",), f"a URI has at most {LONGEST_URI} ASCII characters")])
    name = agent or (fork.session.agent_name if fork is not None else "")
    spec = agents.known(caller, name)
    given = dict(options or {})
    session_changes.check_options(spec, given)
    if model is not None:
        session_changes.check_model(spec, model, None)
        if agents.has_models(spec):
            given[agents.MODEL] = model
    refs = [{"name": tool.name} for tool in spec.exposed_tools]
    if client is not None:
        clients.check_tools(None, name, client.tools)
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = sessions.make(
            tx, caller, spec, new_id("sess"), tool_refs=refs, options=given, client_tools=[], seed=[], uri=uri
        )
        addresses.take(caller, session, uri)
        if approval is not None:
            Session.objects.filter(pk=session.pk).update(approval=approval)
        if client is not None:
            clients.put(session, client)
            adopted = clients.adopted([], client.id, client.customizations or [])
            if adopted:
                clients.keep_customizations(session, adopted)
        asking.admit_session()
    return access.session_of_row(caller, session.pk)
