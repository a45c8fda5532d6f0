"""Mistakes in the Dockerfile and the compose file that are found without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops import check_container
from sessions_app.workspace import seccomp

ROOT = Path(check_container.ROOT)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "ops" / "compose.yaml").read_text()
LET_IN = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}


def test_what_the_project_ships_is_sound() -> None:
    assert check_container.dockerfile_faults(DOCKERFILE, LET_IN) == []
    assert check_container.compose_faults(COMPOSE) == []


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("USER 10001:10001", "USER root", "root"),
        ("USER 10001:10001\n", "", "root"),
        ("python:3.12-slim", "registry.example/python:3.12", "host"),
        ("COPY manage.py", "COPY missing.py manage.py", "missing.py"),
        ("COPY manage.py", "COPY tests manage.py", ".dockerignore"),
        ("RUN python -I ops/environment.py", "RUN .venv/bin/pip install -r requirements.lock #", "ops/environment.py|hashes"),
        (' --with "${EXTRAS}"', "", "ops/environment.py|ops.sbom"),
        ('ARG EXTRAS=""\n', "", "EXTRAS"),
        ("python -m ops.sbom", "true", "bill of materials"),
        ('CMD ["embedded"]', 'CMD ["everything"]', "role"),
        ("EXPOSE", "EXPOSED", "EXPOSED"),
    ],
)
def test_a_mistake_in_the_dockerfile_is_named(old: str, new: str, word: str) -> None:
    assert old in DOCKERFILE
    faults = check_container.dockerfile_faults(DOCKERFILE.replace(old, new), LET_IN)
    assert faults
    assert all(any(each in fault for each in word.split("|")) for fault in faults)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('command: ["beat"]', 'command: ["clock"]', "role"),
        ("image: redis:7", "image: registry.example/redis:7", "host"),
        ("AGENTHOST_KEY_RING_FILE", "AGENTHOST_KEY_RINGS_FILE", "AGENTHOST_KEY_RINGS_FILE"),
        ("    - key_ring\n", "    - key_rings\n", "key_ring"),
        ("postgres:/var/lib", "pgdata:/var/lib", "pgdata"),
        ("image: redis:7", "image: redis:7@sha256:abc", "digest"),
        ("image: redis:7", "image: redis", "tag"),
        ("    args:\n      EXTRAS: ${EXTRAS:-}\n", "", "web: its build has no argument EXTRAS"),
        ("        memory: ${WEB_MEMORY:-1g}\n", "", "web: no limit on memory"),
        ('          cpus: "${REDIS_CPUS:-1}"\n', "", "redis: no limit on cpus"),
        ("          pids: 300\n", "", "postgres: no limit on pids"),
        ("    volumes:\n      - workspaces:/workspaces\n    depends_on", "    depends_on", "does not mount the volume"),
        ("  volumes:\n    - workspaces:/workspaces\n  depends_on", "  depends_on", "web-2: it does not mount the volume"),
        ("      - seccomp:./seccomp-terminals.json\n", "      - seccomp:./gone.json\n", "gone.json"),
        ("      - seccomp:./seccomp-terminals.json\n", "      - seccomp:unconfined\n", "not filtered"),
        ('["CMD", "ops/entrypoint", "healthy", "terminals"]', '["CMD", "true"]', "terminals: it has no healthcheck"),
        (
            '  command: ["worker"]',
            '  command: ["worker"]\n    security_opt: [no-new-privileges:true, systempaths=unconfined]',
            "worker: systempaths",
        ),
        ("requirepass", "#", "password"),
        ("REDIS_URL_FILE: /run/secrets/redis_url", "REDIS_URL: redis://:hush@redis:6379/0", "REDIS_URL is in the file"),
        ("/run/secrets/database_url_owner", "/run/secrets/database_url_run", "role that migrates"),
        ("      AGENTHOST_RUNTIME_ROLE: agenthost_run\n", "", "AGENTHOST_RUNTIME_ROLE"),
        ("./compose-roles.sh", "./compose-rolls.sh", "compose-rolls.sh"),
        ('"${PUBLISH:-127.0.0.1:8443}:8443"', '"8443:8443"', "open to other machines"),
        ("${PUBLISH:-127.0.0.1:8443}", "${PUBLISH:-8443}", "open to other machines"),
        ("  worker:\n", '  worker:\n    ports: ["127.0.0.1:9:9"]\n', "worker: it has a port"),
        ("  web-2: *web\n", "  web-3: *web\n", "compose-proxy.sh does not send requests to web-3:8000, web:8000"),
        ("./nginx/agenthost.conf:", "./nginx/other.conf:", "proxy: it does not mount ./nginx/agenthost.conf"),
        ("      web-2:\n        condition: service_healthy\n        restart: true\n", "", "proxy: it does not wait for web-2"),
        ("    tmpfs:\n      - /tmp\n    cap_drop:\n      - ALL\n", "    tmpfs:\n      - /tmp\n", "proxy: its root"),
        ("  read_only: true\n  tmpfs:\n    - /tmp", "  tmpfs:\n    - /tmp", "read-only"),
    ],
)
def test_a_mistake_in_the_compose_file_is_named(old: str, new: str, word: str) -> None:
    assert old in COMPOSE
    faults = check_container.compose_faults(COMPOSE.replace(old, new))
    assert any(word in fault for fault in faults)


def test_the_terminal_service_may_call_what_sandboxes_need_and_nothing_else_that_they_forbid() -> None:
    profile = check_container.seccomp_profile("seccomp:./seccomp-terminals.json")
    assert profile is not None
    denied = {name for rule in profile["syscalls"] for name in rule["names"]}
    forbidden = seccomp.PERMISSION_DENIED.keys() | seccomp.NOT_IMPLEMENTED.keys()
    assert forbidden - denied == {"mount", "umount2", "pivot_root", "sethostname", "memfd_create"}
    assert denied <= forbidden
