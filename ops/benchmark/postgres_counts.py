"""Counts of statements and of WAL fsyncs of a Postgres server, without an extension."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ops import services

FLUSH_SECONDS = 11.0
"""An idle backend reports its statistics after 10 s at the latest."""
_RELOAD_SECONDS = 0.3
_PREFIX = "bench|%a|"
_LINE = re.compile(r"^bench\|(?P<client>[^|]*)\|LOG:  (?:statement|execute [^:]*): (?P<text>.*(?:\n\t.*)*)$", re.MULTILINE)


def wal_fsyncs(postgres: services.Postgres) -> int:
    """Until now, as far as reported: see FLUSH_SECONDS."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        # Postgres 18 moved this count.
        query = "select sum(fsyncs) from pg_stat_io where object = 'wal'"
        if connection.info.server_version < 180000:
            query = "select wal_sync from pg_stat_wal"
        row = connection.execute(query).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


class Statements:
    """Statements that clients sent, from the server's log. BEGIN and COMMIT count, foreign-key checks do not."""

    def __init__(self, postgres: services.Postgres) -> None:
        self._path = postgres.home / "postgres.log"
        self._from = self._path.stat().st_size

    def by_client(self) -> dict[str, Counter[str]]:
        """How often each statement was sent, by the client's application name."""
        with self._path.open("rb") as log:
            log.seek(self._from)
            text = log.read().decode(errors="replace")
        found: dict[str, Counter[str]] = {}
        for line in _LINE.finditer(text):
            found.setdefault(line["client"], Counter())[line["text"]] += 1
        return found

    def total(self) -> int:
        return sum(count.total() for count in self.by_client().values())


@contextmanager
def logged_statements(postgres: services.Postgres) -> Iterator[Statements]:
    """Let the server log every statement for as long as this lasts."""
    _set(postgres, f"set log_line_prefix = '{_PREFIX}'", "set log_statement = 'all'")
    try:
        yield Statements(postgres)
    finally:
        _set(postgres, "reset log_statement", "reset log_line_prefix")


def _set(postgres: services.Postgres, *changes: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        for change in changes:
            connection.execute(f"alter system {change}")
        connection.execute("select pg_reload_conf()")
    # Each backend takes the change when it next waits for its client.
    time.sleep(_RELOAD_SECONDS)
