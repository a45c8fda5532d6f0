"""Django's SQLite backend with these differences:

* Threads wait for the write lock in this process, in a queue. SQLite itself sleeps for up to 0.1 s between two attempts.
* There is a connection for the write thread (sessions_app/core/base/write_thread.py), whose transactions share one COMMIT.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from django.db import OperationalError
from django.db.backends.sqlite3 import base

_LOST = "the shared transaction was rolled back"
_locks: dict[str, threading.Lock] = {}
"""Of each database file: held by the thread that writes."""


def _busy() -> OperationalError:
    """The error of SQLite for a lock that another connection holds for too long."""
    cause = sqlite3.OperationalError("database is locked")
    cause.sqlite_errorcode, cause.sqlite_errorname = sqlite3.SQLITE_BUSY, "SQLITE_BUSY"
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


class DatabaseWrapper(base.DatabaseWrapper):
    """A thread's connection. An IMMEDIATE transaction takes the file's lock in this process before that of SQLite.

    Other processes, such as commands, meet SQLite's lock only. So do single statements outside transactions.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._lock = _locks.setdefault(str(self.settings_dict["NAME"]), threading.Lock())
        self._holds_lock = False

    def for_write_thread(self, wait_for_commit: Callable[[], object]) -> WriteThreadWrapper:
        """A wrapper of the same database. ``wait_for_commit`` is called at the end of each of its transactions."""
        return WriteThreadWrapper(self.settings_dict, self.alias, wait_for_commit)

    def _take_lock(self) -> None:
        if not self._lock.acquire(timeout=self.settings_dict["OPTIONS"].get("timeout", 5.0)):
            raise _busy()
        self._holds_lock = True

    def _release_lock(self) -> None:
        if self._holds_lock:
            self._holds_lock = False
            self._lock.release()

    def _start_transaction_under_autocommit(self) -> None:
        begin: Callable[[], object] = super()._start_transaction_under_autocommit  # type: ignore[misc]  # missing in the stubs
        if self.transaction_mode != "IMMEDIATE":  # type: ignore[attr-defined]  # missing in the stubs
            begin()
            return
        self._take_lock()
        try:
            begin()
        except BaseException:
            self._release_lock()
            raise

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]  # missing in the stubs
        self._release_lock()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]  # missing in the stubs
        finally:
            self._release_lock()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]  # missing in the stubs
        finally:
            self._release_lock()


class WriteThreadWrapper(DatabaseWrapper):
    """The connection of the write thread: what Django takes for a transaction is a savepoint of a shared one.

    The first one begins the shared transaction; ``end`` commits it. Between its savepoint and its COMMIT a call waits
    (``wait_for_commit``), while others use the connection.
    """

    def __init__(self, settings_dict: dict[str, Any], alias: str, wait_for_commit: Callable[[], object]) -> None:
        super().__init__(settings_dict, alias)
        self._wait_for_commit = wait_for_commit
        self._is_open = False
        self._is_member_done = False
        self._must_close = False
        self._refusal: OperationalError | None = None

    @property
    def is_broken(self) -> bool:
        """Whether the shared transaction was lost: SQLite rolls it back after some errors, for example if the disk is full."""
        return self._must_close or (self._is_open and not self.connection.in_transaction)

    def end(self) -> Exception | None:
        """COMMIT what is open. Returns the error if nothing of it was stored."""
        self._refusal = None
        if not self._is_open and not self._must_close:
            return None
        try:
            if self.is_broken:
                raise OperationalError(_LOST)
            with self.wrap_database_errors:
                self.connection.commit()
        except Exception as error:
            # Closing rolls back.
            super().close()
            return error
        finally:
            self._is_open = self._must_close = False
            self._release_lock()
        return None

    def close(self) -> None:
        """Fail what is open; ``end`` closes."""
        self._must_close = True

    def close_if_unusable_or_obsolete(self) -> None:
        """Nothing to do: the connection is in use as long as the thread."""

    def _start_transaction_under_autocommit(self) -> None:
        if self.is_broken:
            self._must_close = True
            raise OperationalError(_LOST)
        if not self._is_open:
            self._begin()
        self.connection.execute("savepoint member")

    def _begin(self) -> None:
        # All that wait for the lock at the same time have waited for it when the first one has.
        if self._refusal is not None:
            raise self._refusal
        try:
            self._take_lock()
            with self.wrap_database_errors:
                self.connection.execute("begin immediate")
        except OperationalError as error:
            self._release_lock()
            self._refusal = error
            raise
        self._is_open = True

    def _commit(self) -> None:
        with self.wrap_database_errors:
            self.connection.execute("release member")
        self._is_member_done = True

    def _rollback(self) -> None:
        with self.wrap_database_errors:
            self.connection.execute("rollback to member")
            self.connection.execute("release member")

    def get_new_connection(self, conn_params: dict[str, Any]) -> sqlite3.Connection:
        opened: sqlite3.Connection = super().get_new_connection(conn_params)
        # Python's sqlite3 begins no transaction then. Setting it later would commit.
        opened.isolation_level = None
        return opened

    def _set_autocommit(self, autocommit: bool) -> None:
        """Nothing to do: the connection is as ``get_new_connection`` made it."""

    def set_autocommit(self, autocommit: bool, force_begin_transaction_with_broken_autocommit: bool = False) -> None:
        if not (autocommit and self._is_member_done):
            super().set_autocommit(autocommit, force_begin_transaction_with_broken_autocommit)
            return
        # The last step of a transaction: from here on the wrapper is in the state that the next call expects.
        self._is_member_done = self.run_commit_hooks_on_set_autocommit_on = False
        self.autocommit = True
        hooks, self.run_on_commit = self.run_on_commit, []
        self._wait_for_commit()
        self.run_on_commit = hooks
        self.run_and_clear_commit_hooks()
