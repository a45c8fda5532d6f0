"""The configurations for nginx and Caddy, each in front of real servers: two webs where there is a Postgres."""

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
NAME = "agents.example.org"


@dataclass
class Proxy:
    kind: str
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
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    form, encoding = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    (directory / "tls.crt").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(encoding))
    (directory / "tls.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))


def changed(shipped: Path, changes: dict[str, str]) -> str:
    """The shipped configuration with the marked lines filled in, and with shorter times and limits for the test."""
    text = shipped.read_text()
    for before, after in changes.items():
        assert text.count(before) == 1 or before.startswith("/var"), before
        text = text.replace(before, after)
    return text


def for_caddy(directory: Path, server: Server, plain: int, tls: int) -> str:
    changes = {
        "{\n\tservers {": "{\n\tadmin off\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n\tservers {",
        f"\n{NAME} {{": f"\nhttp://:{plain}, https://{NAME}:{tls} {{",
        "to 127.0.0.1:8000": f"to {' '.join(f'127.0.0.1:{port}' for port in server.ports)}",
        "/var/log/caddy": str(directory),
        "read_header 10s": "read_header 1s",
        "\trequest_body {": f"\ttls {directory}/tls.crt {directory}/tls.key\n\trequest_body {{",
    }
    text = changed(ROOT / "ops" / "caddy" / "Caddyfile", changes)
    # A certificate of a file is for the site that speaks TLS alone; the other one has the same directives.
    return (
        text.replace(f"http://:{plain}, https://{NAME}:{tls} {{", f"https://{NAME}:{tls} {{")
        + "\n"
        + _plain_site(text, plain, tls)
    )


def _plain_site(text: str, plain: int, tls: int) -> str:
    begin = text.index(f"http://:{plain}, ")
    site = "\n".join(line for line in text[begin:].splitlines() if not line.startswith("\ttls "))
    return site.replace(f"http://:{plain}, https://{NAME}:{tls} {{", f"http://:{plain} {{") + "\n"


def for_nginx(directory: Path, server: Server, plain: int, tls: int) -> str:
    changes = {
        "server 127.0.0.1:8000;": " ".join(f"server 127.0.0.1:{port};" for port in server.ports),
        "listen 443 ssl http2;": f"listen 127.0.0.1:{tls} ssl http2;\n    listen 127.0.0.1:{plain};",
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "/etc/nginx/agenthost.crt": f"{directory}/tls.crt",
        "/etc/nginx/agenthost.key": f"{directory}/tls.key",
        "/var/log/nginx": str(directory),
        "client_header_timeout 10s;": "client_header_timeout 1s;",
        "limit_conn agenthost_per_address 256;": f"limit_conn agenthost_per_address {PER_ADDRESS};",
    }
    text = changed(ROOT / "ops" / "nginx" / "agenthost.conf", changes)
    temporary = "".join(
        f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    return f"{user}daemon off;\npid {directory}/pid;\nworker_processes 1;\nevents {{}}\nhttp {{\n{temporary}{text}}}\n"


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Proxy]:
    kind: str = request.param
    program = shutil.which(kind)
    if program is None:
        pytest.skip(f"there is no {kind} on the PATH")
    shape = servers.shapes()[-1]
    directory = tmp_path_factory.mktemp(kind)
    certificate(directory)
    plain, tls = free_port(), free_port()
    webs = 2 if shape == "production" else 1
    long_drain = {"AGENTHOST_DRAIN_SECONDS": "120"}
    # Redirects to HTTPS are the admin's; here the proxy speaks both.
    with servers.running(shape, directory / "server", _model_server.url, webs=webs, environment=long_drain) as server:
        conf = directory / f"{kind}.conf"
        if kind == "nginx":
            conf.write_text(for_nginx(directory, server, plain, tls))
            command = [program, "-p", str(directory), "-e", str(directory / "start.log"), "-c", str(conf)]
            subprocess.run([*command, "-t"], check=True, capture_output=True)
        else:
            conf.write_text(for_caddy(directory, server, plain, tls))
            command = [program, "run", "--adapter", "caddyfile", "--config", str(conf)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(directory)}
        with (directory / "start.log").open("ab") as log:
            running = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=directory)
        try:
            _wait_for(running, plain, directory / "start.log")
            yield Proxy(kind, server, plain, tls, directory / "agenthost.log")
        finally:
            running.terminate()
            running.wait(30)


def _wait_for(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 30
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=20, trust_env=False, verify=False).status_code == 200:
                return
        assert running.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


