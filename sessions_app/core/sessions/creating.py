"""Creates sessions, for all protocols.

An application sends all settings (``SessionRequest``, AAP). A client sends a URI and takes other settings from the agent or
from the session that it forks (``ClientSessionRequest``, AHP). Both resolve to a ``NewSession``, which one transaction
stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.messages import Content
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base import raw_sql, row_ids
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import AddressTaken, Fault, InvalidInput
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import addresses, clients, history, idempotency, session_changes, session_settings
from sessions_app.core.records import options as session_options
from sessions_app.core.records.idempotency import EarlierResult, IdempotencyKey
from sessions_app.core.records.session_changes import Approval
from sessions_app.core.sessions import forking
from sessions_app.core.tenancy import access, agents, audit, definitions, quotas, usage_entries
from sessions_app.core.terminals import access as terminals
from sessions_app.core.turns import Accepted
from sessions_app.core.workspaces import making
from sessions_app.core.workspaces.making import WorkingDirectory
from sessions_app.models import LONGEST_URI, Measure, Session

LONGEST_DIRECTORY = 4096


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, for the audit."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Fork:
    """Start the new session with another session's turns up to this one, including it.

    ``by``: the operator who forks; recorded in the audit.
    """

    session: Session
    turn: str
    by: Actor | None = None


@dataclass(frozen=True, slots=True)
class FirstTurn:
    """A turn that starts with its session. ``content`` was checked by core.base.content."""

    content: Content = field(repr=False)
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class NewSession:
    """The checked settings and contents of a session to create."""

    spec: AgentSpec
    tool_refs: list[dict[str, Any]] | None
    options: Mapping[str, str] = field(repr=False)
    client_tools: list[dict[str, Any]] = field(default_factory=list)
    seed: list[dict[str, Any]] = field(default_factory=list)
    uri: str | None = None
    family: str = "0.1"
    approval: Approval | None = None
    client: clients.Entry | None = None
    directory: str | None = None
    workspace: WorkingDirectory | None = None
    fork: Fork | None = None

    @property
    def has_more_rows(self) -> bool:
        """Whether more is stored than the session's row and its first turn."""
        parts = (self.options, self.seed, self.uri, self.approval, self.client, self.directory, self.fork)
        return any(part is not None and part not in ({}, []) for part in parts)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """An application's request for a session. ``seed`` was checked by content.seed_faults."""

    agent: str
    tool_refs: list[dict[str, Any]] | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_tools: list[dict[str, Any]] = field(default_factory=list)
    seed: list[dict[str, Any]] = field(default_factory=list)

    def resolve(self, caller: Caller) -> NewSession:
        """InvalidInput if the agent does not accept these settings."""
        spec = agents.for_creation(caller, self.agent)
        faults = session_settings.faults(
            spec, tool_refs=self.tool_refs, options=self.options, client_tools=self.client_tools, before=None
        )
        if faults:
            raise InvalidInput(faults)
        return NewSession(spec, self.tool_refs, self.options, self.client_tools, self.seed)


