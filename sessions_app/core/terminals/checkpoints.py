"""Stores what terminals show, so that snapshots read few events and old output can be deleted from the journal.

A checkpoint is made from the journal, so any process can make one.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction

from sessions_app.core.base import journal_keys
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.terminals import state
from sessions_app.core.terminals.screen import Screen
from sessions_app.models import Terminal, TerminalScreen

_BATCH = 1000
_COUNTED_STEP = 4096
"""A smaller change of the stored bytes is not counted yet."""


def store(terminal: int) -> int:
    """Store what the terminal shows now; returns the number of the last event that is included."""
    with journal.snapshot():
        before = TerminalScreen.objects.filter(pk=terminal).values_list("seq", flat=True).first()
        if before is None:
            return 0
        screen, seq = state.read_screen(terminal)
    # A stored screen includes only what cannot be lost, because its events are not read again.
    journal.barrier()
    if seq > before:
        _replace(terminal, before, screen, seq)
    return seq


def _replace(terminal: int, before: int, screen: Screen, seq: int) -> None:
    content = screen.text()
    with transaction.atomic():
        rows = TerminalScreen.objects.filter(pk=terminal, seq=before)
        counted = rows.select_for_update().values_list("counted", flat=True).first()
        if counted is None:
            return
        # Read after the lock: what is stored after the terminal is disposed is not counted, as nobody subtracts it.
        row = Terminal.objects.filter(pk=terminal).only("tenant_id", "line").first()
        grown = len(content.encode()) - counted
        if row is None or abs(grown) < _COUNTED_STEP:
            grown = 0
        else:
            usage_entries.record_output(row.tenant_id, row.line, grown)
        rows.update(content=content, detects=screen.detects, seq=seq, counted=counted + grown)


def prune(terminal: int, through: int) -> None:
    """Delete output and input that a checkpoint covers and that no client needs for a replay any more."""
    before = live_workers.database_clock() - timedelta(seconds=settings.AGENTHOST_TERMINAL_REPLAY_SECONDS)
    while journal.prune_covered(journal_keys.of_terminal(terminal), through, before, _BATCH) == _BATCH:
        pass
