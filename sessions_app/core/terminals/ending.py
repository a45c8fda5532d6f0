"""The end of a terminal's process, and changes that the program makes: title and directory. Called by services and sweeps.

Each is refused if the terminal is not the caller's any more: ``fence`` is the number that its service got with the claim.
"""

from __future__ import annotations

from django.db.models.functions import Now

from sessions_app.core.base import journal_keys
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.terminals import listing
from sessions_app.models import Terminal, TerminalState


def exited(terminal: int, fence: int, code: int | None, *, message: str = "", lost: bool = False) -> bool:
    """The process has ended: with this code, or without one, because a signal or a failure ended it.

    ``message``: a last line of output. ``lost``: nobody knows how it ended, because its service is gone. False if the terminal
    was disposed or has ended before. Nothing of an older fence can be appended afterwards.
    """
    with journal.transaction() as tx:
        row = _lock(terminal, fence)
        if row is None or row.state == TerminalState.EXITED:
            return False
        Terminal.objects.filter(pk=row.pk).update(
            state=TerminalState.EXITED, exit_code=code, exited_at=Now(), fence=row.fence + 1
        )
        if message:
            _append(tx, row, Happening(Kind.TERMINAL_DATA, {"delta": message}), row.fence + 1)
        payload: dict[str, object] = {"lost": True} if lost else {} if code is None else {"code": code}
        _append(tx, row, Happening(Kind.TERMINAL_EXITED, payload), row.fence + 1)
        listing.append_change(tx, row.tenant_id)
    return True


def retitle(terminal: int, fence: int, title: str) -> bool:
    """The program has set a title."""
    with journal.transaction() as tx:
        row = _lock(terminal, fence)
        if row is None or row.title == title:
            return False
        Terminal.objects.filter(pk=row.pk).update(title=title)
        _append(tx, row, Happening(Kind.TERMINAL_TITLE_CHANGED, {"title": title}), fence)
        listing.append_change(tx, row.tenant_id)
    return True


def change_directory(terminal: int, fence: int, cwd: str) -> bool:
    """The shell has changed its directory. ``cwd``: a URI."""
    with journal.transaction() as tx:
        row = _lock(terminal, fence)
        if row is None or row.cwd == cwd:
            return False
        Terminal.objects.filter(pk=row.pk).update(cwd=cwd)
        _append(tx, row, Happening(Kind.TERMINAL_CWD_CHANGED, {"cwd": cwd}), fence)
    return True


def _lock(terminal: int, fence: int) -> Terminal | None:
    return Terminal.objects.select_for_update(no_key=True).filter(pk=terminal, fence=fence).first()


def _append(tx: journal.Transaction, row: Terminal, happening: Happening, fence: int) -> None:
    tx.append(NewEvent(row.tenant_id, journal_keys.of_terminal(row.pk), happening, fence))
