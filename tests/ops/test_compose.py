"""What compose.yaml runs beside our image, with a Postgres and a Redis of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ops import services
from tests.paths import ROOT


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """What compose-secrets makes."""
    (tmp_path / "checkout" / "ops").mkdir(parents=True)
    shutil.copy2(ROOT / "ops" / "compose-secrets", tmp_path / "checkout" / "ops")
    subprocess.run([tmp_path / "checkout" / "ops" / "compose-secrets"], check=True, capture_output=True)
    return tmp_path / "checkout" / "var" / "compose"


@pytest.fixture
def postgres() -> Iterator[services.Postgres]:
    with services.folder() as home:
        server = services.Postgres(home)
        server.start()
        yield server
        server.stop()


def test_every_secret_that_the_compose_file_names_is_made_once(secrets: Path) -> None:
    named = yaml.safe_load((ROOT / "ops" / "compose.yaml").read_text())["secrets"]
    made = {path.name: path.read_text() for path in secrets.iterdir()}
    assert {Path(one["file"]).name for one in named.values()} == made.keys() - {"env"}
    passwords = [made[name] for name in made if name.endswith("_password")]
    assert len(set(passwords)) == 4
    certificate = x509.load_pem_x509_certificate(made["tls_certificate"].encode())
    key = serialization.load_pem_private_key(made["tls_key"].encode(), None)
    assert certificate.public_key() == key.public_key()
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert "AGENTHOST_ALLOWED_HOSTS=" in made["env"]
    subprocess.run([secrets.parent.parent / "ops" / "compose-secrets"], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == made


def test_the_roles_can_be_made_twice_and_own_as_they_should(secrets: Path, postgres: services.Postgres) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute("create database agenthost")
    parts = psycopg.conninfo.conninfo_to_dict(postgres.url())
    environment = {
        "PATH": f"{services.postgres_programs()}{os.pathsep}{os.environ['PATH']}",
        "SECRETS": str(secrets),
        "POSTGRES_USER": "postgres",
        "PGHOST": str(parts["host"]),
        "PGPORT": str(parts["port"]),
        "PGPASSWORD": str(parts["password"]),
    }
    for _ in range(2):
        done = subprocess.run(
            ["sh", ROOT / "ops" / "compose-roles.sh"], env=environment, check=False, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    for role in ("owner", "run"):
        url = (secrets / f"database_url_{role}").read_text().strip()
        with psycopg.connect(url.replace("@postgres:5432/", f"@{parts['host']}:{parts['port']}/")) as connection:
            creates = connection.execute("select has_schema_privilege('public', 'create')").fetchone()
            assert creates == (role == "owner",)


def test_the_redis_asks_for_its_password(secrets: Path, tmp_path: Path) -> None:
    """The compose file's own command, but for the place of its secret and the port."""
    service = yaml.safe_load((ROOT / "ops" / "compose.yaml").read_text())["services"]["redis"]
    port = services.free_port()
    script = service["command"][0].replace("$$", "$").replace("/run/secrets", str(secrets))
    script = script.replace("save", f"port {port}\nbind 127.0.0.1\nsave", 1)
    path = f"{services.redis_program().parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen([*service["entrypoint"], script], cwd=tmp_path, env={"PATH": path}, stdout=subprocess.DEVNULL)
    try:
        url = (secrets / "redis_url").read_text().strip().replace("@redis:6379", f"@127.0.0.1:{port}")
        retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 100)
        with redis.Redis.from_url(url, retry=retry) as client:
            assert client.ping()
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        password = (secrets / "redis_password").read_text().strip()
        shown = subprocess.run(["ps", "-o", "args=", "-p", str(process.pid)], check=True, capture_output=True, text=True).stdout
        assert password not in shown
    finally:
        process.terminate()
        process.wait(30)
