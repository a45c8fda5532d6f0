"""Keeps the end of the output of an agent's command: the result of its call names the terminal, which can be read again.

The row and the screen of the disposed terminal stay until the session is deleted. Its events do not.
"""

from __future__ import annotations

from django.db import transaction

from sessions_app.core.base import journal_keys
from sessions_app.core.log import journal
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.terminals import state
from sessions_app.core.terminals.screen import Screen
from sessions_app.models import Session, Terminal, TerminalScreen

MOST_KEPT = 16 * 1024
"""Characters of a command's output that stay."""


def keep(terminal: int) -> bool:
    """Shorten what is left of a disposed terminal; False if nothing of it is kept. Can be repeated after a failure."""
    rows = Terminal.with_disposed.filter(pk=terminal, disposed_at__isnull=False, command__isnull=False)
    row = rows.filter(claim_session__in=Session.objects.values("pk")).first()
    if row is None or row.claim_session is None:
        return False
    with journal.snapshot():
        screen, seq = state.read_screen(terminal)
    journal.barrier()
    screen.shorten(MOST_KEPT)
    _store(row, screen, seq)
    journal.forget_events(journal_keys.of_terminal(terminal), seq)
    with transaction.atomic():
        # Locked, so that it cannot be deleted meanwhile, which forgets what is kept for it.
        if Session.objects.select_for_update(no_key=True).filter(pk=row.claim_session).first() is None:
            return False
        rows.update(kept=True)
    return True


def _store(row: Terminal, screen: Screen, seq: int) -> None:
    content = screen.text()
    with transaction.atomic():
        stored = TerminalScreen.objects.filter(pk=row.pk)
        counted = stored.select_for_update().values_list("counted", flat=True).first() or 0
        size = len(content.encode())
        usage_entries.record_output(row.tenant_id, row.line, size - counted)
        stored.update(content=content, detects=screen.detects, seq=seq, counted=size)


def forget_of_session(session: int) -> None:
    """Housekeeping removes what is kept for a session that is being deleted. Its row is locked."""
    Terminal.with_disposed.filter(claim_session=session, kept=True).update(kept=False)
