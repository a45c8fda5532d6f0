"""Servers of the tests' own: what starts them, what survives their death, what is left of them."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import redis

from ops import services


def test_a_killed_postgres_comes_back_under_its_address_with_what_was_committed() -> None:
    with services.folder() as home:
        postgres = services.Postgres(home)
        postgres.start()
        try:
            address = postgres.url()
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("CREATE TABLE kept (n int)")
                connection.execute("CREATE UNLOGGED TABLE emptied (n int)")
                connection.execute("INSERT INTO kept VALUES (1)")
                connection.execute("INSERT INTO emptied VALUES (1)")
            postgres.kill()
            postgres.start()
            assert postgres.url() == address
            with psycopg.connect(address) as connection:
                assert connection.execute("SELECT (SELECT count(*) FROM kept), (SELECT count(*) FROM emptied)").fetchone() == (
                    1,
                    0,
                )
        finally:
            postgres.stop()
    assert not home.exists()


def test_nobody_enters_without_the_password() -> None:
    with services.folder() as home:
        postgres, cache = services.Postgres(home), services.Redis(home)
        try:
            postgres.start()
            cache.start()
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"postgres://postgres:guess@127.0.0.1:{postgres.port}/postgres")
            with redis.Redis(port=cache.port) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
            with redis.Redis.from_url(cache.url()) as friend:
                assert friend.ping()
        finally:
            cache.stop()
            postgres.stop()


def test_programs_in_a_closed_folder_are_notopen_to_all(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "bin").mkdir(mode=0o755)
    assert not services.open_to_all(closed / "bin")
