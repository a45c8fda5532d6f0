"""The HTTP transport of a running server: HTTP/2 clients, and clients without a key."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.e2e.client import Client
from tests.e2e.server import Server

JAVA = """
import java.net.URI;
import java.net.http.*;

class Post {
    public static void main(String[] given) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int number = 0; number < 3; number++) {
            var request = HttpRequest.newBuilder(URI.create(given[0] + "/aap/v3/sessions"))
                .header("Authorization", "Bearer " + given[1])
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\\"agent\\":{\\"name\\":\\"echo\\"}}"))
                .build();
            System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).statusCode());
        }
    }
}
"""
BODY = b'{"agent":{"name":"echo"}}'


def head(server: Server, *lines: str, method: str = "POST", path: str = "/aap/v3/sessions") -> bytes:
    given = ("Host: x", f"Authorization: Bearer {server.keys.alice}", "Content-Type: application/json", *lines)
    return "\r\n".join((f"{method} {path} HTTP/1.1", *given, "", "")).encode()


@pytest.mark.rule("A4")
@pytest.mark.parametrize("together", [True, False])
def test_a_session_is_made_by_a_client_that_offers_http2(server: Server, together: bool) -> None:
    request = head(
        server, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAR", "Content-Length: 25"
    )
    with socket.create_connection(("127.0.0.1", server.ports[0]), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if together:
            connection.sendall(request + BODY)
        else:
            connection.sendall(request)
            connection.sendall(BODY)
        assert connection.recv(12) == b"HTTP/1.1 201"


@pytest.mark.rule("A4")
def test_a_request_hidden_in_a_body_is_not_executed(server: Server) -> None:
    somebody = server.new_tenant()
    key = somebody.http.headers["authorization"]
    hidden = f"POST /aap/v3/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n"
    body = f"{hidden}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    request = head(server, "Connection: Upgrade", "Upgrade: h2c", f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", server.ports[0]), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        connection.sendall(body)
        assert connection.recv(12) == b"HTTP/1.1 400"
    assert somebody.all_sessions() == []


def test_curl_with_http2_makes_a_session(server: Server) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl on the PATH")
    command = [curl, "--silent", "--show-error", "--http2", "--noproxy", "*", "--max-time", "60", "--data", BODY.decode()]
    headers = ["--header", f"Authorization: Bearer {server.keys.alice}", "--header", "Content-Type: application/json"]
    done = subprocess.run([*command, *headers, f"{server.origin()}/aap/v3/sessions"], capture_output=True, check=True)
    assert json.loads(done.stdout)["sessionId"]


@pytest.mark.slow
def test_javas_http_client_makes_sessions(server: Server, tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no JDK on the PATH")
    source = tmp_path / "Post.java"
    source.write_text(JAVA)
    done = subprocess.run(
        [java, str(source), server.origin(), server.keys.alice], capture_output=True, text=True, timeout=300, check=False
    )
    if "module jdk.compiler not found" in done.stderr or "class file" in done.stderr:
        pytest.skip("the Java on the PATH has no compiler")
    assert done.stdout.split() == ["201", "201", "201"], done.stderr


@pytest.mark.rule("A4", "A6")
def test_unparsable_requests_are_refused_and_the_connection_closed(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.ports[0]), timeout=60) as connection:
        connection.sendall(b"GET /aap/v3/meta HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    start, _, body = answer.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in start.lower()
    assert b"content-type: application/problem+json" in start.lower()
    assert json.loads(body)["status"] == 400


def test_the_websockets_address_tells_plain_requests_what_is_missing(server: Server, alice: Client) -> None:
    response = alice.http.get(f"{server.origin()}/ahp")
    assert response.status_code == 426
    assert response.headers["upgrade"] == "websocket"
    assert "proxy" in response.json()["detail"]
