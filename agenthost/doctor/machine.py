"""Checks this machine: clock differences to the servers, and free disk space."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.db import connection

from agenthost import database_diagnosis
from agenthost.doctor.findings import Finding, fail, ok, warning
from agenthost.doctor.redis import client

now = time.time
CLOCK_SECONDS = 2.0
_GIB = 1024**3
LEAST_BYTES, FEW_BYTES = _GIB // 4, _GIB
_LOCAL = ("", "localhost", "127.0.0.1", "::1")


def check_clocks() -> Iterator[Finding]:
    """Compares clocks. Skips servers that do not answer, which other checks report."""
    differences: dict[str, float] = {}
    if connection.vendor == "postgresql":
        try:
            with closing(database_diagnosis.connect()) as conn:
                differences["the database"] = _difference(lambda: _epoch(conn))
        except psycopg.Error:
            pass
    if settings.AGENTHOST_REDIS_URL:
        try:
            with client(settings.AGENTHOST_REDIS_URL) as redis_client:
                differences["Redis"] = _difference(lambda: _redis_time(redis_client))
        except (redis.exceptions.RedisError, OSError):
            pass
    for name, seconds in differences.items():
        if abs(seconds) > CLOCK_SECONDS:
            detail = (
                f"This machine's clock is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} the clock of {name}."
            )
            yield fail("clock", detail, "Synchronize both machines by NTP.")
        else:
            yield ok("clock", f"{abs(seconds):.2f} s from the clock of {name}")


def _difference(ask: Any) -> float:
    """Our time minus theirs, in seconds, corrected by half of the round trip."""
    before = now()
    theirs = float(ask())
    return (before + now()) / 2 - theirs


def _epoch(conn: psycopg.Connection[tuple[Any, ...]]) -> float:
    row = conn.execute("select extract(epoch from clock_timestamp())").fetchone()
    assert row is not None
    return float(row[0])


def _redis_time(conn: redis.Redis) -> float:
    seconds, micro = conn.time()
    return float(seconds) + float(micro) / 1e6


def check_disk() -> Iterator[Finding]:
    directories = {"AGENTHOST_VAR_DIR": settings.AGENTHOST_VAR_DIR}
    if settings.AGENTHOST_WORKSPACES_DIR is not None:
        directories["AGENTHOST_WORKSPACES_DIR"] = settings.AGENTHOST_WORKSPACES_DIR
    if connection.vendor == "sqlite" and (parent := database_diagnosis.sqlite_path().parent) != settings.AGENTHOST_VAR_DIR:
        directories["the database"] = parent
    elif connection.vendor == "postgresql" and (directory := _data_directory()) is not None:
        directories["the database"] = directory
    for name, path in directories.items():
        if path.is_dir():
            yield free_space(name, path)
    if connection.vendor == "postgresql" and "the database" not in directories:
        yield ok("disk", "the disk of the database is on another machine or not visible")


def free_space(name: str, path: Path) -> Finding:
    usage = shutil.disk_usage(path)
    detail = f"{usage.free / _GIB:.1f} of {usage.total / _GIB:.0f} GiB free for {name} ({path})"
    if usage.free < LEAST_BYTES:
        return fail("disk", f"{detail}: writes will soon fail.", "Free some space, or move it to a larger disk.")
    if usage.free < FEW_BYTES:
        return warning("disk", f"{detail}.", "Free some space before the disk is full.")
    return ok("disk", detail)


def _data_directory() -> Path | None:
    """The data directory of Postgres, if it runs on this machine and the role may read the setting."""
    host = connection.settings_dict["HOST"]
    if host not in _LOCAL and not host.startswith("/"):
        return None
    try:
        with closing(database_diagnosis.connect()) as conn:
            row = conn.execute("select setting from pg_settings where name = 'data_directory'").fetchone()
    except psycopg.Error:
        return None
    return Path(row[0]) if row is not None and row[0] else None
