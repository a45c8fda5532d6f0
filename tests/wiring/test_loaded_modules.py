"""What each role loads, in a process of its own."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.paths import ROOT

LOAD = """
import json, os, sys
from pathlib import Path
from agenthost import processes
processes.load(sys.argv[1])
descriptors = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
print(json.dumps({
    "modules": sorted(sys.modules),
    "threads": len(list(Path("/proc/self/task").iterdir())),
    "sockets": [each for each in descriptors if each.startswith("socket:")],
}))
"""
NOBODY_LISTENS = {"DATABASE_URL": "postgres://user:hush@127.0.0.1:9/agenthost", "REDIS_URL": "redis://127.0.0.1:9/0"}
PAGES = ["django.contrib.admin", "sessions_app.admin", "axes", "whitenoise"]
PROTOCOLS = ["rest_framework", "sessions_app.aap", "sessions_app.ahp", "channels.routing", "agenthost.urls", "agenthost.routing"]
HTTP_SERVER = ["uvicorn", "websockets", "httptools"]
RUNNING_TURNS = [
    "sessions_app.core.worker.runner",
    "sessions_app.core.worker.worker",
    "sessions_app.core.worker.housekeeping",
    "celery.worker.consumer",
    "agenthost.worker_services",
]
MODEL_CLIENTS = ["aiohttp", "agents_app.providers.exchange", "agents_app.providers.openai_chat"]
MCP_CLIENT = ["mcp", "httpx2", "pydantic"]
FOR_NOBODY = ["requests", "urllib3", "charset_normalizer", "pygments", "yaml"]
ONLY_MIGRATE = ["django.core.management.commands.migrate", "sessions_app.migrations", "drf_spectacular"]


@cache
def loaded(role: str) -> dict[str, Any]:
    environment = {
        "PATH": os.environ["PATH"],
        "AGENTHOST_SECRET_KEY": "s3cret-s3cret",
        "AGENTHOST_KEY_RING": base64.b64encode(bytes(range(32))).decode(),
        "AGENTHOST_ALLOWED_HOSTS": "*",
        "AGENTHOST_AGENTS_FILE": str(ROOT / "tests" / "wiring" / "agents_of_roles.toml"),
        **NOBODY_LISTENS,
    }
    command = [sys.executable, "-c", LOAD, role]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def loads(role: str, names: list[str]) -> list[str]:
    """Those of the names that are loaded, as a module or as a package."""
    modules = set(loaded(role)["modules"])
    return [name for name in names if name in modules]


def test_a_web_process_loads_no_client_of_models_or_mcp_and_nothing_that_runs_turns() -> None:
    """A role loads only what it serves: web accepts turns and never runs one, so it needs no client of a provider."""
    assert loads("web", [*MODEL_CLIENTS, *MCP_CLIENT, *RUNNING_TURNS, "celery.beat", *ONLY_MIGRATE]) == []
    needed = [*PAGES, *PROTOCOLS, *HTTP_SERVER]
    assert loads("web", needed) == needed


def test_a_worker_loads_neither_pages_nor_protocols() -> None:
    """A role loads only what it serves: a worker answers no requests."""
    assert loads("worker", [*PAGES, *PROTOCOLS, *HTTP_SERVER, *MCP_CLIENT, *ONLY_MIGRATE]) == []


def test_a_worker_has_loaded_the_clients_of_its_agents_before_its_first_turn() -> None:
    """What a role serves is loaded before it serves: the first turn waits for no import, and forked processes share it."""
    needed = [*MODEL_CLIENTS, *RUNNING_TURNS, "sessions_app.core.worker.worker", "agents_app.outbound.connector"]
    assert loads("worker", needed) == needed


def test_beat_loads_only_celerys_scheduler() -> None:
    """A role loads only what it serves: beat publishes tasks by their names, and knows neither tables nor agents."""
    assert loads("beat", [*PAGES, *PROTOCOLS, *HTTP_SERVER, *RUNNING_TURNS, *MODEL_CLIENTS, *MCP_CLIENT, *ONLY_MIGRATE]) == []
    assert loads("beat", ["sessions_app.models", "agents_app.registry", "celery.beat"]) == ["celery.beat"]


@pytest.mark.parametrize("role", ["web", "worker"])
def test_no_role_loads_what_libraries_only_import_because_it_is_installed(role: str) -> None:
    """A role loads only what it serves: DRF and Kombu can do without these."""
    assert loads(role, FOR_NOBODY) == []


@pytest.mark.parametrize("role", ["web", "worker", "beat"])
def test_loading_starts_no_thread_and_opens_no_connection(role: str) -> None:
    """A parent forks its processes after loading, and a forked process has none of its parent's threads."""
    assert loaded(role)["threads"] == 1
    assert loaded(role)["sockets"] == []
