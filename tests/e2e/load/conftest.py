"""A server of each shape for load tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import server as servers
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer


@pytest.fixture(scope="package", params=servers.shapes())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    patient = {**servers.DEFAULT_LEASES, **servers.PATIENT}
    directory = tmp_path_factory.mktemp("load")
    with servers.running(request.param, directory, _model_server.url, environment=patient) as running:
        yield running
