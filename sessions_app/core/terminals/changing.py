"""Changes to a terminal by its clients: input, size, claim, title, and clearing it.

Each is one transaction that ends with an event, which the terminal's service follows and which is the client's echo.
"""

from __future__ import annotations

import threading
import time

from django.conf import settings

from sessions_app.core.base import content, journal_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible, SessionNotFound
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import addresses, dispatches
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.terminals import access, creating, listing
from sessions_app.core.terminals.types import LONGEST_CLIENT, LONGEST_TITLE, Claim
from sessions_app.models import Session, Terminal, TerminalState

MOST_INPUT = 64 * 1024
"""Characters of one input."""
_INPUT_PER_SECOND = 256 * 1024
_INPUT_AT_ONCE = 1024 * 1024
"""Characters that one process accepts for one terminal."""
_KNOWN_BUCKETS = 10_000
_input_lock = threading.Lock()
_input_buckets: dict[int, tuple[float, float]] = {}


def _append(tx: journal.Transaction, row: Terminal, happening: Happening, dispatched: Dispatched | None) -> None:
    key = journal_keys.of_terminal(row.pk)
    tx.append(NewEvent(row.tenant_id, key, dispatches.with_origin(happening, dispatched)))


def type_into(caller: Caller, terminal: Terminal, data: str, *, dispatched: Dispatched | None) -> None:
    """Send input to the program. What the program does not read is limited by its service.

    ``terminal``: as ``access`` has just found it for the caller.
    """
    if len(data) > MOST_INPUT:
        raise InvalidInput([Fault(("data",), f"has {len(data):,} characters; the limit is {MOST_INPUT:,}")])
    with journal.transaction() as tx:
        dispatches.record(caller, dispatched)
        # As it was read for this request, and without a lock: input changes no row, and an input that crosses the program's end
        # is lost like any other.
        if terminal.state == TerminalState.EXITED:
            raise NotPossible("the terminal's process has exited")
        _take_input(terminal.pk, len(data))
        _append(tx, terminal, Happening(Kind.TERMINAL_INPUT, {"data": data}), dispatched)


def _take_input(terminal: int, size: int) -> None:
    """Count input against the terminal's rate in this process."""
    now = time.monotonic()
    with _input_lock:
        left, filled = _input_buckets.pop(terminal, (float(_INPUT_AT_ONCE), now))
        left = min(_INPUT_AT_ONCE, left + (now - filled) * _INPUT_PER_SECOND)
        while len(_input_buckets) >= _KNOWN_BUCKETS:
            del _input_buckets[next(iter(_input_buckets))]
        _input_buckets[terminal] = (left - size if left >= size else left, now)
    if left < size:
        raise NotPossible(f"more than {_INPUT_PER_SECOND:,} characters of input per second")


def resize(caller: Caller, terminal: Terminal, cols: int, rows: int, *, dispatched: Dispatched | None) -> None:
    if faults := creating.size_faults(cols, rows):
        raise InvalidInput(faults)
    with journal.transaction() as tx:
        row = access.lock(caller, terminal)
        dispatches.record(caller, dispatched)
        Terminal.objects.filter(pk=row.pk).update(cols=cols, rows=rows)
        _append(tx, row, Happening(Kind.TERMINAL_RESIZED, {"cols": cols, "rows": rows}), dispatched)


def claim(caller: Caller, terminal: Terminal, wanted: Claim, client: str, *, dispatched: Dispatched | None) -> None:
    """Give the terminal to someone else (R306). ``client``: the one that asks."""
    if wanted.client is not None and not (0 < len(wanted.client) <= LONGEST_CLIENT and wanted.client.isprintable()):
        raise InvalidInput([Fault(("claim", "clientId"), f"must have 1 to {LONGEST_CLIENT} printable characters")])
    session = _session_of(caller, wanted)
    with journal.transaction() as tx:
        row = access.lock(caller, terminal)
        dispatches.record(caller, dispatched)
        before = Claim.read(row.claim)
        is_handover = before.client is not None and before.client == client
        is_release = before.is_for_call and wanted == Claim(session=before.session)
        if not is_handover and not is_release:
            holder = "another client" if before.client is not None else "a session"
            raise NotPossible(f"{holder} has this terminal")
        _check_room(row, session)
        agent = ""
        if session is not None:
            agent, wanted = session.agent_name, creating.held_by(wanted, session)
        Terminal.objects.filter(pk=row.pk).update(
            claim=wanted.text(), claim_session=None if session is None else session.pk, agent=agent, claim_call=None
        )
        claimant = None if session is None else session.pk
        payload = {"claim": wanted.document(), "agent": agent, "line": row.line, "session": claimant}
        _append(tx, row, Happening(Kind.TERMINAL_CLAIMED, payload), dispatched)
        listing.append_change(tx, row.tenant_id)


def _session_of(caller: Caller, wanted: Claim) -> Session | None:
    try:
        return None if wanted.session is None else addresses.find(caller, wanted.session)
    except SessionNotFound:
        raise NotPossible("there is no session with the URI in the claim") from None


def _check_room(row: Terminal, session: Session | None) -> None:
    if session is None or row.claim_session == session.pk:
        return
    # Locked, so that it cannot be deleted meanwhile, which disposes of its terminals.
    if Session.objects.select_for_update(no_key=True).filter(pk=session.pk).first() is None:
        raise NotPossible("there is no session with the URI in the claim")
    most = settings.AGENTHOST_SESSION_TERMINALS
    if Terminal.objects.filter(claim_session=session.pk).count() >= most:
        raise NotPossible(f"the session has {most} terminals, which is the limit (AGENTHOST_SESSION_TERMINALS)")


def rename(caller: Caller, terminal: Terminal, title: str, *, dispatched: Dispatched | None) -> None:
    faults = content.unstorable(title, ("title",))
    if len(title) > LONGEST_TITLE:
        faults = [Fault(("title",), f"a terminal's title may have at most {LONGEST_TITLE} characters")]
    if faults:
        raise InvalidInput(faults)
    with journal.transaction() as tx:
        row = access.lock(caller, terminal)
        dispatches.record(caller, dispatched)
        Terminal.objects.filter(pk=row.pk).update(title=title)
        _append(tx, row, Happening(Kind.TERMINAL_TITLE_CHANGED, {"title": title}), dispatched)
        if row.title != title:
            listing.append_change(tx, row.tenant_id)


def clear(caller: Caller, terminal: Terminal, *, dispatched: Dispatched | None) -> None:
    with journal.transaction() as tx:
        row = access.lock(caller, terminal)
        dispatches.record(caller, dispatched)
        _append(tx, row, Happening(Kind.TERMINAL_CLEARED, {}), dispatched)
