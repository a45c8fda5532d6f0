"""Locks that one process of the deployment holds at a time: Postgres advisory locks on a connection of their own.

A lock ends with its connection, so a process that dies loses its locks at once. A process that hangs loses them after
``idle_seconds`` without a call, and one whose machine has vanished after some seconds, when the server notices.
On SQLite there is one process, which always holds all locks.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import psycopg
from django.db import connection

from sessions_app.core.base.own_connection import connection_parameters

_KEEPALIVE = ("tcp_keepalives_idle=4", "tcp_keepalives_interval=2", "tcp_keepalives_count=2")
"""On the server's side: without them it would keep the session of a vanished machine for hours."""


class Lock(IntEnum):
    """The number of a lock in Postgres. Do not change one: releases run side by side during an upgrade."""

    DUTIES = 1
    """Its holder starts the periodic duties of the deployment."""
    BEAT_ROLE = 2
    """Its holder is a process of the role beat, to which workers leave the duties."""
    HOUSEKEEPING = 3
    """Its holder runs a round of housekeeping."""
    WORKSPACES = 4
    """Its holder removes and counts workspaces."""
    AUDIT_SINKS = 5
    """Its holder sends the audit to other systems."""
    DELETIONS = 6
    """Its holder deletes tenants."""


# The first of an advisory lock's two numbers. The core's other advisory locks have one number, which is another key space.
_SPACE = 0x41484C4B


class SessionLocks:
    """The locks of one owner, for one thread. No method raises if the database is away: the locks are lost then."""

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._connection: psycopg.Connection[Any] | None = None
        self._held: set[Lock] = set()
        self._is_local = connection.vendor != "postgresql"

    def hold(self, lock: Lock) -> bool:
        """Take the lock, without waiting, or check that it is still held."""
        if self._is_local:
            return True
        if lock in self._held:
            # Held as long as the session lives.
            return self._is("select true")
        if self._is(f"select pg_try_advisory_lock({_SPACE}, {lock:d})"):
            self._held.add(lock)
        return lock in self._held

    def is_free(self, lock: Lock) -> bool:
        """Whether no process holds the lock. False if the database is away."""
        return self._is_local or self._is(f"select pg_try_advisory_xact_lock_shared({_SPACE}, {lock:d})")

    def release(self, lock: Lock) -> None:
        if lock in self._held:
            self._is(f"select pg_advisory_unlock({_SPACE}, {lock:d})")
            self._held.discard(lock)

    def close(self) -> None:
        """Release all locks and the connection."""
        self._held.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is(self, statement: str) -> bool:
        try:
            if self._connection is None:
                idle = f"idle_session_timeout={int(self._idle_seconds * 1000)}"
                self._connection = psycopg.connect(**connection_parameters(idle, *_KEEPALIVE), autocommit=True)
            row = self._connection.execute(statement.encode()).fetchone()
        except psycopg.Error:
            self.close()
            return False
        return row is not None and bool(row[0])
