"""Loads the agents again: in the embedded server when the agents file or the code beside it changes, else on SIGHUP.

A fault leaves the agents as they were, and is logged; ``fault`` has it until a later attempt succeeds.
"""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path

from agents_app import registry, supervision
from agents_app.errors import AgentError
from agents_app.redaction import described

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0

fault = ""
"""Why the last attempt failed, for operators; empty if it succeeded."""


class Reloader:
    """``watches``: look at the files once a second. Otherwise wait for SIGHUP; then it must be created in the main thread.

    A server in a terminal gets SIGHUP when that is closed, and should end, so the embedded server only watches.
    """

    def __init__(self, *, watches: bool) -> None:
        self._asked = threading.Event()
        self._watches = watches
        self._seen = _state()
        if not watches:
            signal.signal(signal.SIGHUP, lambda *_: self._asked.set())

    def start(self) -> None:
        supervision.thread(self._run, "agents-reload", may_return=lambda: False).start()

    def _run(self) -> None:
        while True:
            asked = self._asked.wait(_POLL_SECONDS if self._watches else None)
            self._asked.clear()
            if asked or self._has_changed():
                self.reload()

    def _has_changed(self) -> bool:
        """Whether the files have changed, and are complete: they were the same at two looks."""
        now = _state()
        if now == self._seen:
            return False
        self._asked.wait(_POLL_SECONDS / 5)
        return _state() == now

    def reload(self) -> None:
        global fault
        self._seen = _state()
        try:
            changed = registry.reload()
        except AgentError as error:
            fault = str(error)
            log.error("agents_not_reloaded: the agents stay as they were: %s", fault)
        except Exception as error:
            fault = described(error)
            log.error("agents_not_reloaded: the agents stay as they were: %s", fault)
        else:
            fault = ""
            # The code may import other modules now.
            self._seen = _state()
            log.info("agents_reloaded changed=%s", ",".join(changed) or "none")


def _state() -> dict[Path, tuple[int, int] | None]:
    return {path: _of(path) for path in registry.files()}


def _of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
