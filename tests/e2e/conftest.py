"""Servers for the end-to-end tests: one of each shape per run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import server as servers
from tests.e2e.client import Client
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer


@pytest.fixture(scope="session", params=servers.shapes())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    """The server that tests share. Each test uses its own sessions, and its own tenant if it checks lists."""
    # Default times, because no process is killed here. Short leases expire on a busy machine, and frequent sweeps of idle
    # servers would use a fifth of the CPU.
    leases = {"AGENTHOST_LEASE_SECONDS": "", "AGENTHOST_RENEW_SECONDS": "", "AGENTHOST_SWEEP_SECONDS": ""}
    directory = tmp_path_factory.mktemp(request.param)
    # Production servers have no workspaces otherwise.
    leases["AGENTHOST_WORKSPACES_DIR"] = str(directory / "workspaces")
    with servers.running(request.param, directory, _model_server.url, webs=1, environment=leases) as running:
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
