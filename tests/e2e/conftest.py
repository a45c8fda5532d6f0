"""Servers for the end-to-end tests: one of each shape per run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents_app import registry
from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.client import Client
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer


@pytest.fixture(scope="session", params=servers.shapes())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    """The server that tests share. Each test uses its own sessions, and its own tenant if it checks lists."""
    directory = tmp_path_factory.mktemp(request.param)
    # Production servers have no workspaces otherwise.
    environment = {**servers.DEFAULT_LEASES, "AGENTHOST_WORKSPACES_DIR": str(directory / "workspaces")}
    # These start as an operator starts them; most other servers of the tests are forked from a process that has loaded more.
    with servers.running(
        request.param, directory, _model_server.url, webs=1, preloaded=False, environment=environment
    ) as running:
        yield running


@pytest.fixture
def alice(server: Server) -> Iterator[Client]:
    client = Client(server.origin(), server.keys.alice)
    yield client
    client.close()


@pytest.fixture
def bob(server: Server) -> Iterator[Client]:
    client = Client(server.origin(), server.keys.bob)
    yield client
    client.close()


@pytest.fixture(scope="session")
def hall(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Server]:
    """An embedded server with the demo agent too, for tests of clients, which know only the protocol."""
    directory = tmp_path_factory.mktemp("hall")
    agents_file.write(directory / "agents.toml", _model_server.url)
    demo = registry.BUILTIN_FILE.read_text().split("[[agents]]")[1].partition("# Served only")[0]
    file = directory / "with_demo.toml"
    file.write_text(f"{(directory / 'agents.toml').read_text()}\n[[agents]]{demo.replace('delay = 0.03', 'delay = 0')}")
    variables = {"AGENTHOST_AGENTS_FILE": str(file), **servers.DEFAULT_LEASES}
    with servers.running("embedded", directory, _model_server.url, environment=variables) as running:
        yield running
