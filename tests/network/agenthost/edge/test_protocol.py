"""The HTTP/1.1 transport: framing, unsupported upgrades, limits."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import websockets.sync.client
from pytest_django import Settings

from agenthost.edge.connections import RESERVE, Limits
from agenthost.edge.protocol import HttpProtocol
from agenthost.guard import Guard, Message, Receive, Scope, Send
from tests.serving import Answer, Connection, serving

LIMITS = Limits(connections=40, per_address=8, head_bytes=4096, head_seconds=30.0)
HOST = b"host: agents.example\r\n"
H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"


@dataclass
class Mirror:
    """An application that echoes the request. ``/wait`` waits until ``go_on`` is set or the client disconnects."""

    bodies: list[tuple[str, str, bytes]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self.echo(receive, send)
            return
        if scope["path"] == "/at-once":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        body = b""
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append((scope["method"], scope["path"], body))
        if scope["path"] == "/wait":
            self.waiting.set()
            if not await asyncio.to_thread(self.go_on.wait, 20):
                return
        if scope["path"] in ("/until-gone", "/flood"):
            pause, piece = (0.01, b": still here\n\n") if scope["path"] == "/until-gone" else (0, b"x" * 65536)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            self.waiting.set()
            leaving = asyncio.ensure_future(receive())
            while not leaving.done():
                # As the comments of a quiet stream.
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.wait([leaving], timeout=pause)
            assert leaving.result()["type"] == "http.disconnect"
            self.gone.set()
            return
        told = {
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode(),
            "body": body.decode(),
            "headers": [[name.decode(), value.decode("latin-1")] for name, value in scope["headers"]],
        }
        content = json.dumps(told).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(content))]})
        await send({"type": "http.response.body", "body": content})

    @staticmethod
    async def echo(receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})


@pytest.fixture
def behind() -> Mirror:
    return Mirror()


@contextmanager
def running(behind: Mirror, limits: Limits = LIMITS) -> Iterator[int]:
    with serving(behind, limits=limits) as port:
        yield port


@pytest.fixture
def port(behind: Mirror, settings: Settings) -> Iterator[int]:
    settings.AGENTHOST_PROXIES = "192.0.2.1"
    settings.AGENTHOST_CORS_ORIGINS = ["*"]
    with running(behind) as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[Connection]:
    with Connection(port) as connection:
        yield connection


def whole(data: bytes) -> Sequence[bytes]:
    return [data]


def head_first(data: bytes) -> Sequence[bytes]:
    head, end, rest = data.partition(b"\r\n\r\n")
    return [head + end, rest]


def halves(data: bytes) -> Sequence[bytes]:
    return [data[: len(data) // 2], data[len(data) // 2 :]]


def single_bytes(data: bytes) -> Sequence[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


CUTS: Sequence[Callable[[bytes], Sequence[bytes]]] = (whole, head_first, halves, single_bytes)


def send_cut(client: Connection, data: bytes, cut: Callable[[bytes], Sequence[bytes]]) -> None:
    client.no_delay()
    for piece in cut(data):
        client.send(piece)


def is_last_problem(client: Connection, status: int) -> Answer:
    """The response is a problem document with ``Connection: close``, and the connection closes."""
    answer = client.answer()
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    assert answer.json["status"] == status
    assert answer.json["instance"] == answer.headers["x-request-id"]
    assert answer.headers["access-control-allow-origin"] == "*"
    assert client.closed()
    return answer


# --- upgrades that are not offered ---


@pytest.mark.rule("A4")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_the_body_of_a_request_with_an_upgrade_is_complete(
    client: Connection, behind: Mirror, cut: Callable[[bytes], Sequence[bytes]], framing: str
) -> None:
    body = b"GET /hidden HTTP/1.1\r\n" + HOST + b"\r\n"
    coded = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    plain = b"content-length: %d\r\n\r\n%s" % (len(body), body)
    send_cut(client, b"POST /first?a=b HTTP/1.1\r\n" + HOST + H2C + (coded if framing == "chunked" else plain), cut)
    answer = client.answer()
    assert answer.json["body"] == body.decode()
    assert (answer.json["path"], answer.json["query"]) == ("/first", "a=b")
    names = {name for name, _value in answer.json["headers"]}
    assert "host" in names
    assert not names & {"upgrade", "http2-settings"}
    # The connection stays usable.
    assert client.ask("GET", "/second").json["path"] == "/second"
    assert [(method, path) for method, path, _body in behind.bodies] == [("POST", "/first"), ("GET", "/second")]


@pytest.mark.parametrize("cut", CUTS)
def test_pipelined_requests_with_upgrades_are_answered_in_order(
    client: Connection, cut: Callable[[bytes], Sequence[bytes]]
) -> None:
    one = b"POST /one HTTP/1.1\r\n" + HOST + H2C + b"content-length: 3\r\n\r\none"
    two = b"GET /two HTTP/1.1\r\n" + HOST + b"connection: upgrade\r\nupgrade: TLS/1.2, websocket\r\n\r\n"
    three = b"PUT /three HTTP/1.1\r\n" + HOST + b"content-length: 5\r\n\r\nthree"
    send_cut(client, one + two + three, cut)
    told = [client.answer().json for _ in range(3)]
    assert [(each["method"], each["path"], each["body"]) for each in told] == [
        ("POST", "/one", "one"),
        ("GET", "/two", ""),
        ("PUT", "/three", "three"),
    ]


def test_requests_split_at_any_byte_have_the_same_response(behind: Mirror, port: int) -> None:
    chooser = random.Random(4)
    bodies = [b"b" * chooser.randrange(200) for _ in range(12)]
    data = b""
    for number, body in enumerate(bodies):
        upgrade = H2C if number % 2 else b""
        if number % 3:
            data += b"POST /%d HTTP/1.1\r\n%s%scontent-length: %d\r\n\r\n%s" % (number, HOST, upgrade, len(body), body)
        else:
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in halves(body) if part)
            data += b"POST /%d HTTP/1.1\r\n%s%stransfer-encoding: chunked\r\n\r\n%s0\r\n\r\n" % (number, HOST, upgrade, chunks)
    for _ in range(10):
        behind.bodies.clear()
        with Connection(port) as client:
            client.no_delay()
            left = data
            while left:
                size = chooser.choice((1, 7, 50, 400))
                client.send(left[:size])
                left = left[size:]
            for _ in bodies:
                client.answer()
        assert behind.bodies == [("POST", f"/{number}", body) for number, body in enumerate(bodies)]


def test_a_connection_header_keeps_its_other_options(client: Connection) -> None:
    client.send(b"POST / HTTP/1.1\r\n" + HOST + b"connection: close, upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nhi")
    answer = client.answer()
    assert answer.json["body"] == "hi"
    assert answer.headers["connection"] == "close"
    assert client.closed()


def test_an_upgrade_in_http10_is_ignored(client: Connection) -> None:
    client.send(b"POST / HTTP/1.0\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nhi")
    assert client.answer().json["body"] == "hi"
    assert client.closed()


@pytest.mark.parametrize("ways", [["--http2"], ["--http2", "--header", "Expect: 100-continue"], ["--http1.0"]])
def test_curl_is_served_with_any_http_version(port: int, behind: Mirror, ways: Sequence[str]) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl on the PATH")
    command = [curl, "--silent", "--show-error", "--max-time", "20", "--noproxy", "*", *ways, "--data", "x" * 3000]
    done = subprocess.run([*command, f"http://127.0.0.1:{port}/post"], capture_output=True, check=True)
    assert json.loads(done.stdout)["body"] == "x" * 3000
    assert len(behind.bodies) == 1


@pytest.mark.parametrize("cut", [whole, single_bytes])
def test_an_http2_preface_is_refused_with_a_reference_to_http1(
    client: Connection, cut: Callable[[bytes], Sequence[bytes]]
) -> None:
    send_cut(client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", cut)
    assert "HTTP/1.1" in is_last_problem(client, 505).json["detail"]


def test_curl_with_http2_prior_knowledge_gets_a_response(port: int) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl on the PATH")
    command = [curl, "--silent", "--show-error", "--max-time", "20", "--noproxy", "*", "--http2-prior-knowledge"]
    done = subprocess.run([*command, f"http://127.0.0.1:{port}/"], capture_output=True, check=False)
    assert done.returncode not in (0, 28), "neither success nor a timeout"


# --- WebSockets ---

HANDSHAKE = (
    b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def test_websockets_are_served_on_their_path_only(port: int, client: Connection) -> None:
    with websockets.sync.client.connect(f"ws://127.0.0.1:{port}/ahp", proxy=None, compression=None) as socket:
        socket.send("hello")
        assert socket.recv(timeout=10) == "hello"
    client.send(b"GET /aap HTTP/1.1\r\n" + HOST + HANDSHAKE + b"\r\n")
    assert client.answer().json["path"] == "/aap"


@pytest.mark.parametrize(
    "request_line", [b"POST /ahp HTTP/1.1\r\ncontent-length: 2\r\n", b"GET /ahp HTTP/1.1\r\ncontent-length: 2\r\n"]
)
def test_a_websocket_handshake_with_a_body_or_another_method_is_served_as_plain_http(
    client: Connection, request_line: bytes
) -> None:
    client.send(request_line + HOST + HANDSHAKE + b"\r\nhi")
    assert client.answer().json["body"] == "hi"
    assert client.ask("GET", "/next").json["path"] == "/next"


def test_a_pipelined_websocket_handshake_is_served_as_plain_http(client: Connection, behind: Mirror) -> None:
    client.send(b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n" + b"GET /ahp HTTP/1.1\r\n" + HOST + HANDSHAKE + b"\r\n")
    assert behind.waiting.wait(10)
    behind.go_on.set()
    assert [client.answer().json["path"] for _ in range(2)] == ["/wait", "/ahp"]


@pytest.mark.parametrize(
    ("changed", "to", "status"),
    [
        (b"version: 13", b"version: 8", 426),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"c2hvcnQ=", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"!!", 400),
        (b"connection: Upgrade\r\n", b"connection: Upgrade\r\nx: " + b"y" * 9000 + b"\r\n", 431),
        (b"connection: Upgrade\r\n", b"connection: Upgrade\r\n" + b"x: y\r\n" * 150, 431),
    ],
)
def test_a_faulty_handshake_is_refused_with_a_problem(
    behind: Mirror, settings: Settings, changed: bytes, to: bytes, status: int
) -> None:
    settings.AGENTHOST_CORS_ORIGINS = ["*"]
    with running(behind, Limits(head_bytes=32768)) as port, Connection(port) as client:
        client.send(b"GET /ahp HTTP/1.1\r\n" + HOST + HANDSHAKE.replace(changed, to) + b"\r\n")
        answer = is_last_problem(client, status)
        if status == 426:
            assert answer.headers["sec-websocket-version"] == "13"


def test_frames_before_the_handshake_is_answered_are_refused(client: Connection) -> None:
    client.send(b"GET /ahp HTTP/1.1\r\n" + HOST + HANDSHAKE + b"\r\n\x81\x80\x00\x00\x00\x00")
    is_last_problem(client, 400)


# --- what is malformed, or could be read in two ways ---


@pytest.mark.rule("A4", "A6")
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
        (b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", 505),
        (b"GET / HTTP/1.1\nhost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"x: a\r\n b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"x : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"x: a\0b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + H2C + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 3, 3\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"content-length: +3\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: identity\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\n" + HOST + H2C + b"transfer-encoding: xchunked\r\n\r\n", 501),
        (b"POST / HTTP/1.0\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n", 400),
        (b"CONNECT agents.example:443 HTTP/1.1\r\n" + HOST + b"\r\nbytes of a tunnel", 501),
        (b"GET path HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET ftp://a/b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET http://user@a/b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        (b"GET /caf\xe9 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ],
)
def test_malformed_or_ambiguous_requests_are_refused_and_the_connection_closed(
    client: Connection, behind: Mirror, request_bytes: bytes, status: int
) -> None:
    # Whatever follows is never executed.
    client.send(request_bytes + b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n")
    is_last_problem(client, status)
    assert behind.bodies == []


def test_an_absolute_request_target_sets_the_host(client: Connection) -> None:
    client.send(b"GET http://other.example:8080/path?q=1 HTTP/1.1\r\n" + HOST + b"\r\n")
    told = client.answer().json
    assert (told["path"], told["query"]) == ("/path", "q=1")
    assert [value for name, value in told["headers"] if name == "host"] == ["other.example:8080"]


def test_a_trailer_does_not_become_a_header(client: Connection) -> None:
    head = b"POST /wait HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"
    client.send(head.replace(b"/wait", b"/t") + b"1\r\nx\r\n0\r\nauthorization: Bearer later\r\nupgrade: h2c\r\n\r\n")
    told = client.answer().json
    assert "authorization" not in {name for name, _value in told["headers"]}
    assert client.ask("GET", "/next").json["path"] == "/next"


def test_a_malformed_request_is_refused_after_the_responses_to_earlier_ones(client: Connection, behind: Mirror) -> None:
    client.send(b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\nGET /two HTTP/1.1\r\n" + HOST + b"\r\nBROKEN\r\n\r\n")
    assert behind.waiting.wait(10)
    behind.go_on.set()
    assert [client.answer().json["path"] for _ in range(2)] == ["/wait", "/two"]
    is_last_problem(client, 400)


def test_a_malformed_body_in_the_pipeline_does_not_affect_the_request_before_it(client: Connection, behind: Mirror) -> None:
    broken = b"POST /broken HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n"
    client.send(b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n" + broken)
    assert behind.waiting.wait(10)
    behind.go_on.set()
    assert client.answer().json["path"] == "/wait"
    is_last_problem(client, 400)
    assert [path for _method, path, _body in behind.bodies] == ["/wait"]


def test_bytes_after_the_last_request_are_ignored(client: Connection, behind: Mirror) -> None:
    client.send(b"GET /one HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\nGET /two HTTP/1.1\r\n" + HOST + b"\r\n")
    assert client.answer().json["path"] == "/one"
    assert client.closed()
    assert [path for _method, path, _body in behind.bodies] == ["/one"]


def test_an_http10_client_with_keep_alive_gets_one_response(client: Connection, behind: Mirror) -> None:
    old = b" HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    client.send(b"GET /one" + old + b"GET /two" + old)
    assert client.answer().json["path"] == "/one"
    assert client.closed()
    assert [path for _method, path, _body in behind.bodies] == ["/one"]


def test_a_disconnect_reaches_the_application_also_with_pipelined_requests(port: int, behind: Mirror) -> None:
    with Connection(port) as client:
        client.send(b"GET /until-gone HTTP/1.1\r\n" + HOST + b"\r\n")
        assert behind.waiting.wait(10)
        client.send(b"GET /two HTTP/1.1\r\n" + HOST + b"\r\n")
    # Nothing is read while a request waits: that the client left is seen when something is sent to it.
    assert behind.gone.wait(10)


# --- limits ---


def test_one_header_too_large_is_431(client: Connection) -> None:
    client.send(b"GET / HTTP/1.1\r\n" + HOST + b"x: " + b"y" * 5000 + b"\r\n\r\n")
    is_last_problem(client, 431)


HEAD = b"GET / HTTP/1.1\r\n" + HOST
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (HEAD, b"x: y\r\n" * 20),
        (HEAD + b"x: ", b"y" * 100),
        (HEAD, b"x" * 100),
        (b"GET /", b"x" * 100),
        (b"", b"\r\n" * 50),
        (CHUNKED + b"1;", b"y" * 100),
        (CHUNKED + b"0\r\nx: ", b"y" * 100),
        (CHUNKED + b"0\r\n", b"x: y\r\n" * 20),
    ],
)
def test_headers_chunk_sizes_and_trailers_that_never_end_are_431(client: Connection, start: bytes, piece: bytes) -> None:
    client.send(start)
    sent = 0
    while not client.readable() and sent < 1024 * 1024:
        client.send(piece)
        sent += len(piece)
    is_last_problem(client, 431)
    assert sent < 1024 * 1024


def test_many_headers_are_431(behind: Mirror, settings: Settings) -> None:
    settings.AGENTHOST_CORS_ORIGINS = ["*"]
    with running(behind, Limits(head_bytes=32768)) as port, Connection(port) as client:
        client.send(b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"x%d: y\r\n" % n for n in range(300)) + b"\r\n")
        is_last_problem(client, 431)


def test_a_body_in_chunks_of_one_byte_is_accepted(client: Connection) -> None:
    body = b"".join(b"1\r\n%c\r\n" % (97 + number % 26) for number in range(20_000))
    client.send(b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n")
    assert len(client.answer().json["body"]) == 20_000


def test_pipelined_requests_are_limited(client: Connection, behind: Mirror) -> None:
    client.send((b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n") + (b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n") * 300)
    assert behind.waiting.wait(10)
    behind.go_on.set()
    statuses: list[int] = []
    while not statuses or statuses[-1] == 200:
        statuses.append(client.answer().status)
    assert statuses == [200] * 101 + [429]
    assert client.closed()


def test_a_silent_connection_is_closed_and_a_half_request_is_408(behind: Mirror, settings: Settings) -> None:
    settings.AGENTHOST_CORS_ORIGINS = ["*"]
    with running(behind, Limits(head_seconds=1.0)) as port:
        with Connection(port) as silent:
            assert silent.closed()
        with Connection(port) as empty_lines:
            empty_lines.send(b"\r\n\r\n")
            assert empty_lines.closed()
        with Connection(port) as half:
            half.send(b"GET / HTTP/1.1\r\nhost:")
            is_last_problem(half, 408)
        with Connection(port) as second:
            assert second.ask("GET", "/one").status == 200
            second.send(b"GET /two HT")
            is_last_problem(second, 408)


@pytest.mark.parametrize("more", [b"b", b"bcd", b"bcd\r\n"])
def test_an_unread_body_does_not_keep_the_connection_open(behind: Mirror, more: bytes) -> None:
    with running(behind, Limits(head_seconds=1.0)) as port, Connection(port) as client:
        client.head("OPTIONS", "/at-once", content_length="4")
        client.send(b"a")
        assert client.answer().status == 204
        client.send(more)
        assert client.closed()


def test_the_header_timeout_does_not_apply_to_bodies_and_responses(behind: Mirror) -> None:
    with running(behind, Limits(head_seconds=1.0)) as port, Connection(port) as client, Connection(port) as silent:
        client.head("POST", "/wait", content_length="4")
        client.send(b"ab")
        assert silent.closed()
        client.send(b"cd")
        assert behind.waiting.wait(10)
        with Connection(port) as another:
            assert another.closed()
        behind.go_on.set()
        assert client.answer().json["body"] == "abcd"


def test_connections_per_address_are_limited_and_released(port: int, behind: Mirror) -> None:
    held = [Connection(port) for _ in range(LIMITS.per_address)]
    assert [each.ask("GET", "/").status for each in held] == [200] * LIMITS.per_address
    with Connection(port) as one_more:
        answer = is_last_problem(one_more, 429)
        assert int(answer.headers["retry-after"]) > 0
    held.pop().close()
    until_admitted(port)
    # A WebSocket holds its slot until it ends.
    held.pop().close()
    until_admitted(port)
    with websockets.sync.client.connect(f"ws://127.0.0.1:{port}/ahp", proxy=None) as socket, Connection(port) as last:
        assert last.ask("GET", "/").status == 200
        with Connection(port) as one_more:
            is_last_problem(one_more, 429)
        socket.send("still here")
        assert socket.recv(timeout=10) == "still here"
    until_admitted(port)
    for each in held:
        each.close()


def until_admitted(port: int) -> None:
    """A closed connection is noticed a moment later."""
    for _ in range(1000):
        with Connection(port) as client:
            if client.ask("GET", "/").status == 200:
                return
    raise AssertionError("the slot never came free")


def test_connections_above_the_total_limit_are_refused(
    behind: Mirror, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None of those that were refused is free again meanwhile.
    monkeypatch.setattr("agenthost.edge.protocol._LINGER_SECONDS", 60.0)
    settings.AGENTHOST_PROXIES = "127.0.0.1"
    settings.AGENTHOST_CORS_ORIGINS = ["*"]
    limits = Limits(connections=5, per_address=1)
    with running(behind, limits) as port:
        # The address of a proxy is not limited, because it forwards many clients.
        held = [Connection(port) for _ in range(limits.connections)]
        assert [each.ask("GET", "/").status for each in held] == [200] * limits.connections
        with Connection(port) as one_more:
            is_last_problem(one_more, 503)
        crowd = [Connection(port) for _ in range(RESERVE + 3)]
        assert any(each.dropped() for each in crowd[RESERVE:])
        assert held[0].ask("GET", "/").status == 200
        for each in (*held, *crowd):
            each.close()


def test_closing_is_not_a_reset_for_a_client_that_still_sends(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenthost.edge.protocol._LINGER_SECONDS", 60.0)
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"x: " + b"y" * 5000)
        for _ in range(20):
            raw.sendall(b"y" * 8192)
        assert raw.recv(12) == b"HTTP/1.1 431"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs the kernel's clock for what is sent")
def test_a_client_that_reads_nothing_loses_its_connection(behind: Mirror) -> None:
    with running(behind, Limits(send_seconds=0.3)) as port, Connection(port) as deaf:
        deaf.head("GET", "/flood")
        assert behind.waiting.wait(10)
        assert behind.gone.wait(30)


@pytest.mark.rule("A100")
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs the kernel's clock for what is sent")
def test_a_slow_reader_with_a_valid_key_is_not_dropped(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    large = b"x" * 20_000_000
    begun, stranger = threading.Event(), Mirror()

    async def anybody(scope: Scope) -> None:
        scope["agenthost"]["owner"] = 7

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith("/aap"):
            await stranger(scope, receive, send)
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(large))]})
        begun.set()
        await send({"type": "http.response.body", "body": large})

    with (
        serving(Guard(either, anybody), limits=Limits(send_seconds=0.3)) as port,
        Connection(port) as reader,
        Connection(port) as deaf,
    ):
        reader.head("GET", "/aap/v3/meta", authorization=f"Bearer ah_{'k' * 43}")
        assert begun.wait(10)
        # Began later, and is dropped by now.
        deaf.head("GET", "/flood")
        assert stranger.gone.wait(30)
        assert len(reader.answer().body) == len(large)


@pytest.mark.rule("A100")
def test_an_answer_that_nobody_reads_keeps_its_connection_only_while_its_key_is_good(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    large, looks, good, ended = bytes(20_000_000), threading.Semaphore(0), threading.Event(), threading.Event()
    good.set()
    lost = HttpProtocol.connection_lost

    def loses(self: HttpProtocol, error: Exception | None) -> None:
        lost(self, error)
        ended.set()

    monkeypatch.setattr(HttpProtocol, "connection_lost", loses)

    async def key_is_good() -> bool:
        looks.release()
        return good.is_set()

    async def anybody(scope: Scope) -> None:
        scope["agenthost"].update(owner=7, key_is_good=key_is_good)

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(large))]})
        await send({"type": "http.response.body", "body": large})

    with serving(Guard(whole, anybody), limits=Limits(send_seconds=0.1)) as port, Connection(port) as deaf:
        deaf.head("GET", "/aap/v3/meta", authorization=f"Bearer ah_{'k' * 43}")
        for _ in range(4):
            assert looks.acquire(timeout=30)
        assert not ended.is_set()
        good.clear()
        assert ended.wait(30), "the connection is kept though its key has ended"


@pytest.mark.rule("A100")
def test_a_slow_reader_gets_everything_while_its_key_is_checked(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    large, looks = bytes(20_000_000), threading.Semaphore(0)

    async def key_is_good() -> bool:
        looks.release()
        return True

    async def anybody(scope: Scope) -> None:
        scope["agenthost"].update(owner=7, key_is_good=key_is_good)

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(large))]})
        await send({"type": "http.response.body", "body": large})

    with serving(Guard(whole, anybody), limits=Limits(send_seconds=0.1)) as port, Connection(port) as slow:
        slow.head("GET", "/aap/v3/meta", authorization=f"Bearer ah_{'k' * 43}")
        for _ in range(3):
            assert looks.acquire(timeout=30)
        assert slow.answer().body == large
