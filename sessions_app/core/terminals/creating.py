"""Creates terminals: the row, which a terminal service claims, and the events."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core import workspaces
from sessions_app.core.base import journal_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible, SessionNotFound, TerminalTaken
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import access as sessions
from sessions_app.core.tenancy import quotas
from sessions_app.core.terminals import access, availability, listing
from sessions_app.core.terminals.types import DEFAULT_COLS, DEFAULT_ROWS, LONGEST_TITLE, MOST_CELLS, Claim
from sessions_app.core.workspaces import Place, places
from sessions_app.models import LONGEST_URI, Session, Terminal, TerminalScreen, TerminalState, Turn

WAKE = "terminals"
"""The name under which terminal services listen for new terminals."""
_COMMAND_COLS = 120
_LONGEST_COMMAND_TITLE = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """A client's request for a terminal."""

    uri: str
    claim: Claim
    title: str | None = None
    cwd: str | None = None
    cols: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class ForCall:
    """A command that a session's tool call runs. ``cwd``: an existing directory of the session's workspace, as a URI.

    ``network``: the hosts that the agent's commands may reach; None: it has no network.
    """

    session: int
    turn: int
    call: str
    line: str
    cwd: str
    network: tuple[str, ...] | None = None
    trace: str | None = None
    """The traceparent for the command's environment."""


def create(caller: Caller, wanted: Wanted, client: str) -> Terminal:
    """Create a terminal for the client; its shell starts soon after. Uses the disk: called in ``workspaces.threads.run``."""
    if wanted.claim.session is None:
        caller.require_whole_tenant("create terminals other than those of its session")
    _check(wanted, client)
    availability.require()
    session = None if wanted.claim.session is None else addresses.find(caller, wanted.claim.session)
    if access.is_taken(caller.tenant, wanted.uri) or addresses.is_taken(caller, wanted.uri):
        raise TerminalTaken
    place = workspaces.of_terminal(caller, wanted.cwd, session)
    try:
        with quotas.check(caller) as asking, journal.transaction() as tx:
            if session is not None:
                # So that it cannot be deleted meanwhile, which disposes of its terminals.
                session = sessions.lock_session(caller, session)
                wanted = replace(wanted, claim=held_by(wanted.claim, session))
            # Its output will be stored.
            asking.admit_bytes(1)
            row = _insert(tx, _row(caller.tenant, caller.line, wanted, place), session)
    except IntegrityError:
        raise TerminalTaken from None
    broadcast.notify_worker(WAKE, {"terminal": row.pk})
    return row


def create_for_call(wanted: ForCall) -> Terminal:
    """Create a terminal whose shell runs one command of an agent. Uses the disk: called in ``workspaces.threads.run``.

    Raises as ``create``; SessionNotFound if the session or its turn is gone. The terminal belongs to the key that asked for the
    turn, as the turn does.
    """
    availability.require()
    session = Session.objects.filter(pk=wanted.session).first()
    turn = Turn.objects.filter(pk=wanted.turn).values_list("public_id", "api_key__line", "api_key_id").first()
    if session is None or turn is None or turn[2] is None:
        raise SessionNotFound
    home = workspaces.of_session(session)
    place = Place(home.tenant, home.workspace, home.public_id, home.root, places.parse(wanted.cwd)[len(home.root) :])
    public_id = new_id("term")
    claim = held_by(Claim(session=addresses.of(session), turn=turn[0], call=wanted.call), session)
    shown = Wanted(f"{access.OF_COMMANDS}{public_id}", claim, title_of(wanted.line), cols=_COMMAND_COLS)
    with journal.transaction() as tx:
        session = Session.objects.select_for_update(no_key=True).filter(pk=session.pk).first()
        if session is None:
            raise SessionNotFound
        row = _row(session.tenant_id, turn[1] or turn[2], shown, place)
        row.public_id, row.command, row.claim_call = public_id, wanted.line, wanted.call
        row.network = None if wanted.network is None else exact_json.dumps([*wanted.network])
        row.trace = wanted.trace
        row = _insert(tx, row, session)
    broadcast.notify_worker(WAKE, {"terminal": row.pk})
    return row


def held_by(claim: Claim, session: Session) -> Claim:
    """The claim, with what is stored of its session."""
    family = addresses.families_of([session.pk]).get(session.pk, ("", ""))[1]
    return replace(claim, id=session.public_id, agent=session.agent_name, family=family)


def title_of(line: str) -> str:
    """A terminal's title for a command: its first line."""
    first = UNSTORABLE.sub("", line.partition("\n")[0])
    return first if len(first) <= _LONGEST_COMMAND_TITLE else first[: _LONGEST_COMMAND_TITLE - 1] + "…"


def _check(wanted: Wanted, client: str) -> None:
    faults = []
    if len(wanted.uri) > LONGEST_URI or not wanted.uri.isascii():
        faults.append(Fault(("terminal",), f"a terminal's URI may have at most {LONGEST_URI} ASCII characters"))
    if wanted.title is not None and len(wanted.title) > LONGEST_TITLE:
        faults.append(Fault(("name",), f"a terminal's name may have at most {LONGEST_TITLE} characters"))
    faults += size_faults(wanted.cols, wanted.rows)
    if wanted.claim.session is None and wanted.claim.client != client:
        faults.append(Fault(("claim", "clientId"), "must be your own client id"))
    if faults:
        raise InvalidInput(faults)


def size_faults(cols: int | None, rows: int | None) -> list[Fault]:
    sizes = (("cols", cols), ("rows", rows))
    return [
        Fault((name,), f"must be a whole number from 1 to {MOST_CELLS}")
        for name, size in sizes
        if size is not None and not 1 <= size <= MOST_CELLS
    ]


def _row(tenant: int, line: int, wanted: Wanted, place: Place) -> Terminal:
    return Terminal(
        tenant_id=tenant,
        public_id=new_id("term"),
        uri=wanted.uri,
        claim=wanted.claim.text(),
        line=line,
        workspace=place.workspace,
        title=wanted.title or "",
        cwd=place.uri,
        cols=wanted.cols or DEFAULT_COLS,
        rows=wanted.rows or DEFAULT_ROWS,
        state=TerminalState.REQUESTED,
        requested_at=timezone.now(),
    )


def _insert(tx: journal.Transaction, row: Terminal, session: Session | None) -> Terminal:
    # Counted under the counter's lock: of two at once, the second sees the first.
    journal.lock_counter(row.tenant_id)
    _check_limits(row.tenant_id, session)
    row.claim_session = None if session is None else session.pk
    row.agent = "" if session is None else session.agent_name
    row.save(force_insert=True)
    TerminalScreen.objects.create(terminal=row)
    key = journal_keys.of_terminal(row.pk)
    journal.create_tail(key)
    tx.append(NewEvent(row.tenant_id, key, Happening(Kind.TERMINAL_CREATED, {"terminal": row.public_id, "uri": row.uri})))
    listing.append_change(tx, row.tenant_id)
    return row


def _check_limits(tenant: int, session: Session | None) -> None:
    rows = Terminal.objects.filter(tenant_id=tenant)
    most = settings.AGENTHOST_TENANT_TERMINALS
    if rows.count() >= most:
        raise NotPossible(f"this tenant has {most} terminals, which is the limit (AGENTHOST_TENANT_TERMINALS); dispose of some")
    most = settings.AGENTHOST_SESSION_TERMINALS
    if session is not None and rows.filter(claim_session=session.pk).count() >= most:
        raise NotPossible(f"this session has {most} terminals, which is the limit (AGENTHOST_SESSION_TERMINALS); dispose of some")
