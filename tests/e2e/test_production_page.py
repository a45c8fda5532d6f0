"""The steps of docs/production.md: from an empty Postgres to a signed-in operator and a first turn."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from ops import clean_environment
from ops.services import Postgres, Redis, folder, free_port
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "production.md").read_text()
NAME = "agents.example.org"
PASSWORD = "a-long-password-of-an-operator"
WITHIN_SECONDS = 120.0

pytestmark = pytest.mark.slow


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@dataclass
class Walk:
    """An operator's shell, with this machine's addresses in the places of the page's."""

    directory: Path
    replaced: dict[str, str]
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def text(self, block: str) -> str:
        for written, meant in self.replaced.items():
            block = block.replace(written, meant)
        return block

    def run(self, block: str) -> str:
        """A block of shell commands, in the project's root, with the settings of the file; what it printed."""
        script = f"set -eu\n[ ! -e {self.settings} ] || {{ set -a; . {self.settings}; set +a; }}\n{self.text(block)}"
        done = subprocess.run(
            ["sh", "-c", script], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def settings(self) -> Path:
        return self.directory / "agenthost.env"

    @property
    def environment(self) -> dict[str, str]:
        # What the page leaves to its reader: where data goes, and the password that createsuperuser asks for.
        own = {"AGENTHOST_VAR_DIR": str(self.directory / "var"), "DJANGO_SUPERUSER_PASSWORD": PASSWORD}
        return {**clean_environment.inherited(), **own, "AGENTHOST_PORT": self.replaced["8000"]}

    def start(self, line: str) -> None:
        """A role, as a service of its own."""
        command = f"set -a; . {self.settings}; set +a; exec {self.text(line)}"
        with (self.directory / "services.log").open("ab") as log:
            self.services.append(subprocess.Popen(["sh", "-c", command], cwd=ROOT, env=self.environment, stdout=log, stderr=log))

    def wait_for(self, url: str) -> None:
        until = time.monotonic() + WITHIN_SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(url, trust_env=False, timeout=10).status_code == 200:
                    return
            assert time.monotonic() < until, (self.directory / "services.log").read_text()[-4000:]
            time.sleep(0.1)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    with folder() as home, contextlib.ExitStack() as stack:
        postgres, redis = Postgres(home), Redis(home)
        for server in (postgres, redis):
            stack.callback(server.stop)
            server.start()
        with psycopg.connect(postgres.url(), autocommit=True) as administrator:
            for statement in blocks("sql")[0].split(";"):
                if statement.strip():
                    administrator.execute(statement.encode())
        there = {
            "db.internal:5432": postgres.url().rpartition("@")[2].partition("/")[0],
            "redis://redis.internal:6379/0": redis.url(),
            "agenthost.env": str(tmp_path / "agenthost.env"),
            "8000": str(free_port()),
        }
        made = Walk(tmp_path, there)
        yield made
        for service in made.services:
            service.terminate()
        for service in made.services:
            service.wait(60)


def until_it_runs(walk: Walk) -> str:
    """The steps up to the proxy; the key."""
    settings, tables, roles = blocks("sh")[:3]
    walk.run(settings.replace("./agenthost.env", "agenthost.env"))
    assert walk.settings.stat().st_mode & 0o077 == 0
    # The test's environment is already set, and there is no keyboard input.
    commands = tables.replace("ops/bootstrap\n", "").replace("createsuperuser", "createsuperuser --noinput")
    key = walk.run(commands).split()[-1]
    for line in roles.splitlines():
        walk.start(line.partition("#")[0].strip())
    walk.wait_for(f"http://127.0.0.1:{walk.replaced['8000']}/readyz")
    return key


def sign_in(client: httpx.Client) -> httpx.Response:
    """The admin's index page. Cookies are Secure but this connection is plain HTTP, so they are sent explicitly."""
    form = client.get("/accounts/login/")
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)
    assert token is not None, form.text[:2000]
    headers = {"Referer": f"https://{NAME}/accounts/login/", "Cookie": cookies(form)}
    fields = {"login": "admin", "password": PASSWORD, "csrfmiddlewaretoken": token[1], "next": "/admin/"}
    answer = client.post("/accounts/login/", data=fields, headers=headers)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
    # Staff have no second factor yet, so they are sent to the page that sets one up.
    signed_in = {"Cookie": cookies(answer)}
    assert client.get("/admin/", headers=signed_in).headers["Location"] == "/accounts/2fa/"
    return client.get("/accounts/2fa/", headers=signed_in)


def cookies(answer: httpx.Response) -> str:
    return "; ".join(header.partition(";")[0] for header in answer.headers.get_list("Set-Cookie"))


def test_the_readme_steps_lead_to_a_signed_in_operator_and_a_working_key(walk: Walk) -> None:
    key = until_it_runs(walk)
    doctor = blocks("sh")[3].splitlines()[0]
    # This Postgres is a test's: it does without fsync, which doctor does not like.
    found = walk.run(f"{doctor} | grep -e FAIL -e warning | grep -v -e fsync -e full_page_writes -e Housekeeping || true")
    assert found == ""
    behind_a_proxy = {"Host": NAME, "X-Forwarded-Proto": "https"}
    with httpx.Client(
        base_url=f"http://127.0.0.1:{walk.replaced['8000']}", headers=behind_a_proxy, trust_env=False, timeout=60
    ) as client:
        bearer = {"Authorization": f"Bearer {key}"}
        meta = client.get("/aap/v3/meta", headers=bearer)
        assert [agent["name"] for agent in meta.json()["agents"]] == ["demo"]
        session = client.post("/aap/v3/sessions", json={"agent": {"name": "demo"}}, headers=bearer).json()["sessionId"]
        hello = {"messages": [{"role": "user", "content": "Hello!"}], "stream": "none"}
        turn = client.post(f"/aap/v3/sessions/{session}/turns", json=hello, headers=bearer)
        assert turn.json()["stopReason"] == "end_turn"
        assert "Sign out" in sign_in(client).text


def test_the_documented_proxy_configuration_exists() -> None:
    (named,) = set(re.findall(r"`(ops/nginx/[^`]+)`", PAGE))
    assert (ROOT / named).is_file()
