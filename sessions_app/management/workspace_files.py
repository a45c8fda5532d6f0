"""Shared by the commands for workspaces: errors of files in one line, and progress on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError

from sessions_app.core.base.errors import DomainError, FilesAway, InvalidInput, TemplateUnusable, WorkspacesOff
from sessions_app.core.workspaces import volume
from sessions_app.workspace.errors import FileError
from sessions_app.workspace.limits import amount

_EVERY = 0.5


@contextmanager
def problems() -> Iterator[None]:
    """Raises CommandError for errors of workspaces and files."""
    try:
        yield
    except InvalidInput:
        raise
    except WorkspacesOff:
        raise CommandError("There are no workspaces: AGENTHOST_WORKSPACES_DIR is not set in this environment.") from None
    except TemplateUnusable as error:
        raise CommandError(f"{error}; the log has the reason") from None
    except FilesAway:
        raise CommandError(str(volume.fault(now=True) or "The disk is full or too slow.")) from None
    except (FileError, DomainError) as error:
        raise CommandError(str(error)) from None


class Progress:
    """Shows an amount of bytes in one line that is replaced, at most twice a second. ``show``: None if nobody looks."""

    def __init__(self, text: str, show: Callable[[str], object] | None) -> None:
        self._text, self._show = text, show
        self._shown_at = time.monotonic()
        self._shown = False

    def reached(self, size: int) -> None:
        now = time.monotonic()
        if self._show is not None and now - self._shown_at >= _EVERY:
            self._show(f"\r\x1b[K{self._text} {amount(size)}")
            self._shown_at, self._shown = now, True

    def end(self) -> None:
        if self._show is not None and self._shown:
            self._show("\r\x1b[K")
