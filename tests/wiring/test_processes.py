"""Process roles: refused starts, and clean stops."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest
from django.db import IntegrityError, NotSupportedError

from agenthost import processes, web_server
from ops import migrated_database
from ops.services import free_port
from sessions_app.core.base import process_loop
from tests.e2e.server import as_role, own_database, own_role
from tests.paths import ROOT

ENTRYPOINT = str(ROOT / "ops" / "entrypoint")
RING = base64.b64encode(bytes(range(32))).decode()
SECRETS = {"AGENTHOST_SECRET_KEY": "s3cret-s3cret", "AGENTHOST_KEY_RING": RING}
NO_ONE_LISTENS = "redis://127.0.0.1:9/0"


def environment(directory: Path, **variables: str) -> dict[str, str]:
    given = {"PATH": os.environ["PATH"], "AGENTHOST_VAR_DIR": str(directory / "var"), "AGENTHOST_HOST": "127.0.0.1"}
    return given | {"AGENTHOST_WORKER_GRACE_SECONDS": "1", "AGENTHOST_DRAIN_SECONDS": "1"} | variables


def run(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A role that is expected to end by itself, started from somewhere else."""
    command = [ENTRYPOINT, *arguments]
    return subprocess.run(
        command, env=environment(directory, **variables), cwd=directory, capture_output=True, text=True, check=False, timeout=120
    )


@contextmanager
def running(directory: Path, role: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with (directory / f"{role}.log").open("wb") as log:
        process = subprocess.Popen(
            [ENTRYPOINT, role], env=environment(directory, **variables), cwd=directory, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait(60)


def until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        with suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5, trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def until_said(words: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while words not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("webb",),
        ("web", "worker"),
        ("web", "--processes"),
        ("web", "--processes", "0"),
        ("embedded", "--processes", "2"),
        ("web", "--queues", "heavy"),
        ("worker", "--queues"),
        ("worker", "--queues", ","),
    ],
)
def test_an_unknown_role_is_refused_with_the_list_of_roles(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert "web, worker, terminals, beat, migrate, embedded" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (("worker", "--queues", "default,Heavy GPU"), {}, "value 2: a queue's name has"),
        (("worker", "--processes", "2", "-Q", "Heavy"), {}, "did you mean heavy?"),
        (("worker",), {"AGENTHOST_QUEUES": "heavy,agenthost"}, "did you mean default?"),
        (("worker",), {"AGENTHOST_QUEUES": ",".join(f"q{n}" for n in range(33))}, "33 values; at most 32 are allowed."),
    ],
)
def test_a_worker_refuses_names_that_no_queue_can_have(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], words: str
) -> None:
    done = run(tmp_path, *arguments, **SECRETS, **variables)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "AGENTHOST_QUEUES: " in line
    assert words in line


@pytest.mark.parametrize("role", ["web", "worker", "beat"])
def test_production_roles_name_the_missing_settings(tmp_path: Path, role: str) -> None:
    done = run(tmp_path, role)
    assert done.returncode == 1
    assert "AGENTHOST_SECRET_KEY" in done.stderr
    assert "AGENTHOST_KEY_RING" in done.stderr
    assert "Traceback" not in done.stderr


