"""Redis pub/sub messages are delayed, reordered and lost: stream readers miss nothing and see nothing twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.model_server import ModelServer
from tests.faults.clients import Clients
from tests.faults.cluster import Cluster
from tests.faults.proxy import FaultyProxy


@pytest.fixture
def faulty_redis(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[FaultyProxy]:
    """Restart all processes with Redis behind a faulty proxy; afterwards restart them without it."""
    server = cluster.server
    assert server.redis is not None
    direct = server.environment["REDIS_URL"]
    with FaultyProxy(server.redis.port, seed=7) as proxy:
        server.environment["REDIS_URL"] = direct.replace(str(server.redis.port), str(proxy.port))
        cluster.restart_all()
        try:
            yield proxy
        finally:
            proxy.faulty.clear()
            server.environment["REDIS_URL"] = direct
            cluster.restart_all()


@pytest.mark.slow
@pytest.mark.rule("A58", "A120")
def test_delayed_reordered_and_lost_messages(cluster: Cluster, model: ModelServer, faulty_redis: FaultyProxy) -> None:
    with Clients(cluster.server, model, 8) as clients:
        clients.wait_turns(8)
        faulty_redis.faulty.set()
        clients.wait_turns(120, timeout=240)
        faulty_redis.faulty.clear()
        clients.wait_turns(16)
    assert faulty_redis.cut > 0
    assert faulty_redis.delayed > 50
    assert clients.observed.stops.keys() == {"end_turn", "tool_use"}, clients.observed
    assert clients.observed.reconnects == clients.observed.refused == 0, clients.observed
