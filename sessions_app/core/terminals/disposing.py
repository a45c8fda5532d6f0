"""Disposes of terminals: they disappear at once, and their services end the processes. Housekeeping removes the rows later."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from sessions_app.core.base import journal_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.tenancy import api_audit, usage_entries
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.terminals import access, keeping, listing
from sessions_app.models import CallState, Session, Terminal, TerminalScreen, ToolCall


def dispose(caller: Caller, terminal: Terminal) -> None:
    with journal.transaction() as tx:
        row = access.lock(caller, terminal)
        api_audit.record(caller, Action.TERMINAL_ENDED, f"terminal {row.public_id}")
        _dispose(tx, [row])


def dispose_of_session(tx: journal.Transaction, session: Session) -> None:
    """Dispose of the terminals that a session has, in the transaction that deletes it. The session is locked."""
    keeping.forget_of_session(session.pk)
    rows = Terminal.objects.select_for_update(no_key=True).filter(claim_session=session.pk).order_by("pk")
    if found := list(rows):
        _dispose(tx, found)


def dispose_in_workspace(workspace: int) -> int:
    """Dispose of the terminals whose programs work in a workspace; how many there were."""
    return sum(map(dispose_row, Terminal.objects.filter(workspace=workspace).values_list("pk", flat=True)))


def dispose_row(terminal: int) -> bool:
    """Dispose of a terminal for the server or its operator; False if it is gone."""
    with journal.transaction(waiting=False) as tx:
        row = Terminal.objects.select_for_update(no_key=True).filter(pk=terminal).first()
        if row is not None:
            _dispose(tx, [row])
    return row is not None


def dispose_for_call(terminal: int) -> bool:
    """Dispose of a terminal whose command a tool call waits for; False if it is gone, or no call waits any more (R306)."""
    with journal.transaction() as tx:
        row = Terminal.objects.select_for_update(no_key=True).filter(pk=terminal, claim_call__isnull=False).first()
        if row is not None:
            _dispose(tx, [row])
    return row is not None


def dispose_of_call(session: int, call: str) -> None:
    """Dispose of the terminals that a session's tool call has waited for."""
    for terminal in Terminal.objects.filter(claim_session=session, claim_call=call).values_list("pk", flat=True):
        dispose_for_call(terminal)


def abandoned(most: int) -> list[int]:
    """Terminals whose commands a tool call waited for that is not running any more: it was cancelled, or its worker died."""
    calls = ToolCall.objects.filter(session_id=OuterRef("claim_session"), call_id=OuterRef("claim_call"))
    rows = Terminal.objects.filter(~Exists(calls.filter(state=CallState.RUNNING)), claim_call__isnull=False)
    return list(rows.order_by("pk").values_list("pk", flat=True)[:most])


def _dispose(tx: journal.Transaction, rows: Sequence[Terminal]) -> None:
    numbers = [row.pk for row in rows]
    Terminal.objects.filter(pk__in=numbers).update(disposed_at=Now())
    screens = TerminalScreen.objects.filter(pk__in=numbers, counted__gt=0)
    counted = dict(screens.select_for_update().order_by("pk").values_list("pk", "counted"))
    for row in rows:
        usage_entries.record_output(row.tenant_id, row.line, -counted.get(row.pk, 0))
    if counted:
        screens.update(counted=0)
    for row in rows:
        gone = Happening(Kind.TERMINAL_DISPOSED, {"terminal": row.public_id})
        tx.append(NewEvent(row.tenant_id, journal_keys.of_terminal(row.pk), gone))
    listing.append_change(tx, rows[0].tenant_id)