@dataclass(frozen=True, slots=True)
class ClientSessionRequest:
    """An AHP client's request for a session: a URI of its choice, and all tools of the agent.

    ``agent`` None: the forked session's. A fork also provides model, options and directory if they are not given.
    ``directory``: shown to clients. ``workspace``: the one to which it leads; without one, it is a folder of the client, or one
    that its tools know. ``family``: of the version of AHP in which the client chose the URI.
    """

    uri: str
    agent: str | None
    model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    approval: Approval | None = None
    client: clients.Entry | None = None
    directory: str | None = None
    workspace: WorkingDirectory | None = None
    fork: Fork | None = None
    family: str = "0.1"

    def resolve(self, caller: Caller) -> NewSession:
        if len(self.uri) > LONGEST_URI or not self.uri.isascii():
            raise InvalidInput([Fault(("session",), f"a session's URI may have at most {LONGEST_URI} ASCII characters")])
        if self.directory is not None and len(self.directory) > LONGEST_DIRECTORY:
            raise InvalidInput([Fault(("workingDirectory",), f"a folder's URI may have at most {LONGEST_DIRECTORY} characters")])
        name = self.agent if self.agent is not None else (self.fork.session.agent_name if self.fork is not None else "")
        spec = agents.known(caller, name)
        given, approval = dict(self.options), self.approval
        session_changes.check_options(spec, given)
        refs: list[dict[str, Any]] = [{"name": tool.name} for tool in spec.exposed_tools]
        if self.fork is not None:
            source = self.fork.session
            given = {**forking.options_of(source, spec), **given}
            if source.agent_name == spec.name:
                approval = approval or ("auto" if source.approval == "auto" else None)
                refs = [ref for ref in exact_json.loads(source.tool_refs or "[]") if spec.tool(ref["name"]) is not None]
        if self.model is not None:
            session_changes.check_model(spec, self.model, None)
            if agents.has_models(spec):
                given[agents.MODEL] = self.model
        if self.client is not None:
            clients.check_tools(None, name, self.client.tools)
        return NewSession(
            spec,
            refs,
            given,
            uri=self.uri,
            family=self.family,
            approval=approval,
            client=self.client,
            directory=self.directory,
            workspace=self.workspace,
            fork=self.fork,
        )


@dataclass(frozen=True, slots=True)
class Created:
    """``accepted``: the first turn, if one was requested; a repeated request gets the answer of the first one.

    ``session`` is None if a request without a turn was repeated: the session may be deleted by now.
    """

    public_id: str
    session: Session | None = None
    accepted: Accepted | None = None


def create(
    caller: Caller,
    request: SessionRequest | ClientSessionRequest,
    *,
    first_turn: FirstTurn | None = None,
    idempotency_key: IdempotencyKey | None = None,
) -> Created:
    """Create a session, and its first turn if there is one, in one transaction. Without a turn the model is not called.

    A repeated request gets the session and the turn of the first one.
    """
    caller.require_whole_tenant("create sessions")

    def repeated(earlier: EarlierResult) -> Created:
        if first_turn is None:
            return Created(earlier.session)
        session = access.session(caller, earlier.session)
        return Created(session.public_id, session, turns.accepted_before(session, earlier))

    def first() -> Created:
        return _create(caller, request.resolve(caller), first_turn, idempotency_key)

    return idempotency.run_once(caller, idempotency_key, repeated, first)


def _create(caller: Caller, new: NewSession, first_turn: FirstTurn | None, idempotency_key: IdempotencyKey | None) -> Created:
    if first_turn is not None:
        definitions.prepare(new.spec.name)
    starts_turn = first_turn is not None
    alone_with = (*quotas.COUNTED_WITH_SESSIONS, *((*quotas.COUNTED_WITH_TURNS, "tokens_per_day") if starts_turn else ()))
    with quotas.check(caller, alone_with, starts_turn=starts_turn) as asking, journal.transaction() as tx:
        session_id, turn_id = new_id("sess"), new_id("turn") if starts_turn else ""
        # The first statements of the transaction's end: an identical concurrent request waits there, before any lock.
        if first_turn is None:
            tx.last(idempotency.record(caller, idempotency_key, session=session_id))
        else:
            tx.last(idempotency.record(caller, idempotency_key, session=session_id, turn=turn_id, run=1))
            asking.take_turn()
        source = None if new.fork is None else access.lock_session(caller, new.fork.session)
        end = None if new.fork is None or source is None else forking.end_of_copy(source, new.fork.turn)
        session = _insert(tx, caller, new, session_id)
        if new.uri is not None:
            if terminals.is_taken(caller.tenant, new.uri):
                raise AddressTaken(new.uri)
            addresses.take(caller, session, new.uri, new.family)
        directory, workspace = new.directory, None
        if source is not None and end is not None:
            forking.copy_history(source, session, end)
            if new.fork is not None and new.fork.by is not None:
                audit.record(
                    actor=new.fork.by.name,
                    address=new.fork.by.address,
                    action=audit.Action.SESSION_FORKED,
                    target=f"session {source.public_id}",
                    tenant_id=caller.tenant,
                    detail=f"into {session_id}, up to turn {new.fork.turn}",
                )
            if directory is None:
                directory, workspace = forking.directory_of(caller, source)
        if new.approval is not None or directory is not None:
            Session.objects.filter(pk=session.pk).update(approval=new.approval or "", directory=directory)
        if new.workspace is not None:
            workspace = making.join(caller, new.workspace, new.spec.name)
        if workspace is not None:
            Session.objects.filter(pk=session.pk).update(workspace=workspace)
        if new.client is not None:
            _activate(session, new.client, stays=new.family != "0.1")
        started = None
        if first_turn is not None:
            definition = definitions.resolve(new.spec)
            started = turns.begin(
                tx,
                caller,
                session,
                turn_id,
                content=first_turn.content,
                model=turns.TurnModel.of(new.spec, new.options),
                definition=definition,
                deadline=first_turn.deadline,
                has_history=bool(new.seed or new.fork),
            )
        asking.admit_session(tx.write)
        if started is not None:
            asking.admit_turn(tx.write)
    access.remember(session)
    return Created(session_id, session, None if started is None else started.accepted(tx, asking.rate_statuses))


