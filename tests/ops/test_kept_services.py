"""The servers that `ops/test --fast` keeps between runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from ops import kept_services, suite


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state.json"
    yield path
    kept_services.stop(path)


def test_a_second_run_finds_the_servers_of_the_first_until_they_are_stopped(state: Path) -> None:
    database_url, redis_url = kept_services.obtain(state)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table kept (n int)")
    assert kept_services.obtain(state) == (database_url, redis_url)
    with psycopg.connect(database_url) as connection, redis.Redis.from_url(redis_url) as cache:
        assert connection.execute("select count(*) from kept").fetchone() == (0,)
        assert cache.ping()
    assert stat.S_IMODE(state.stat().st_mode) == 0o600

    assert kept_services.stop(state)
    assert not state.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(database_url, connect_timeout=2)
    assert not kept_services.stop(state)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"pid": "no number"}', '{"pid": "999999999"}'])
def test_a_state_file_of_a_process_that_is_gone_means_that_nothing_runs(state: Path, content: str) -> None:
    state.write_text(content)
    assert kept_services.running(state) is None


def test_only_paths_that_need_no_database_run_without_servers() -> None:
    assert not suite.needs_servers(["tests/pure", "-q"])
    assert not suite.needs_servers([f"tests/pure{os.sep}conftest.py::test_one", "./tests/network"])
    assert suite.needs_servers(["tests/pure", "tests/core"])
    assert suite.needs_servers(["-k", "one"])


def test_the_test_databases_name_changes_with_the_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrations = tmp_path / "sessions_app" / "migrations"
    migrations.mkdir(parents=True)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    (migrations / "0001_first.py").write_text("one")
    before = suite.schema_digest()
    assert before == suite.schema_digest()
    (migrations / "0002_second.py").write_text("two")
    assert suite.schema_digest() != before
