"""The fetch tool returns allowed pages as text and refuses other addresses of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e import server as servers
from tests.e2e.client import Client
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.embedded_too

AGENTS = """
[[agents]]
name = "reader"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-reader"
[[agents.tools]]
builtin = "fetch_url"
timeout = 120
"""
PAGE = (
    b"<title>Tides</title><nav>menu</nav><h1>High water</h1>"
    b"<p hidden>Call your captain.</p><p>06:12, see <a href=/b>more</a>.</p>"
)


@dataclass
class Site:
    port: int = 0
    redirects: dict[str, str] = field(default_factory=dict)
    held: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            if self.path == "/held":
                self._hold()
                return
            location = site.redirects.get(self.path)
            self.send_response(302 if location else 200)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def _hold(self) -> None:
            """Half an answer, and then nothing until the other side goes."""
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
            self.wfile.flush()
            site.held.set()
            with suppress(ConnectionError):
                self.rfile.read()
            site.gone.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def allowed() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture(scope="module")
def closed() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture(scope="module", params=servers.shapes())
def installation(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _model_server: ModelServer,
    allowed: Site,
    closed: Site,
) -> Iterator[Server]:
    """A server that may fetch from one site of this machine; the other's port is open, its host is not."""
    directory = tmp_path_factory.mktemp(f"fetch-{request.param}")
    path = directory / "reader.toml"
    path.write_text(AGENTS.format(model=_model_server.url))
    environment = {
        "AGENTHOST_AGENTS_FILE": str(path),
        "AGENTHOST_FETCH_ALLOW": f"127.0.0.1:{allowed.port}",
        "AGENTHOST_FETCH_PORTS": f"80,443,{closed.port}",
    }
    with servers.running(request.param, directory, _model_server.url, environment=environment) as running:
        yield running


def result(client: Client, model: ModelServer, url: str) -> str:
    """What the model gets for the address."""
    prompt = model.script([steps.call("fetch_url", {"url": url}, id="f1")], [steps.text("read")])
    session = client.create({"name": "reader", "tools": [{"name": "fetch_url", "trust": True}]})
    assert client.turn(session, prompt, stream="delta").stop == "end_turn"
    told = model.requests_of(prompt)[1].messages[-1]["content"]
    assert isinstance(told, str)
    return told


def test_a_page_that_the_operator_allows_comes_back_as_text(installation: Server, allowed: Site, model: ModelServer) -> None:
    assert result(installation.alice, model, allowed.url("/tides")) == (
        f"URL: {allowed.url('/tides')}\nStatus: 200 OK\nType: text/html\nTitle: Tides\n\n"
        f"# High water\n\n06:12, see [more]({allowed.url('/b')})."
    )


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "the port {port} of this host may not be fetched from"),
        ("127.0.0.2", "the address's host is not a public one"),
        ("[::ffff:127.0.0.2]", "the address's host is not a public one"),
        ("2130706433", "the address's host is a number, but not an IPv4 address as it is usually written"),
        ("127.1", "the address's host is a number, but not an IPv4 address as it is usually written"),
        ("localhost", "the address's host is unknown, or not a public one"),
        ("canary@127.0.0.1", "the address holds a user name or password"),
    ],
)
def test_fetching_other_local_addresses_is_refused(
    installation: Server, closed: Site, model: ModelServer, host: str, reason: str
) -> None:
    told = result(installation.alice, model, closed.url("/secret", host))
    assert told == f"Tool execution failed: {reason.format(port=closed.port)}"
    assert closed.asked == []


def test_a_page_that_redirects_inside_is_followed_no_further(
    installation: Server, allowed: Site, closed: Site, model: ModelServer
) -> None:
    allowed.redirects = {"/in": closed.url("/secret"), "/meta": "http://169.254.169.254/latest/", "/on": "/tides"}
    for path in ("/in", "/meta"):
        told = result(installation.alice, model, allowed.url(path))
        assert told == "Tool execution failed: it redirects to an address that may not be fetched"
    assert "High water" in result(installation.alice, model, allowed.url("/on"))
    assert closed.asked == []


def test_a_cancel_ends_a_fetch_that_is_under_way(installation: Server, allowed: Site, model: ModelServer) -> None:
    allowed.held.clear()
    allowed.gone.clear()
    alice = installation.alice
    prompt = model.script([steps.call("fetch_url", {"url": allowed.url("/held")}, id="f1")], [steps.text("never")])
    session = alice.create({"name": "reader", "tools": [{"name": "fetch_url", "trust": True}]})
    with alice.stream(session, prompt) as stream:
        stream.until("tool_call")
        assert allowed.held.wait(60)
        alice.cancel(session)
        # The tool's own time is longer.
        assert allowed.gone.wait(60)
        stream.rest()
    assert len(model.requests_of(prompt)) == 1
