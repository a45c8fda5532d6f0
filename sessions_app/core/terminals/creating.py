"""Creates terminals: the row, which a terminal service claims, and the events."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone

from sessions_app.core import workspaces
from sessions_app.core.base import journal_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible, TerminalTaken
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import access as sessions
from sessions_app.core.terminals import access, availability, listing
from sessions_app.core.terminals.types import DEFAULT_COLS, DEFAULT_ROWS, LONGEST_TITLE, MOST_CELLS, Claim
from sessions_app.core.workspaces import Place
from sessions_app.models import LONGEST_URI, Session, Terminal, TerminalScreen, TerminalState

WAKE = "terminals"
"""The name under which terminal services listen for new terminals."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A client's request for a terminal."""

    uri: str
    claim: Claim
    title: str | None = None
    cwd: str | None = None
    cols: int | None = None
    rows: int | None = None


def create(caller: Caller, wanted: Wanted, client: str) -> Terminal:
    """Create a terminal for the client; its shell starts soon after. Uses the disk: called in ``workspaces.threads.run``."""
    _check(wanted, client)
    availability.require()
    session = None if wanted.claim.session is None else addresses.find(caller, wanted.claim.session)
    if access.is_taken(caller.tenant, wanted.uri) or addresses.is_taken(caller, wanted.uri):
        raise TerminalTaken
    place = workspaces.of_terminal(caller, wanted.cwd, session)
    try:
        with journal.transaction() as tx:
            if session is not None:
                # So that it cannot be deleted meanwhile, which disposes of its terminals.
                session = sessions.lock_session(caller, session)
            row = _insert(tx, caller, wanted, session, place)
    except IntegrityError:
        raise TerminalTaken from None
    broadcast.notify_worker(WAKE, {"terminal": row.pk})
    return row


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


def _insert(tx: journal.Transaction, caller: Caller, wanted: Wanted, session: Session | None, place: Place) -> Terminal:
    # Counted under the counter's lock: of two at once, the second sees the first.
    journal.lock_counter(caller.tenant)
    _check_limits(caller.tenant, session)
    row = Terminal.objects.create(
        tenant_id=caller.tenant,
        public_id=new_id("term"),
        uri=wanted.uri,
        claim=wanted.claim.text(),
        claim_session=None if session is None else session.pk,
        agent="" if session is None else session.agent_name,
        line=caller.line,
        workspace=place.workspace,
        title=wanted.title or "",
        cwd=place.uri,
        cols=wanted.cols or DEFAULT_COLS,
        rows=wanted.rows or DEFAULT_ROWS,
        state=TerminalState.REQUESTED,
        requested_at=timezone.now(),
    )
    TerminalScreen.objects.create(terminal=row)
    key = journal_keys.of_terminal(row.pk)
    journal.create_tail(key)
    tx.append(NewEvent(caller.tenant, key, Happening(Kind.TERMINAL_CREATED, {"terminal": row.public_id, "uri": row.uri})))
    listing.append_change(tx, caller.tenant)
    return row


def _check_limits(tenant: int, session: Session | None) -> None:
    rows = Terminal.objects.filter(tenant_id=tenant)
    most = settings.AGENTHOST_TENANT_TERMINALS
    if rows.count() >= most:
        raise NotPossible(f"this tenant has {most} terminals, which is the limit (AGENTHOST_TENANT_TERMINALS); dispose of some")
    most = settings.AGENTHOST_SESSION_TERMINALS
    if session is not None and rows.filter(claim_session=session.pk).count() >= most:
        raise NotPossible(f"this session has {most} terminals, which is the limit (AGENTHOST_SESSION_TERMINALS); dispose of some")
