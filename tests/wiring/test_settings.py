"""Settings from the environment, in a separate process as at every start."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

SHOW = """
import json, sys
from django.conf import settings
def plain(value):
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
database = settings.DATABASES["default"]
print(json.dumps({
    "mode": settings.AGENTHOST_MODE,
    "key": settings.SECRET_KEY,
    "ring": [key.hex() for key in settings.AGENTHOST_KEY_RING],
    "engine": database["ENGINE"],
    "name": str(database["NAME"]),
    "options": {name: plain(value) for name, value in database["OPTIONS"].items()},
    "broker": settings.AGENTHOST_BROKER_URL,
    "layer": settings.CHANNEL_LAYERS["default"]["CONFIG"]["url"],
    "cors": settings.AGENTHOST_CORS_ORIGINS,
    "hosts": settings.ALLOWED_HOSTS,
    "cookies": settings.SESSION_COOKIE_SECURE and settings.CSRF_COOKIE_SECURE,
    "redirect": settings.SECURE_SSL_REDIRECT,
    "hsts": settings.SECURE_HSTS_SECONDS,
    "providers": sorted(settings.AGENTHOST_PROVIDER_KEYS),
    "fetch": [[str(entry.host or entry.network) for entry in settings.AGENTHOST_FETCH_POLICY.allowances],
              sorted(settings.AGENTHOST_FETCH_POLICY.ports)],
}))
"""
POSTGRES = "postgres://someone:pass@db/agenthost"
RING = base64.b64encode(bytes(range(32))).decode()
PRODUCTION = {"DATABASE_URL": POSTGRES, "AGENTHOST_SECRET_KEY": "s3cret-s3cret", "AGENTHOST_KEY_RING": RING}


def load(directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "agenthost.settings",
        "AGENTHOST_VAR_DIR": str(directory / "var"),
        **variables,
    }
    command = [sys.executable, "-W", "error", "-c", SHOW]
    return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False, timeout=60)


def loaded(directory: Path, **variables: str) -> dict[str, object]:
    done = load(directory, **variables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_without_any_variable_it_is_embedded_on_sqlite(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    assert (found["mode"], found["engine"], found["layer"]) == ("embedded", "agenthost.sqlite", None)
    assert found["name"] == str(tmp_path / "var" / "agenthost.sqlite3")
    assert (found["cors"], found["hosts"], found["providers"]) == (["*"], ["*"], [])


def test_generated_secrets_are_stored_and_private(tmp_path: Path) -> None:
    first, second = loaded(tmp_path), loaded(tmp_path)
    assert first["key"]
    assert first["ring"]
    assert (first["key"], first["ring"]) == (second["key"], second["ring"])
    for name in ("secret_key", "key_ring"):
        assert stat.S_IMODE((tmp_path / "var" / name).stat().st_mode) == 0o600


def test_the_data_directory_and_the_database_are_private(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir(mode=0o755)
    loaded(tmp_path)
    assert stat.S_IMODE((tmp_path / "var").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "var" / "agenthost.sqlite3").stat().st_mode) == 0o600


def test_production_is_https_only_and_embedded_is_plain_http(tmp_path: Path) -> None:
    transport = ("hosts", "cookies", "redirect", "hsts")
    production = loaded(tmp_path, **PRODUCTION)
    assert [production[name] for name in transport] == [[], True, True, 365 * 86400]
    trusted = loaded(tmp_path, **PRODUCTION, AGENTHOST_PLAIN_HTTP="yes", AGENTHOST_ALLOWED_HOSTS="agents.internal")
    assert [trusted[name] for name in transport] == [["agents.internal"], False, False, 0]
    assert [loaded(tmp_path)[name] for name in transport] == [["*"], False, False, 0]
    assert loaded(tmp_path, AGENTHOST_PLAIN_HTTP="no", AGENTHOST_HSTS_SECONDS="1h")["hsts"] == 3600


def test_check_deploy_has_no_warnings_in_production(tmp_path: Path) -> None:
    strong = {"AGENTHOST_SECRET_KEY": "a-key-of-production-has-fifty-letters-at-the-very-least"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "check", "--deploy", "--fail-level", "WARNING"],
        env={
            "PATH": os.environ["PATH"],
            "AGENTHOST_VAR_DIR": str(tmp_path / "var"),
            **PRODUCTION,
            **strong,
            "REDIS_URL": "redis://r",
            "AGENTHOST_ALLOWED_HOSTS": "agents.example",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "missing", [("AGENTHOST_SECRET_KEY",), ("AGENTHOST_KEY_RING",), ("AGENTHOST_SECRET_KEY", "AGENTHOST_KEY_RING")]
)
@pytest.mark.parametrize("shape", [{"DATABASE_URL": POSTGRES}, {"REDIS_URL": "redis://r"}, {"AGENTHOST_ROLE": "worker"}])
def test_production_refuses_to_start_without_its_secrets(tmp_path: Path, missing: tuple[str, ...], shape: dict[str, str]) -> None:
    secrets = {name: value for name, value in PRODUCTION.items() if name.startswith("AGENTHOST") and name not in missing}
    done = load(tmp_path, **shape, **secrets)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert all(name in last for name in missing)
    assert not (tmp_path / "var" / "key_ring").exists()


def test_production_uses_a_postgres_pool_and_redis_for_events_and_tasks(tmp_path: Path) -> None:
    found = loaded(tmp_path, **PRODUCTION, REDIS_URL="redis://r/2", AGENTHOST_ROLE="web", AGENTHOST_DATABASE_POOL_MAX="9")
    assert (found["mode"], found["engine"], found["name"]) == ("production", "agenthost.postgres", "agenthost")
    assert (found["broker"], found["layer"]) == ("redis://r/2", "redis://r/2")
    options = found["options"]
    assert isinstance(options, dict)
    assert "'max_size': 9" in options["pool"]
    assert "lock_timeout=5000" in options["options"]
    assert "idle_in_transaction_session_timeout=30000" in options["options"]


@pytest.mark.parametrize(("role", "milliseconds"), [("web", "5000"), ("worker", "500"), ("migrate", None), ("beat", None)])
def test_only_migrations_have_no_lock_timeout(tmp_path: Path, role: str, milliseconds: str | None) -> None:
    options = loaded(tmp_path, **PRODUCTION, AGENTHOST_ROLE=role)["options"]
    assert isinstance(options, dict)
    given = re.search(r"lock_timeout=(\d+)", options["options"])
    assert (given and given[1]) == milliseconds


def test_the_broker_url_takes_precedence_over_redis(tmp_path: Path) -> None:
    found = loaded(tmp_path, **PRODUCTION, REDIS_URL="redis://r/2", CELERY_BROKER_URL="amqp://q")
    assert (found["broker"], found["layer"]) == ("amqp://q", "redis://r/2")


def test_fetch_policy_defaults_and_settings(tmp_path: Path) -> None:
    assert loaded(tmp_path)["fetch"] == [[], [80, 443]]
    listed = {"AGENTHOST_FETCH_ALLOW": "Wiki.example:8080, 10.0.0.0/8", "AGENTHOST_FETCH_PORTS": "443,8443"}
    assert loaded(tmp_path, **listed)["fetch"] == [["wiki.example", "10.0.0.0/8"], [443, 8443]]


def test_secrets_may_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    (tmp_path / "ring").write_text(f"{RING}\n")
    files = {"AGENTHOST_SECRET_KEY_FILE": str(tmp_path / "key"), "AGENTHOST_KEY_RING_FILE": str(tmp_path / "ring")}
    found = loaded(tmp_path, DATABASE_URL=POSTGRES, **files)
    assert (found["key"], found["ring"]) == ("from a file", [bytes(range(32)).hex()])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGENTHOST_PORT", "eighty"),
        ("AGENTHOST_PORT", "70000"),
        ("AGENTHOST_LEASE_SECONDS", "soon"),
        ("AGENTHOST_RENEW_SECONDS", "14"),
        ("AGENTHOST_AGENTS_FILE", "/nowhere/agents.toml"),
        ("AGENTHOST_KEY_RING", "c2hvcnQ="),
        ("AGENTHOST_CORS_ORIGINS", "example.org"),
        ("AGENTHOST_MAX_BODY_BYTES", "16MiB"),
        ("AGENTHOST_LOG_LEVEL", "chatty"),
        ("AGENTHOST_FETCH_ALLOW", "wiki.example, 10.0.0.0/33"),
        ("AGENTHOST_FETCH_PORTS", "80, http"),
        ("AGENTHOST_IMAGE_BYTES", "5MB"),
        ("REDIS_URL", "http://r:hush@h"),
        ("CELERY_BROKER_URL", "amqp://h:5672;amqp://u:a#hush@h:5672"),
        ("DATABASE_URL", "oracle://u:hush@h/d"),
    ],
)
def test_an_invalid_variable_stops_the_start_and_is_named(tmp_path: Path, name: str, value: str) -> None:
    done = load(tmp_path, **{name: value})
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert name in last
    assert "hush" not in done.stderr


def test_the_keys_of_vendors_come_from_their_usual_variables(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    found = loaded(tmp_path, OPENAI_API_KEY="k", GEMINI_API_KEY="k", MISTRAL_API_KEY_FILE=str(tmp_path / "key"))
    assert found["providers"] == ["google", "mistral", "openai-chat", "openai-responses"]