def test_a_web_that_drains_serves_its_streams_to_their_end_and_no_request_fails(proxy: Proxy, model: ModelServer) -> None:
    if len(proxy.server.webs) < 2:
        pytest.skip("the embedded server is one process")
    with contextlib.ExitStack() as stack:
        streams = []
        for number in range(4):
            client = Client(proxy.origin, proxy.server.keys.alice)
            stack.callback(client.close)
            prompt = model.script([steps.text("now"), steps.gate(f"draining {number}"), steps.text(" then")])
            stream = stack.enter_context(client.stream(client.create(), prompt))
            stream.until("text_delta")
            streams.append(stream)
        served = [process.log.read_text().count("/turns") for process in proxy.server.webs]
        proxy.server.webs[0].terminate()
        alice = proxy.alice
        stack.callback(alice.close)
        if proxy.kind == "caddy":
            _until_it_is_noticed(alice)
        for _ in range(20):
            assert alice.turn(alice.create(), model.script([steps.text("Meanwhile.")])).text == "Meanwhile."
        for number, stream in enumerate(streams):
            model.open_gate(f"draining {number}")
            assert stream.rest()[-1].data["stopReason"] == "end_turn", served
    proxy.server.webs[0].popen.wait(60)
    proxy.server.start_web(0)
    proxy.server.wait_ready(0)


def _until_it_is_noticed(alice: Client) -> None:
    """Caddy answers 503 until its next health check; 20 requests in a row have then gone to the other web."""
    in_a_row, end = 0, time.monotonic() + 60
    while in_a_row < 20:
        response = alice.post("/sessions", {"agent": {"name": "echo"}})
        assert response.status_code in (201, 503)
        in_a_row = in_a_row + 1 if response.status_code == 201 else 0
        if not in_a_row:
            assert int(response.headers["retry-after"]) > 0
        assert time.monotonic() < end


def test_events_are_forwarded_without_buffering(proxy: Proxy, model: ModelServer) -> None:
    alice = proxy.alice
    prompt = model.script([steps.text("now"), steps.gate("behind a proxy"), steps.text(" then")])
    with alice.stream(alice.create(), prompt) as stream:
        first, second = stream.next(), stream.next()
        assert first is not None
        assert second is not None
        assert (first.name, second.data) == ("turn_start", {"delta": "now"})
        model.wait_gate("behind a proxy")
        model.open_gate("behind a proxy")
        assert stream.rest()[-1].data["stopReason"] == "end_turn"
    alice.close()


def test_http2_is_for_clients_and_not_for_the_server(proxy: Proxy) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl on the PATH")
    common = [curl, "--silent", "--show-error", "--insecure", "--http2", "--noproxy", "*", "--max-time", "60"]
    common += ["--resolve", f"{NAME}:{proxy.tls}:127.0.0.1"]
    key = ["--header", f"Authorization: Bearer {proxy.server.keys.alice}", "--header", "Content-Type: application/json"]
    body = ["--data", '{"agent":{"name":"echo"}}', "--write-out", "\n%{http_version}"]
    for origin, version in ((f"https://{NAME}:{proxy.tls}", "2"), (proxy.origin, "1.1")):
        done = subprocess.run([*common, *key, *body, f"{origin}/aap/v3/sessions"], capture_output=True, text=True, check=True)
        answer, _, spoken = done.stdout.rpartition("\n")
        assert json.loads(answer)["sessionId"]
        assert spoken == version


def test_websockets_are_forwarded_on_their_path_only_and_no_key_is_logged(proxy: Proxy) -> None:
    key = proxy.server.keys.alice
    with websockets.sync.client.connect(f"ws://127.0.0.1:{proxy.plain}/ahp?token={key}", proxy=None) as socket:
        socket.send('{"jsonrpc":"2.0","id":1,"method":"nonsense"}')
        assert json.loads(socket.recv(timeout=30))["id"] == 1
    with pytest.raises(InvalidStatus) as refused:
        websockets.sync.client.connect(f"ws://127.0.0.1:{proxy.plain}/nowhere", proxy=None)
    assert refused.value.response.status_code == 404
    assert httpx.get(f"{proxy.origin}/ahp", timeout=60, trust_env=False, verify=False).status_code == 426
    until = time.monotonic() + 30
    seen = {"nginx": "GET /ahp", "caddy": '"uri":"/ahp'}[proxy.kind]
    while seen not in proxy.log.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    log = "".join(path.read_text() for path in proxy.log.parent.glob("*.log"))
    assert seen in log
    assert key not in log


def test_a_wrong_key_is_refused_before_its_body_has_been_taken(proxy: Proxy) -> None:
    if proxy.kind == "caddy":
        pytest.skip("Caddy reads up to 256 KiB of a body before it passes a refusal on")
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
def test_a_request_refused_by_the_proxy_is_a_problem_document(
    proxy: Proxy, status: int, path: str, headers: dict[str, str]
) -> None:
    if proxy.kind == "caddy":
        pytest.skip("Caddy passes these on, and the server refuses them itself")
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
    if proxy.kind == "caddy":
        pytest.skip("Caddy counts no connections; the server does")
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
