"""The nginx configuration of the project in front of a real server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import websockets.sync.client
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.exceptions import InvalidStatus

from ops.services import free_port
from tests.e2e import server as servers
from tests.e2e.client import Client
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

pytestmark = pytest.mark.slow

PER_ADDRESS = 6


@dataclass
class Proxy:
    server: Server
    plain: int
    tls: int
    log: Path

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.plain}"

    @property
    def alice(self) -> Client:
        return Client(self.origin, self.server.keys.alice)


def certificate(directory: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agents.example.org")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
    form, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    (directory / "tls.crt").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(encoding))
    (directory / "tls.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


def configuration(directory: Path, server: Server, plain: int, tls: int) -> str:
    """The shipped configuration with the marked lines filled in, and with shorter times and limits for the test."""
    text = (ROOT / "ops" / "nginx" / "agenthost.conf").read_text()
    changes = {
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{server.ports[0]};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{tls} ssl http2;\n    listen 127.0.0.1:{plain};",
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "/etc/nginx/agenthost.crt": f"{directory}/tls.crt",
        "/etc/nginx/agenthost.key": f"{directory}/tls.key",
        "/var/log/nginx": str(directory),
        "client_header_timeout 10s;": "client_header_timeout 1s;",
        "limit_conn agenthost_per_address 256;": f"limit_conn agenthost_per_address {PER_ADDRESS};",
    }
    for shipped, changed in changes.items():
        assert shipped in text, shipped
        text = text.replace(shipped, changed)
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    return f"{user}daemon off;\npid {directory}/pid;\nworker_processes 1;\nevents {{}}\nhttp {{\n{temporary}{text}}}\n"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Proxy]:
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("there is no nginx on the PATH")
    shape = servers.shapes()[-1]
    directory = tmp_path_factory.mktemp("nginx")
    certificate(directory)
    plain, tls = free_port(), free_port()
    # Redirects to HTTPS are the admin's; here the proxy speaks both.
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(servers.running(shape, directory / "server", _model_server.url, webs=1))
        conf = directory / "nginx.conf"
        conf.write_text(configuration(directory, server, plain, tls))
        command = [nginx, "-p", str(directory), "-e", str(directory / "start.log"), "-c", str(conf)]
        subprocess.run([*command, "-t"], check=True, capture_output=True)
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(running.wait, 30)
        stack.callback(running.terminate)
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{plain}/readyz", timeout=20, trust_env=False, verify=False).status_code == 200:
                    break
            assert time.monotonic() < until, (directory / "start.log").read_text()
            time.sleep(0.05)
        yield Proxy(server, plain, tls, directory / "agenthost.log")


def test_nginx_forwards_events_without_buffering(proxy: Proxy, model: ModelServer) -> None:
    alice = proxy.alice
    prompt = model.script([steps.text("now"), steps.gate("behind nginx"), steps.text(" then")])
    with alice.stream(alice.create(), prompt) as stream:
        first, second = stream.next(), stream.next()
        assert first is not None
        assert second is not None
        assert (first.name, second.data) == ("turn_start", {"delta": "now"})
        model.wait_gate("behind nginx")
        model.open_gate("behind nginx")
        assert stream.rest()[-1].data["stopReason"] == "end_turn"
    alice.close()


def test_http2_is_for_clients_and_not_for_the_server(proxy: Proxy) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl on the PATH")
    common = [curl, "--silent", "--show-error", "--insecure", "--http2", "--noproxy", "*", "--max-time", "60"]
    key = ["--header", f"Authorization: Bearer {proxy.server.keys.alice}", "--header", "Content-Type: application/json"]
    body = ["--data", '{"agent":{"name":"echo"}}', "--write-out", "\n%{http_version}"]
    for origin, version in ((f"https://127.0.0.1:{proxy.tls}", "2"), (proxy.origin, "1.1")):
        done = subprocess.run([*common, *key, *body, f"{origin}/aap/v3/sessions"], capture_output=True, text=True, check=True)
        answer, _, spoken = done.stdout.rpartition("\n")
        assert json.loads(answer)["sessionId"]
        assert spoken == version


def test_nginx_forwards_websockets_on_their_path_only_and_logs_no_keys(proxy: Proxy) -> None:
    key = proxy.server.keys.alice
    with websockets.sync.client.connect(f"ws://127.0.0.1:{proxy.plain}/ahp?token={key}", proxy=None) as socket:
        socket.send('{"jsonrpc":"2.0","id":1,"method":"nonsense"}')
        assert json.loads(socket.recv(timeout=30))["id"] == 1
    with pytest.raises(InvalidStatus) as refused:
        websockets.sync.client.connect(f"ws://127.0.0.1:{proxy.plain}/nowhere", proxy=None)
    assert refused.value.response.status_code == 404
    assert httpx.get(f"{proxy.origin}/ahp", timeout=60, trust_env=False, verify=False).status_code == 426
    until = time.monotonic() + 30
    while "GET /ahp" not in proxy.log.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    log = "".join(path.read_text() for path in proxy.log.parent.glob("*.log"))
    assert "GET /ahp" in log
    assert key not in log


def test_a_wrong_key_is_refused_before_its_body_has_been_taken(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.plain), timeout=30) as connection:
        head = f"POST /aap/v3/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ah_{'w' * 43}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 8000000\r\n\r\n".encode() + b" " * 9000)
        assert connection.recv(12) == b"HTTP/1.1 401"


@pytest.mark.parametrize(
    ("status", "path", "headers"),
    [
        (413, "/aap/v3/sessions", {"Content-Length": "20000000"}),
        (431, "/aap/v3/meta", {"X-Long": "x" * 9000}),
        (431, f"/{'x' * 9000}", {}),
    ],
)
def test_a_body_refused_by_nginx_is_a_problem_document(proxy: Proxy, status: int, path: str, headers: dict[str, str]) -> None:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", proxy.plain), timeout=30) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b""
        # It waits for the announced body for a moment, and resets.
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(65536):
                answer += more
    head, _, document = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d" % status)
    assert b"application/problem+json" in head
    assert json.loads(document)["status"] == status


def test_an_unfinished_request_is_ended(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.plain), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(65536) == b""


def test_one_address_has_a_bounded_number_of_streams(proxy: Proxy) -> None:
    alice = proxy.alice
    session = alice.create()
    alice.close()
    headers = {"Authorization": f"Bearer {proxy.server.keys.alice}"}
    path = f"{proxy.origin}/aap/v3/sessions/{session}/events/stream?stream=delta&follow=true"
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(httpx.Client(headers=headers, trust_env=False, verify=False, timeout=60))
            for _ in range(PER_ADDRESS + 1)
        ]
        for client in clients[:-1]:
            assert stack.enter_context(client.stream("GET", path)).status_code == 200
        refused = clients[-1].get(path)
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["status"] == 429
    assert int(refused.headers["retry-after"]) > 0
