"""Loads the agents again: in the embedded server when the agents file or the code beside it changes, else on SIGHUP.

A fault leaves the agents as they were, and is logged. The state of each process is also a row in the database, for the admin.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import uuid
from pathlib import Path

from agents_app import registry, supervision
from agents_app.errors import AgentError
from agents_app.redaction import described
from sessions_app.core.base import database
from sessions_app.core.tenancy import served_agents
from sessions_app.core.tenancy.served_agents import Load

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


class Reloader:
    """``watches``: look at the files once a second. Otherwise wait for SIGHUP; then it must be created in the main thread.

    A server in a terminal gets SIGHUP when that is closed, and should end, so the embedded server only watches. ``role``: of
    the process, for the admin.
    """

    def __init__(self, *, watches: bool, role: str = "embedded") -> None:
        self.fault = ""
        """Why the last attempt failed, for operators; empty if it succeeded."""
        self._asked = threading.Event()
        self._watches, self._role = watches, role
        self._process = uuid.uuid4().hex
        # A process that does not watch needs no look at all loaded modules, which would unshare the pages of forked processes.
        self._seen = _state() if watches else {}
        self._is_new, self._note_at = True, 0.0
        if not watches:
            signal.signal(signal.SIGHUP, lambda *_: self._asked.set())

    def start(self) -> None:
        supervision.thread(self._run, "agents-reload", may_return=lambda: False).start()

    def _run(self) -> None:
        while True:
            if time.monotonic() >= self._note_at:
                self.note()
            asked = self._asked.wait(_POLL_SECONDS if self._watches else max(0.1, self._note_at - time.monotonic()))
            self._asked.clear()
            if asked or (self._watches and self._has_changed()):
                self.reload()
                self._note_at = 0.0

    def _has_changed(self) -> bool:
        """Whether the files have changed, and are complete: they were the same at two looks."""
        now = _state()
        if now == self._seen:
            return False
        self._asked.wait(_POLL_SECONDS / 5)
        return _state() == now

    def reload(self) -> None:
        if self._watches:
            self._seen = _state()
        self._is_new = True
        try:
            changed = registry.reload()
        except AgentError as error:
            self.fault = str(error)
            log.error("agents_not_reloaded: the agents stay as they were: %s", self.fault)
        except Exception as error:
            self.fault = described(error)
            log.error("agents_not_reloaded: the agents stay as they were: %s", self.fault)
        else:
            self.fault = ""
            if self._watches:
                # The code may import other modules now.
                self._seen = _state()
            log.info("agents_reloaded changed=%s", ",".join(changed) or "none")

    def note(self) -> None:
        """Store this process's state. Without the database, the next round does it."""
        self._note_at = time.monotonic() + served_agents.RENEW_SECONDS
        try:
            load = Load(served_agents.digest(registry.described().values()), self.fault, self._is_new)
            served_agents.note(self._process, self._role, load)
            self._is_new = False
        except Exception as error:  # nothing depends on it
            log.warning("agents_state_not_stored error=%s", type(error).__name__)
        finally:
            database.release()


def _state() -> dict[Path, tuple[int, int] | None]:
    return {path: _of(path) for path in registry.files()}


def _of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
