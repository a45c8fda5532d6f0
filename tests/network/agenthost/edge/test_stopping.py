"""What a server that stops does with connections: requests that are on their way are answered, idle ones end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from agenthost.edge import protocol
from agenthost.edge.connections import Connections, Limits
from agenthost.web_server import WebServer
from tests.network.agenthost.edge.test_protocol import Mirror
from tests.serving import Connection, configured, serving


class Stopping:
    """A server that is told to stop while connections are open."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.port = stack.enter_context(serving(Mirror()))
        self._threads = ThreadPoolExecutor(1)

    def begin(self) -> None:
        """Returns when the server accepts no connections any more."""
        self._stopped = self._threads.submit(self._stack.close)
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                    return

    def end(self) -> None:
        self._stopped.result(60)
        self._threads.shutdown()


@pytest.fixture
def server() -> Iterator[Stopping]:
    with ExitStack() as stack:
        yield Stopping(stack)


def test_a_request_that_is_on_its_way_is_answered_and_then_the_connection_ends(
    server: Stopping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_FIRST_REQUEST_SECONDS", 60.0)
    monkeypatch.setattr(protocol, "_NEXT_REQUEST_SECONDS", 60.0)
    with Connection(server.port) as new, Connection(server.port) as used, Connection(server.port) as begun:
        assert used.ask("POST", "/one", b"{}").status == 200
        assert begun.ask("POST", "/one", b"{}").status == 200
        begun.send(b"POST /half HTTP/1.1\r\nhost: test")
        server.begin()
        begun.send(b"server\r\ncontent-length: 2\r\n\r\n{}")
        for answer in (new.ask("POST", "/two", b"{}"), used.ask("POST", "/two", b"{}"), begun.answer()):
            assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert new.closed()
        assert used.closed()
        assert begun.closed()
        server.end()


def test_connections_that_bring_nothing_end(server: Stopping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_FIRST_REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(protocol, "_NEXT_REQUEST_SECONDS", 0.05)
    with Connection(server.port) as new, Connection(server.port) as used:
        assert used.ask("POST", "/one", b"{}").status == 200
        server.begin()
        assert new.closed()
        assert used.closed()
        server.end()


def test_a_connection_that_only_the_kernel_has_accepted_is_answered() -> None:
    """A busy loop accepts late. When it stops, requests may wait in connections that it has not accepted."""
    connections = Connections(Limits())
    config = configured(Mirror(), connections)
    config.load()
    server = WebServer(config, connections, lambda: None)
    server.lifespan = config.lifespan_class(config)

    async def started_and_stopped(listener: socket.socket, clients: ExitStack) -> list[Connection]:
        await server.startup(sockets=[listener])
        # Nothing is awaited until the server stops, so its loop does not see these.
        asking = [clients.enter_context(Connection(listener.getsockname()[1])) for _ in range(20)]
        for client in asking:
            client.head("POST", "/one", content_length="2")
            client.send(b"{}")
        await server.shutdown([listener])
        return asking

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ExitStack() as clients,
        asyncio.Runner(loop_factory=config.get_loop_factory()) as runner,
    ):
        for client in runner.run(started_and_stopped(listener, clients)):
            answer = client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
