"""The key ring and the secret key are rotated while requests arrive: none fails, and everything stays readable."""

from __future__ import annotations

import base64
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from ops.services import free_port
from tests.e2e import server as servers
from tests.e2e.client import Client
from tests.e2e.server import Server
from tests.e2e.test_sign_in import MAKE_OPERATOR, RIGHT, browser, send
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.faults.cluster import wait_log

pytestmark = pytest.mark.slow

OWN_KEY = "sk-of-this-session-5d1c"
COUNT_UNREADABLE = """
import django
django.setup()
from sessions_app.core.records import options
from sessions_app.models import OptionValue
for row in OptionValue.objects.filter(sealed__isnull=False):
    options.opened(row.tenant_id, row.session_id)
print("all readable")
"""


SHOW_KEYS = """
import django
django.setup()
from agenthost.doctor import database
for finding in database.check_rotation():
    print(finding.detail)
"""


class Traffic:
    """Requests to whichever web a load balancer would choose; each answer must be right."""

    def __init__(self, server: Server, model: ModelServer) -> None:
        self.server, self.model = server, model
        self.serving = [0, 1]
        self.rounds = 0
        self.failures: list[BaseException] = []
        self._ended = threading.Event()
        self._next = 0
        self._position: str | None = None
        self._cursor: str | None = None
        with closing(self._client()) as client:
            self.first = client.create({"name": "pilot", "options": {"model_key": OWN_KEY}})
            for _ in range(51):
                client.create("echo")

    def _client(self) -> Client:
        """Of the next web, so that what one has signed is sent to the other."""
        self._next += 1
        return Client(self.server.origin(self.serving[self._next % len(self.serving)]), self.server.keys.alice)

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._round()
                self.rounds += 1
        except BaseException as error:
            self.failures.append(error)

    def _round(self) -> None:
        prompt = self.model.script([steps.text("right")])
        with closing(self._client()) as client:
            outcome = client.turn(self.first, prompt, stream="delta")
        assert (outcome.stop, outcome.text) == ("end_turn", "right")
        assert self.model.wait_request(prompt).headers["authorization"] == f"Bearer {OWN_KEY}"
        if self._position is not None:
            with closing(self._client()) as client, client.join(self.first, after=self._position) as stream:
                assert [event.name for event in stream.rest()][-1] == "turn_stop"
        position = outcome.events[0].id
        assert position is not None
        self._position = position
        with closing(self._client()) as client:
            if self._cursor is not None:
                assert client.ok("GET", "/sessions", params={"after": self._cursor})["sessions"]
            self._cursor = client.ok("GET", "/sessions")["next"]
        body = {"agent": {"name": "echo"}}
        once = {"Idempotency-Key": secrets.token_hex(8)}
        made = set()
        for _ in range(2):
            with closing(self._client()) as client:
                made.add(client.ok("POST", "/sessions", body, status=201, headers=once)["sessionId"])
        assert len(made) == 1

    def wait_rounds(self, count: int) -> None:
        reached = self.rounds + count
        for _ in range(6000):
            if self.rounds >= reached or self.failures:
                break
            self._ended.wait(0.05)
        assert not self.failures, self.failures
        assert self.rounds >= reached

    @contextmanager
    def flowing(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(120)
        assert not self.failures, self.failures


def roll(server: Server, traffic: Traffic, **changed: str) -> None:
    """Replace one process after the other, with these settings; requests in between meet mixed ones."""
    for name, value in changed.items():
        if value:
            server.environment[name] = value
        else:
            server.environment.pop(name, None)
    for index in (0, 1):
        traffic.serving = [1 - index]
        old = server.webs[index]
        server.ports[index] = free_port()
        old.terminate()
        server.start_web(index)
        server.wait_ready(index)
        traffic.serving = [0, 1]
        traffic.wait_rounds(3)
        old.stop()
    new = server.start_worker()
    wait_log(new, "worker_ready")
    server.workers.pop(0).stop()
    traffic.wait_rounds(2)


def test_both_keys_are_rotated_while_requests_arrive(tmp_path: Path, model: ModelServer) -> None:
    if "production" not in servers.shapes():
        pytest.skip("several webs need Postgres: run ops/test")
    with servers.running("production", tmp_path, model.url, webs=2) as server:
        old_ring, old_key = server.environment["AGENTHOST_KEY_RING"], server.environment["AGENTHOST_SECRET_KEY"]
        new_ring, new_key = base64.b64encode(secrets.token_bytes(32)).decode(), secrets.token_urlsafe(48)
        server.manage("ruth", RIGHT, code=MAKE_OPERATOR)
        traffic = Traffic(server, model)
        with browser(server, "192.0.2.7") as person, traffic.flowing():
            assert send(person, "/accounts/login/", login="ruth", password=RIGHT).status_code == 302
            roll(server, traffic, AGENTHOST_KEY_RING=f"{old_ring},{new_ring}", AGENTHOST_SECRET_KEY_FALLBACKS=new_key)
            roll(
                server,
                traffic,
                AGENTHOST_KEY_RING=f"{new_ring},{old_ring}",
                AGENTHOST_SECRET_KEY=new_key,
                AGENTHOST_SECRET_KEY_FALLBACKS=old_key,
            )
            assert "All values are sealed with the newest key." in server.manage("reseal_secrets")
            server.manage("accept_keys", "--secret-key")
            checkup = server.manage(code=SHOW_KEYS)
            assert re.search(r"the older key \w+ is unused", checkup)
            assert "the database has recorded the present AGENTHOST_SECRET_KEY" in checkup
            # The person has signed in under the old key; this request stores the new key's mark in the session.
            assert person.get(server.origin(0) + "/admin/").status_code == 200
            roll(server, traffic, AGENTHOST_KEY_RING=new_ring, AGENTHOST_SECRET_KEY_FALLBACKS="")
            for index in (0, 1):
                assert person.get(server.origin(index) + "/admin/", follow_redirects=False).status_code == 200
        assert "all readable" in server.manage(code=COUNT_UNREADABLE)
        assert httpx.get(server.origin(0) + "/readyz", trust_env=False).status_code == 200
