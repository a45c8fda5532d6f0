"""The state of a terminal at a stream position: the snapshot that a client needs before it follows the events."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.conf import settings

from sessions_app.core.base import journal_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import TerminalNotFound
from sessions_app.core.log import journal
from sessions_app.core.tenancy import api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.core.terminals import access
from sessions_app.core.terminals.screen import Screen
from sessions_app.core.terminals.types import Claim
from sessions_app.models import Terminal, TerminalScreen, TerminalState


@dataclass(frozen=True, slots=True)
class TerminalView:
    """``seq``: the number of the last event that is included."""

    seq: int
    title: str
    claim: Claim
    cwd: str
    cols: int
    rows: int
    exit_code: int | None
    screen: Screen = field(repr=False)
    has_exited: bool = False


def read(caller: Caller, terminal: Terminal) -> TerminalView:
    """The row, the stored screen, the later events and the counter, in one database snapshot."""
    api_audit.read(caller, Action.TERMINAL_READ, f"terminal {terminal.public_id}")
    with journal.snapshot():
        row = access.visible(caller).filter(pk=terminal.pk).first() or access.kept(caller).filter(pk=terminal.pk).first()
        if row is None:
            raise TerminalNotFound
        seq, _ = journal.counter_and_sessions(caller.tenant)
        screen, _ = read_screen(row.pk)
    journal.barrier()
    has_exited = row.state == TerminalState.EXITED or row.disposed_at is not None
    claim = Claim.read(row.claim)
    return TerminalView(seq, row.title, claim, row.cwd, row.cols, row.rows, row.exit_code, screen, has_exited=has_exited)


def read_screen(terminal: int) -> tuple[Screen, int]:
    """What a terminal shows after its last event, and that event's number, in the caller's snapshot."""
    stored = TerminalScreen.objects.get(pk=terminal)
    screen = Screen.read(stored.content, settings.AGENTHOST_TERMINAL_SCROLLBACK, detects=stored.detects)
    seq = stored.seq
    for event in journal.events_of(journal_keys.of_terminal(terminal), seq):
        screen.apply(event.kind, event.data)
        seq = event.seq
    return screen, seq
