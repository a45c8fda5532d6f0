"""The proxy of ops/compose.yaml: its own script starts nginx with the shipped configuration and the first certificate."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import websockets.sync.client

from ops.services import free_port
from tests.e2e import server as servers
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

NGINX = shutil.which("nginx")
SCRIPT = ROOT / "ops" / "compose-proxy.sh"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="there is no nginx on the PATH"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl, which makes the certificate"),
]


@dataclass
class Installation:
    server: Server
    port: int
    trusting: ssl.SSLContext
    """Trusts the certificate of ops/compose-secrets, and nothing else."""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Installation]:
    checkout = tmp_path_factory.mktemp("compose")
    (checkout / "ops").mkdir()
    shutil.copy2(ROOT / "ops" / "compose-secrets", checkout / "ops")
    subprocess.run([checkout / "ops" / "compose-secrets"], check=True, capture_output=True)
    made = checkout / "var" / "compose"
    settings = dict(line.split("=", 1) for line in (made / "env").read_text().splitlines() if line[:1] not in ("", "#"))
    # Here the proxy is on the same machine, and not in a network of the engine.
    settings |= {"AGENTHOST_PROXIES": f"{settings['AGENTHOST_PROXIES']},127.0.0.1", "AGENTHOST_PLAIN_HTTP": "no"}
    shape = servers.shapes()[-1]
    webs = 2 if shape == "production" else 1
    with servers.running(shape, checkout / "server", _model_server.url, webs=webs, environment=settings) as server:
        port = free_port()
        environment = {
            "PATH": os.environ["PATH"],
            "CONF": str(ROOT / "ops" / "nginx" / "agenthost.conf"),
            "SECRETS": str(made),
            "PLACE": str(checkout),
            "PORT": str(port),
            "PLAIN_PORT": str(free_port()),
            "WEBS": " ".join(f"localhost:{each}" for each in server.ports),
        }
        log = checkout / "proxy.log"
        with log.open("ab") as output:
            proxy = subprocess.Popen(["sh", str(SCRIPT)], env=environment, stdout=output, stderr=output)
        trusting = ssl.create_default_context(cafile=str(made / "tls_certificate"))
        try:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"https://localhost:{port}/readyz", verify=trusting, trust_env=False).status_code == 200:
                        break
                assert proxy.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            yield Installation(server, port, trusting)
        finally:
            proxy.terminate()
            proxy.wait(30)


def test_a_turn_streams_over_tls_with_the_first_certificate(installation: Installation, model: ModelServer) -> None:
    origin = f"https://localhost:{installation.port}"
    headers = {"Authorization": f"Bearer {installation.server.keys.alice}"}
    prompt = model.script([steps.text("now"), steps.gate("behind compose"), steps.text(" then")])
    body = {"messages": [{"role": "user", "content": prompt}], "stream": "delta"}
    with httpx.Client(verify=installation.trusting, trust_env=False, headers=headers, timeout=60) as client:
        session = client.post(f"{origin}/aap/v3/sessions", json={"agent": {"name": "echo"}}).json()["sessionId"]
        with client.stream("POST", f"{origin}/aap/v3/sessions/{session}/turns", json=body) as response:
            pieces = response.iter_text()
            text = ""
            while "now" not in text:
                text += next(pieces)
            model.open_gate("behind compose")
            text += "".join(pieces)
        assert "turn_stop" in text


def test_websockets_and_pages_pass(installation: Installation) -> None:
    key = installation.server.keys.alice
    url = f"wss://localhost:{installation.port}/ahp?token={key}"
    with websockets.sync.client.connect(url, ssl=installation.trusting, proxy=None) as socket:
        socket.send('{"jsonrpc":"2.0","id":1,"method":"nonsense"}')
        assert json.loads(socket.recv(timeout=30))["id"] == 1
    # A proxy that is not trusted would get 421 here.
    page = httpx.get(
        f"https://localhost:{installation.port}/admin/",
        verify=installation.trusting,
        trust_env=False,
        follow_redirects=True,
        timeout=60,
    )
    assert (page.status_code, page.url.scheme) == (200, "https")


def test_a_line_that_the_script_does_not_know_stops_it(tmp_path: Path) -> None:
    shipped = (ROOT / "ops" / "nginx" / "agenthost.conf").read_text()
    (tmp_path / "agenthost.conf").write_text(shipped.replace("/etc/nginx/agenthost.crt", "/etc/nginx/other.crt"))
    place = tmp_path / "place"
    place.mkdir()
    environment = {"PATH": os.environ["PATH"], "CONF": str(tmp_path / "agenthost.conf"), "PLACE": str(place)}
    done = subprocess.run(["sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "/etc/nginx/other.crt" in done.stderr
