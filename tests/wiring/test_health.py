"""The health checks /healthz and /readyz."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest
from channels import DEFAULT_CHANNEL_LAYER
from channels.layers import channel_layers
from django.conf import settings as django_settings
from django.db import OperationalError
from django.test import AsyncClient, Client
from pytest_django import Settings

from agenthost import health
from agents_app import registry
from agents_app.mcp.catalogue import catalogue
from agents_app.spec import AgentSpec, McpSpec, ProgramSpec
from sessions_app.core.base import database, draining
from sessions_app.core.log.broadcast.layer import ChannelLayer
from sessions_app.core.records import database_checks, live_workers
from sessions_app.core.records.queues import Unserved
from sessions_app.core.workspaces import volume
from tests.mcp_lists import wait_for_lists


@pytest.fixture(autouse=True)
def _no_limit_is_met_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 60.0)
    # Looking at their volume needs the database.
    monkeypatch.setattr(django_settings, "AGENTHOST_WORKSPACES_DIR", None)
    wait_for_lists(monkeypatch)
    # On SQLite threads keep the connections of earlier tests, and some tests here may not use any.
    database.shut_down()


def test_healthz_needs_no_database() -> None:
    assert Client().get("/healthz").json() == {"status": "alive"}


@pytest.mark.django_db(transaction=True)
def test_a_process_with_a_database_is_ready() -> None:
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    assert (answer.json()["ready"], answer.json()["reasons"]) == (True, [])


@pytest.mark.django_db(transaction=True)
def test_readyz_says_why_no_mcp_server_can_be_started_as_a_program(settings: Settings) -> None:
    settings.AGENTHOST_MCP_COMMANDS = False
    with registry.use([AgentSpec("a", "demo:", mcp=(McpSpec("harbour", program=ProgramSpec(("x",))),))]):
        try:
            assert registry.find("a") is not None
            answer = Client().get("/readyz").json()
        finally:
            catalogue.close()
    reason = "programs are off on this server (AGENTHOST_MCP_COMMANDS)"
    assert answer["ready"]
    assert answer["mcp"] == {"servers": 1, "down": 1, "cut": 0, "commands": reason}


@pytest.mark.django_db(transaction=True)
def test_a_queued_turn_without_a_worker_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_workers, "turns_stuck", lambda: 1)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"].isdecimal()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["reasons"] == [health.NO_WORKER]
    live_workers.announce("worker-1")
    assert Client().get("/readyz").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_readyz_names_queues_without_a_worker_and_stays_ready() -> None:
    """This process accepts turns, and those of other queues run: it must not lose its traffic for one pool."""
    with registry.use([AgentSpec("a", "demo:", queue="heavy")]):
        live_workers.announce("worker-1", ["default", "light"])
        answer = Client().get("/readyz")
        assert (answer.status_code, answer.json()["queues_without_worker"]) == (200, ["heavy"])
        live_workers.announce("worker-2", ["heavy"])
        assert "queues_without_worker" not in Client().get("/readyz").json()
        live_workers.leave("worker-2")
        # One that serves all queues, as the embedded server's.
        live_workers.announce("worker-3")
        assert "queues_without_worker" not in Client().get("/readyz").json()


def test_a_queue_without_a_worker_is_logged_and_louder_when_turns_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agenthost.health")
    log, idle, waits = health.QueueLog(), Unserved("heavy", 0), Unserved("heavy", 2)
    # The first look may be while workers restart.
    for found in ([idle], [], [idle], [idle], [idle], [waits], [waits], [idle], []):
        log.look(found)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "queue_without_worker queue=heavy stuck=0: start one with ops/entrypoint worker --queues heavy"),
        ("ERROR", "queue_without_worker queue=heavy stuck=2: start one with ops/entrypoint worker --queues heavy"),
        ("INFO", "queue_with_worker queue=heavy"),
    ]


@pytest.mark.django_db(transaction=True)
def test_a_database_without_its_migrations_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = database_checks.shipped()
    monkeypatch.setattr(database_checks, "shipped", lambda: shipped | {("sessions_app", "9999_next")})
    (reason,) = Client().get("/readyz").json()["reasons"]
    assert reason == "The database lacks 1 migration of this release (sessions_app.9999_next)."


@pytest.mark.django_db(transaction=True)
def test_a_database_of_other_keys_is_not_ready(settings: Settings) -> None:
    database_checks.make_marks()
    settings.AGENTHOST_KEY_RING = [os.urandom(32)]
    settings.SECRET_KEY = "another"
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == [
        "AGENTHOST_KEY_RING cannot decrypt the secrets in this database.",
        "AGENTHOST_SECRET_KEY is not the one that this database was used with.",
    ]


@pytest.mark.django_db(transaction=True)
async def test_the_first_answer_of_a_process_waits_for_the_first_attempt_to_reach_redis(
    monkeypatch: pytest.MonkeyPatch, on_postgres: bool
) -> None:
    fresh = ChannelLayer(url=django_settings.AGENTHOST_REDIS_URL)
    monkeypatch.setitem(channel_layers.backends, DEFAULT_CHANNEL_LAYER, fresh)
    try:
        assert (await AsyncClient().get("/readyz")).json()["announcements"] is True
    finally:
        fresh.close()


@pytest.mark.django_db(transaction=True)
async def test_an_unreachable_redis_is_reported_by_the_first_response(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ChannelLayer(url="redis://127.0.0.1:9/0")
    monkeypatch.setitem(channel_layers.backends, DEFAULT_CHANNEL_LAYER, lost)
    try:
        answer = await AsyncClient().get("/readyz")
        assert (answer.status_code, answer.json()["announcements"]) == (200, False)
    finally:
        lost.close()


def test_a_failed_readiness_probe_is_not_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> list[str]:
        raise OperationalError("away")

    monkeypatch.setattr(health, "_check_database", fail)
    caplog.set_level(logging.INFO)
    for _ in range(3):
        assert Client().get("/readyz").status_code == 503
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == []


def test_the_message_of_a_database_error_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OperationalError("connection to 10.1.2.3 failed: password hush")

    monkeypatch.setattr(health, "_check_database", fail)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == [health.NO_DATABASE]
    assert "hush" not in answer.content.decode()


async def test_a_database_that_hangs_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(database, "run", hang)
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 0.05)
    answer = await AsyncClient().get("/readyz")
    assert answer.status_code == 503


async def test_concurrent_probes_of_a_hanging_database_share_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    async def hang(*_: object) -> list[str]:
        nonlocal looks
        looks += 1
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(database, "run", hang)
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 0.05)
    answers = [await AsyncClient().get("/readyz") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert looks == 1


def test_a_draining_process_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "is_draining", lambda: True)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == [health.DRAINING]


async def test_readiness_changes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "agenthost.health")
    states = iter([[], [health.NO_WORKER], [health.NO_WORKER], []])
    done = asyncio.Event()

    async def look() -> list[str]:
        try:
            return next(states)
        except StopIteration:
            done.set()
            return []

    async def no_queues() -> list[Unserved]:
        return []

    watch = asyncio.create_task(health.watch(0.0, check=look, unserved=no_queues))
    await asyncio.wait_for(done.wait(), 90)
    watch.cancel()
    lines = [record.getMessage() for record in caplog.records if record.name == "agenthost.health"]
    assert lines == [f"not ready: {health.NO_WORKER}", "ready again"]


@pytest.mark.django_db(transaction=True)
def test_readyz_reports_a_volume_that_is_not_this_databases(settings: Settings, tmp_path: Path) -> None:
    assert "workspaces" not in Client().get("/readyz").json() or settings.AGENTHOST_WORKSPACES_DIR is not None
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "first"
    volume.forget()
    assert Client().get("/readyz").json()["workspaces"] == "up"
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path
    answer = Client().get("/readyz")
    # Turns run without files.
    assert answer.status_code == 200
    assert answer.json()["workspaces"] == (
        "AGENTHOST_WORKSPACES_DIR has no file agenthost-volume: the volume of this database is not mounted."
    )
    volume.forget()
    database.shut_down()
