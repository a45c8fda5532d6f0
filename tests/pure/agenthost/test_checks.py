"""System checks refuse invalid deployments."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings as django_settings
from pytest_django import Settings

from agenthost import checks
from agents_app.errors import AgentsFileError, FileFault
from agents_app.spec import AgentSpec


def test_sqlite_is_refused_for_several_processes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(django_settings.DATABASES["default"], "ENGINE", "agenthost.sqlite")
    settings.AGENTHOST_MODE = "embedded"
    assert checks.check_database() == []
    settings.AGENTHOST_MODE = "production"
    assert [found.id for found in checks.check_database()] == [checks.SQLITE_WITH_PROCESSES]
    monkeypatch.setitem(django_settings.DATABASES["default"], "ENGINE", "agenthost.postgres")
    assert checks.check_database() == []


@pytest.mark.parametrize(("role", "refused"), [("web", True), ("worker", True), ("beat", True), ("embedded", False), ("", False)])
def test_a_cluster_needs_a_redis_and_a_broker(settings: Settings, role: str, refused: bool) -> None:
    settings.AGENTHOST_ROLE = role
    settings.AGENTHOST_REDIS_URL = settings.AGENTHOST_BROKER_URL = None
    expected = [checks.CLUSTER_WITHOUT_REDIS, checks.NO_BROKER] if refused else []
    assert [found.id for found in checks.check_redis()] == expected
    settings.AGENTHOST_REDIS_URL = settings.AGENTHOST_BROKER_URL = "redis://r"
    assert checks.check_redis() == []


@pytest.mark.parametrize(
    ("role", "refused"), [("web", True), ("worker", False), ("beat", False), ("embedded", False), ("", False)]
)
def test_a_web_process_needs_its_host_names(settings: Settings, role: str, refused: bool) -> None:
    settings.AGENTHOST_ROLE, settings.ALLOWED_HOSTS = role, []
    assert [found.id for found in checks.check_hosts()] == ([checks.NO_HOSTS] if refused else [])
    settings.ALLOWED_HOSTS = ["agents.example"]
    assert checks.check_hosts() == []


def test_a_missing_key_ring_is_named(settings: Settings) -> None:
    settings.AGENTHOST_KEY_RING = []
    found = checks.check_key_ring()
    assert [error.id for error in found] == [checks.NO_KEY_RING]
    assert "AGENTHOST_KEY_RING" in found[0].msg


@pytest.mark.parametrize(
    "backend", ["channels.layers.InMemoryChannelLayer", "channels_redis.core.RedisChannelLayer", "channels_redis.pubsub.X"]
)
def test_other_channel_layers_are_refused(settings: Settings, backend: str) -> None:
    assert checks.check_channel_layers() == []
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": backend}}
    found = checks.check_channel_layers()
    assert [error.id for error in found] == [checks.FOREIGN_LAYER]
    assert backend in found[0].msg


def test_errors_of_the_agents_file_name_table_key_and_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> None:
        raise AgentsFileError(str(tmp_path / "agents.toml"), [FileFault("agents[0]", "model", "is missing")])

    monkeypatch.setattr("agents_app.registry.described", broken)
    found = checks.check_agents()
    assert [error.id for error in found] == [checks.BAD_AGENTS_FILE]
    assert found[0].msg.endswith("agents.toml: agents[0] model: is missing")


def test_a_variable_that_is_no_setting_is_reported_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_variables() == []
    monkeypatch.setenv("AGENTHOST_ALOWED_HOSTS", "agents.example")
    monkeypatch.setenv("AGENTHOST_WINDMILL_FILE", "/secret")
    monkeypatch.setenv("AGENTHOST_TEST_ANYTHING", "1")
    monkeypatch.setenv("AGENTHOST_KEY", "of the chat")
    monkeypatch.setenv("AGENTHOST_AGENTS_FILE", "/agents.toml")
    monkeypatch.setenv("AGENTHOST_SECRET_KEY_FILE", "/secret")
    found = checks.check_variables()
    assert [(each.id, each.msg, each.hint) for each in found] == [
        (
            checks.UNKNOWN_VARIABLE,
            "AGENTHOST_ALOWED_HOSTS is not a setting of this release.",
            "Did you mean AGENTHOST_ALLOWED_HOSTS?",
        ),
        (
            checks.UNKNOWN_VARIABLE,
            "AGENTHOST_WINDMILL is not a setting of this release.",
            "Unset it; docs/settings.md has all settings.",
        ),
    ]


def test_a_server_does_not_start_with_a_template_over_the_limits_of_a_workspace(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").write_text("text")
    spec = AgentSpec("harbour", "demo:guide", template=str(tmp_path))
    monkeypatch.setattr("agents_app.registry.described", lambda: {"harbour": spec})
    settings.AGENTHOST_ROLE, settings.AGENTHOST_WORKSPACES_DIR = "worker", tmp_path / "volume"
    assert checks.check_agents() == []
    settings.AGENTHOST_WORKSPACE_FILES = 1
    found = checks.check_agents()
    assert [error.id for error in found] == [checks.BAD_AGENTS_FILE]
    assert "harbour template" in found[0].msg
    # A command does not read the templates.
    settings.AGENTHOST_ROLE = ""
    assert checks.check_agents() == []