def test_production_roles_refuse_sqlite_and_a_missing_redis(tmp_path: Path) -> None:
    done = run(tmp_path, "worker", **SECRETS)
    assert done.returncode == 1
    assert "agenthost.E001" in done.stderr
    assert "REDIS_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_agents_file_stops_the_start_with_table_and_key(tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text('[[agents]]\nname = "helper"\nmodel = 7\n')
    done = run(tmp_path, "embedded", AGENTHOST_AGENTS_FILE=str(tmp_path / "agents.toml"))
    assert done.returncode == 1
    assert "agents.toml" in done.stderr
    assert "model" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_embedded_server_starts_without_data_and_stops_cleanly(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "embedded.log"
    with running(tmp_path, "embedded", AGENTHOST_PORT=str(port)) as process:
        until_ready(process, port, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    # Everything it keeps, and nothing in the directory it was started from.
    assert {path.name for path in tmp_path.iterdir()} == {"var", "embedded.log"}


def test_a_second_embedded_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "embedded.log"
    with running(tmp_path, "embedded", AGENTHOST_PORT=str(port)) as process:
        until_ready(process, port, log)
        done = run(tmp_path, "embedded", AGENTHOST_PORT=str(free_port()))
        assert done.returncode == 1
        assert f"a server (process {process.pid}, port {port}) already uses {tmp_path / 'var'}" in done.stderr
        assert "Traceback" not in done.stderr
        process.kill()
        process.wait(60)
    # After its end, however it came, the next one starts.
    with running(tmp_path, "embedded", AGENTHOST_PORT=str(port)) as process:
        until_ready(process, port, log)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(tmp_path, "embedded", AGENTHOST_PORT=str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "AGENTHOST_PORT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.skipif(not os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="the production shape needs a Postgres")
def test_a_beat_without_its_broker_keeps_running_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    variables = {"DATABASE_URL": os.environ["DATABASE_URL"], "REDIS_URL": NO_ONE_LISTENS, **SECRETS}
    with running(tmp_path, "beat", **variables) as process:
        until_said("beat is ready", process, tmp_path / "beat.log")
        process.send_signal(number)
        assert process.wait(60) == 0, (tmp_path / "beat.log").read_text()


PRODUCTION = {"REDIS_URL": NO_ONE_LISTENS, **SECRETS}
on_postgres = pytest.mark.skipif(
    not os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="the production shape needs a Postgres"
)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database of this release, marked with the keys of these tests."""
    with own_database(os.environ["DATABASE_URL"], migrated_database.name() or "template1") as url:
        done = run(tmp_path_factory.mktemp("migrated"), "migrate", DATABASE_URL=url, **PRODUCTION)
        assert done.returncode == 0, done.stderr
        yield url


@on_postgres
def test_a_web_process_without_host_names_does_not_start(tmp_path: Path) -> None:
    done = run(tmp_path, "web", DATABASE_URL=os.environ["DATABASE_URL"], **PRODUCTION)
    assert done.returncode == 1
    assert "AGENTHOST_ALLOWED_HOSTS" in done.stderr
    assert "Traceback" not in done.stderr


@on_postgres
def test_a_web_process_serves_pages_over_https_only_and_probes_over_http(tmp_path: Path, migrated: str) -> None:
    port, log = free_port(), tmp_path / "web.log"
    names = {"AGENTHOST_ALLOWED_HOSTS": "agents.example", "AGENTHOST_PORT": str(port)}
    with running(tmp_path, "web", DATABASE_URL=migrated, **PRODUCTION, **names) as process:
        until_said("serving on", process, log)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
            host = {"Host": "agents.example"}
            # Probes of a cluster use neither the host name nor TLS.
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code in (200, 503)
            assert client.get("/accounts/login/").status_code == 400
            plain = client.get("/accounts/login/", headers=host)
            assert (plain.status_code, plain.headers["Location"]) == (301, "https://agents.example/accounts/login/")
            secure = client.get("/accounts/login/", headers={**host, "X-Forwarded-Proto": "https"})
            assert secure.status_code == 200
            assert secure.headers.get_list("Strict-Transport-Security") == ["max-age=31536000"]
            assert "; Secure" in secure.headers["Set-Cookie"]
            told = client.get("/aap/v3/meta", headers={**host, "X-Forwarded-Proto": "https"})
            assert (told.status_code, told.headers["Strict-Transport-Security"]) == (401, "max-age=31536000")
    assert "plain HTTP is on" not in log.read_text()


@on_postgres
def test_an_untrusted_proxy_gets_an_explanation_instead_of_a_redirect_loop(tmp_path: Path, migrated: str) -> None:
    port, log = free_port(), tmp_path / "web.log"
    names = {"AGENTHOST_ALLOWED_HOSTS": "agents.example", "AGENTHOST_PORT": str(port), "AGENTHOST_PROXIES": "10.9.9.9"}
    with running(tmp_path, "web", DATABASE_URL=migrated, **PRODUCTION, **names) as process:
        until_said("serving on", process, log)
        headers = {"Host": "agents.example", "X-Forwarded-Proto": "https"}
        answer = httpx.get(f"http://127.0.0.1:{port}/accounts/login/", headers=headers, trust_env=False, timeout=30)
    assert answer.status_code == 421
    assert "127.0.0.1" in answer.text
    assert "AGENTHOST_PROXIES" in answer.text


@on_postgres
def test_plain_http_is_logged_at_every_start(tmp_path: Path, migrated: str) -> None:
    port, log = free_port(), tmp_path / "web.log"
    open_network = {"AGENTHOST_ALLOWED_HOSTS": "agents.internal", "AGENTHOST_PLAIN_HTTP": "yes", "AGENTHOST_PORT": str(port)}
    with running(tmp_path, "web", DATABASE_URL=migrated, **PRODUCTION, **open_network) as process:
        until_said("serving on", process, log)
        answer = httpx.get(
            f"http://127.0.0.1:{port}/accounts/login/", headers={"Host": "agents.internal"}, trust_env=False, timeout=30
        )
        assert answer.status_code == 200
        assert "; Secure" not in answer.headers["Set-Cookie"]
    assert "plain HTTP is on" in log.read_text()
    assert "AGENTHOST_PLAIN_HTTP" in log.read_text()


@pytest.mark.parametrize("role", ["web", *(pytest.param(role, marks=pytest.mark.slow) for role in ("migrate", "worker"))])
def test_an_unreachable_postgres_stops_the_start_with_one_line(tmp_path: Path, role: str) -> None:
    port = free_port()
    url = f"postgres://user:hush-hush@127.0.0.1:{port}/agenthost"
    done = run(
        tmp_path, role, DATABASE_URL=url, AGENTHOST_PORT=str(free_port()), AGENTHOST_ALLOWED_HOSTS="agents.example", **PRODUCTION
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"agenthost: DATABASE_URL: the database at 127.0.0.1:{port} cannot be used: ")
    assert "hush-hush" not in line


@on_postgres
@pytest.mark.parametrize("role", ["web", *(pytest.param(role, marks=pytest.mark.slow) for role in ("migrate", "worker"))])
def test_production_refuses_a_key_ring_that_its_database_was_not_used_with(tmp_path: Path, migrated: str, role: str) -> None:
    other = {**PRODUCTION, "AGENTHOST_KEY_RING": base64.b64encode(bytes(range(1, 33))).decode()}
    done = run(
        tmp_path, role, DATABASE_URL=migrated, AGENTHOST_PORT=str(free_port()), AGENTHOST_ALLOWED_HOSTS="agents.example", **other
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("agenthost: AGENTHOST_KEY_RING cannot decrypt the secrets in this database.")


@on_postgres
@pytest.mark.parametrize("role", ["web", pytest.param("worker", marks=pytest.mark.slow)])
def test_production_refuses_a_database_that_was_never_migrated(tmp_path: Path, role: str) -> None:
    with own_database(os.environ["DATABASE_URL"]) as empty:
        names = {"AGENTHOST_PORT": str(free_port()), "AGENTHOST_ALLOWED_HOSTS": "agents.example"}
        done = run(tmp_path, role, DATABASE_URL=empty, **PRODUCTION, **names)
    assert done.returncode == 1
    assert done.stderr == "agenthost: The database was never migrated. Run: ops/entrypoint migrate\n"


@on_postgres
def test_a_missing_privilege_names_the_role_and_the_fix(tmp_path: Path, migrated: str) -> None:
    given = os.environ["DATABASE_URL"]
    with own_role(given) as role, own_database(given) as empty:
        with psycopg.connect(empty, autocommit=True) as owner:
            owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        names = {"AGENTHOST_PORT": str(free_port()), "AGENTHOST_ALLOWED_HOSTS": "agents.example"}
        for process, database in (("migrate", empty), ("web", migrated)):
            done = run(tmp_path, process, DATABASE_URL=as_role(database, role), **PRODUCTION, **names)
            assert done.returncode == 1
            (line,) = done.stderr.splitlines()
            assert line.startswith(f'agenthost: DATABASE_URL: the role "{role}" lacks a privilege: ')
            assert "permission denied" in line
            assert "AGENTHOST_RUNTIME_ROLE" in line


def test_the_embedded_server_refuses_keys_that_its_database_was_not_used_with(tmp_path: Path) -> None:
    assert run(tmp_path, "migrate").returncode == 0
    port = str(free_port())
    for name, given in (("AGENTHOST_KEY_RING", RING), ("AGENTHOST_SECRET_KEY", "another")):
        done = run(tmp_path, "embedded", AGENTHOST_PORT=port, **{name: given})
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"agenthost: {name} ")
        assert "accept_keys" in line


def test_the_embedded_server_refuses_a_file_of_a_newer_release_and_leaves_it_alone(tmp_path: Path) -> None:
    assert run(tmp_path, "migrate").returncode == 0
    file = tmp_path / "var" / "agenthost.sqlite3"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "insert into django_migrations (app, name, applied) values ('sessions_app', '9999_future', '2026-01-01')"
        )
    done = run(tmp_path, "embedded", AGENTHOST_PORT=str(free_port()))
    assert done.returncode == 1
    assert "sessions_app.9999_future" in done.stderr
    assert "Start the newer release" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_embedded_server_refuses_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "agenthost.sqlite3").write_text("these are notes, and more than sixteen bytes of them")
    done = run(tmp_path, "embedded", AGENTHOST_PORT=str(free_port()))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "agenthost.sqlite3 cannot be read as a SQLite database" in line


@pytest.mark.django_db
def test_a_database_error_while_a_role_starts_is_one_line_if_it_can_be_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error: Exception = NotSupportedError("PostgreSQL 14 or later is required (found 12.3).")

    def fail() -> None:
        raise error

    monkeypatch.setenv("AGENTHOST_ROLE", "")
    monkeypatch.setitem(processes.ONE, "migrate", fail)
    assert processes.main(["migrate"]) == 1
    assert capsys.readouterr().err == "agenthost: PostgreSQL 14 or later is required (found 12.3).\n"
    error = IntegrityError("a constraint of ours")
    with pytest.raises(IntegrityError):
        processes.main(["migrate"])


def test_a_web_servers_loop_carries_the_connections_of_its_process_while_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    adopted: list[bool] = []

    async def serve(server: web_server.WebServer, sockets: list[socket.socket]) -> None:
        adopted.append(process_loop.current() is asyncio.get_running_loop())

    monkeypatch.setattr(web_server.WebServer, "serve", serve)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        web_server.serve(listener, 1.0)
    assert adopted == [True]
    assert process_loop.current() is None