def _activate(session: Session, client: clients.Entry, *, stays: bool) -> None:
    """Make the client that creates the session its active client."""
    clients.put(session, client, stays=stays)
    adopted = clients.merged_customizations([], client.id, client.customizations or [])
    if adopted:
        clients.store_customizations(session, adopted)
    usage_entries.record(session, Measure.BYTES, usage_entries.bytes_of_clients(session))


# SQL, because applications create sessions as often as turns.
_COLUMNS = ("tenant_id", "public_id", "agent_name", "tool_refs", "client_tools", "created_by_id", "created_at")
_INSERT = (
    f"insert into sessions_app_session (id, {', '.join(_COLUMNS)}, modified_at)"
    f" values (%s, {', '.join(['%s'] * len(_COLUMNS))}, {{now}})"
)
_INSERT_NOW = _INSERT.replace("(id, ", "(").replace("(%s, ", "(", 1) + " returning id"


def _insert(tx: journal.Transaction, caller: Caller, new: NewSession, public_id: str) -> Session:
    """Insert the session's row, options, seed, tail and events, in this order."""
    now, spec = timezone.now(), new.spec
    refs = None if new.tool_refs is None else exact_json.dumps(new.tool_refs)
    values = (caller.tenant, public_id, spec.name, refs, exact_json.dumps(new.client_tools), caller.key, now)
    row = row_ids.take("sessions_app_session")
    if row is None:
        (((row,),),) = raw_sql.rows_of_each([Statement(_INSERT_NOW, values)])
    else:
        tx.last([Statement(_INSERT, (row, *values))])
    session = Session.from_db(
        "default", ("id", *_COLUMNS, "title", "read", "archived", "approval"), (row, *values, None, False, False, "")
    )
    if new.has_more_rows:
        # They refer to the session's row.
        tx.write()
    session_options.store(session, spec, new.options)
    if new.seed:
        history.add_seed(session, new.seed, {tool["name"] for tool in new.client_tools}, now)
    is_bare = not new.options and not new.seed
    tx.last([journal.new_tail(session.pk), usage_entries.session_created(session, bare=is_bare)])
    uri = new.uri or addresses.default(spec.name, public_id)
    created = Happening(Kind.SESSION_CREATED, {"session": public_id, "agent": spec.name, "uri": uri})
    tx.append(NewEvent(caller.tenant, session.pk, created))
    counted = Happening(Kind.ACTIVE_SESSIONS_CHANGED, {})
    tx.append(NewEvent(caller.tenant, None, counted, sessions=1))
    return session
