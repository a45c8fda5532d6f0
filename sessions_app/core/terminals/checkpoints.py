"""Stores what terminals show, so that snapshots read few events and old output can be deleted from the journal.

A checkpoint is made from the journal, so any process can make one.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from sessions_app.core.base import journal_keys
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers
from sessions_app.core.terminals import state
from sessions_app.models import TerminalScreen

_BATCH = 1000


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
        TerminalScreen.objects.filter(pk=terminal, seq=before).update(content=screen.text(), detects=screen.detects, seq=seq)
    return seq


def prune(terminal: int, through: int) -> None:
    """Delete output and input that a checkpoint covers and that no client needs for a replay any more."""
    before = live_workers.database_clock() - timedelta(seconds=settings.AGENTHOST_TERMINAL_REPLAY_SECONDS)
    while journal.prune_covered(journal_keys.of_terminal(terminal), through, before, _BATCH) == _BATCH:
        pass
