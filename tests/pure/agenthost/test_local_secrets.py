"""Local secrets and file permissions of the embedded server."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from agenthost import local_secrets


def test_processes_that_start_together_get_the_same_secret(tmp_path: Path) -> None:
    barrier, found = threading.Barrier(8), []

    def start() -> None:
        barrier.wait(90)
        found.append(local_secrets.read_or_create(tmp_path / "var", "secret", local_secrets.new_secret))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [path.name for path in (tmp_path / "var").iterdir()] == ["secret"]
    assert stat.S_IMODE((tmp_path / "var" / "secret").stat().st_mode) == 0o600


def test_an_empty_secret_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "key_ring").write_text("\n")
    with pytest.raises(ImproperlyConfigured, match="key_ring"):
        local_secrets.read_or_create(tmp_path, "key_ring", local_secrets.new_sealing_key)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "key_ring").write_bytes(b"\xff\x00damaged")
    with pytest.raises(ImproperlyConfigured, match="the file key_ring is damaged"):
        local_secrets.read_or_create(tmp_path, "key_ring", local_secrets.new_sealing_key)


def test_a_directory_that_cannot_be_written_names_its_variable(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file")
    with pytest.raises(ImproperlyConfigured, match="AGENTHOST_VAR_DIR"):
        local_secrets.read_or_create(tmp_path / "var", "secret", local_secrets.new_secret)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_database_files_are_private_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    data = tmp_path / "var"
    before = os.umask(umask)
    try:
        local_secrets.restrict_directory(data)
        local_secrets.restrict_database(data / "db.sqlite3")
        with contextlib.closing(sqlite3.connect(data / "db.sqlite3")) as connection:
            connection.execute("pragma journal_mode=wal")
            connection.execute("create table t (a)")
            connection.commit()
            assert {path.name: mode(path) for path in data.iterdir()} == dict.fromkeys(
                ("db.sqlite3", "db.sqlite3-wal", "db.sqlite3-shm"), 0o600
            )
    finally:
        os.umask(before)
    assert mode(data) == 0o700


def test_files_of_older_releases_are_made_private_at_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "var"
    data.mkdir()
    data.chmod(0o755)
    for name in ("db.sqlite3", "db.sqlite3-wal", "db.sqlite3-shm", "secret"):
        (data / name).write_text("kept")
        (data / name).chmod(0o644)
    local_secrets.restrict_directory(data)
    local_secrets.restrict_database(data / "db.sqlite3")
    assert local_secrets.read_or_create(data, "secret", local_secrets.new_secret) == "kept"
    assert {path.name: mode(path) for path in data.iterdir()} == dict.fromkeys(
        ("db.sqlite3", "db.sqlite3-wal", "db.sqlite3-shm", "secret"), 0o600
    )
    assert mode(data) == 0o700
    assert (data / "db.sqlite3").read_text() == "kept"


def test_a_shared_directory_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    local_secrets.restrict_directory(shared)
    assert mode(shared) == 0o1777


def test_a_database_that_cannot_be_written_stops_the_start_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"missing/db\.sqlite3"):
        local_secrets.restrict_database(tmp_path / "missing" / "db.sqlite3")
