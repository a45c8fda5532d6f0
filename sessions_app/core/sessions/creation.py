"""Sessions that a client of AHP makes: under a URI of its choice, with all tools of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents_app import exact_json
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import journal
from sessions_app.core.records import addresses, clients, session_changes
from sessions_app.core.records.session_changes import Approval
from sessions_app.core.sessions import forking, sessions
from sessions_app.core.tenancy import access, agents, quotas
from sessions_app.models import LONGEST_URI, Measure, Session

LONGEST_DIRECTORY = 4096


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
    directory: str | None = None,
    fork: Fork | None = None,
) -> Session:
    """A session with this URI. ``agent`` None: the fork's, which also gives the model, options and directory not named.

    ``directory`` is only shown: a folder of the client's, or one that its tools know.
    """
    if len(uri) > LONGEST_URI or not uri.isascii():
        raise InvalidInput([Fault(("session",), f"a URI has at most {LONGEST_URI} ASCII characters")])
    if directory is not None and len(directory) > LONGEST_DIRECTORY:
        raise InvalidInput([Fault(("workingDirectory",), f"a folder's URI has at most {LONGEST_DIRECTORY} characters")])
    name = agent if agent is not None else (fork.session.agent_name if fork is not None else "")
    spec = agents.known(caller, name)
    given = dict(options or {})
    session_changes.check_options(spec, given)
    refs: list[dict[str, Any]] = [{"name": tool.name} for tool in spec.exposed_tools]
    if fork is not None:
        given = {**forking.options_of(fork.session, spec), **given}
        if fork.session.agent_name == spec.name:
            approval = approval or ("auto" if fork.session.approval == "auto" else None)
            refs = [ref for ref in exact_json.loads(fork.session.tool_refs or "[]") if spec.tool(ref["name"]) is not None]
    if model is not None:
        session_changes.check_model(spec, model, None)
        if agents.has_models(spec):
            given[agents.MODEL] = model
    if client is not None:
        clients.check_tools(None, name, client.tools)
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        end: tuple[int, int] | None = None
        if fork is not None:
            source = access.lock_session(caller, fork.session)
            end = forking.place_of(source, fork.turn)
        session = sessions.make(tx, caller, spec, new_id("sess"), sessions.Wanted(spec.name, refs, given), uri)
        addresses.take(caller, session, uri)
        if end is not None:
            forking.copy(source, session, end)
            directory = directory if directory is not None else source.directory
        if approval is not None or directory is not None:
            Session.objects.filter(pk=session.pk).update(approval=approval or "", directory=directory)
        if client is not None:
            clients.put(session, client)
            adopted = clients.adopted([], client.id, client.customizations or [])
            if adopted:
                clients.keep_customizations(session, adopted)
            quotas.enter(session, Measure.BYTES, quotas.bytes_of_guests(session))
        asking.admit_session(tx.write)
    return access.session_of_row(caller, session.pk)
