"""Whether a process is alive, whether it can serve, and why not."""

from __future__ import annotations

import asyncio
import logging

import pytest
from django.db import OperationalError
from django.test import AsyncClient, Client

from agenthost import health
from sessions_app.core import database, draining, presence


def test_a_live_process_says_so_without_a_database() -> None:
    assert Client().get("/healthz").json() == {"status": "alive"}


@pytest.mark.django_db(transaction=True)
def test_a_served_database_makes_it_ready() -> None:
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    assert (answer.json()["ready"], answer.json()["reasons"]) == (True, [])


@pytest.mark.django_db(transaction=True)
def test_a_queued_turn_without_a_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "turns_stuck", lambda: 1)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"].isdecimal()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["reasons"] == [health.NO_WORKER]
    presence.announce("worker-1")
    assert Client().get("/readyz").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_database_without_its_migrations_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_migrated_databases", set())
    monkeypatch.setattr("django.db.migrations.executor.MigrationExecutor.migration_plan", lambda *_: [("a migration", False)])
    assert Client().get("/readyz").json()["reasons"] == [health.NOT_MIGRATED]


def test_a_database_that_fails_is_told_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OperationalError("connection to 10.1.2.3 failed: password hush")

    monkeypatch.setattr(health, "_ask_database", fail)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == [health.NO_DATABASE]
    assert "hush" not in answer.content.decode()


async def test_a_database_that_hangs_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(database, "run", hang)
    monkeypatch.setattr(health, "ANSWER_WITHIN_SECONDS", 0.05)
    answer = await AsyncClient().get("/readyz")
    assert answer.status_code == 503


def test_a_draining_process_wants_no_more_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "begun", lambda: True)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == [health.DRAINING]


async def test_the_log_says_when_it_cannot_serve_and_when_it_can_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agenthost.health")
    states = iter([[], [health.NO_WORKER], [health.NO_WORKER], []])
    done = asyncio.Event()

    async def look() -> list[str]:
        try:
            return next(states)
        except StopIteration:
            done.set()
            return []

    watch = asyncio.create_task(health.watch(0.0, look=look))
    await asyncio.wait_for(done.wait(), 90)
    watch.cancel()
    lines = [record.getMessage() for record in caplog.records if record.name == "agenthost.health"]
    assert lines == [f"not ready: {health.NO_WORKER}", "ready again"]
