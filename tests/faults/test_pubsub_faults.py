"""Announcements delayed, out of order between processes, lost: readers of several sessions miss nothing and see nothing twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.model_server import ModelServer
from tests.faults.clients import Crowd
from tests.faults.cluster import Cluster
from tests.faults.proxy import Weather


@pytest.fixture
def weather(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Weather]:
    """All processes started anew behind a proxy, and once more without it."""
    server = cluster.server
    assert server.redis is not None
    direct = server.environment["REDIS_URL"]
    with Weather(server.redis.port, seed=7) as proxy:
        server.environment["REDIS_URL"] = direct.replace(str(server.redis.port), str(proxy.port))
        cluster.restart_all()
        try:
            yield proxy
        finally:
            proxy.storm.clear()
            server.environment["REDIS_URL"] = direct
            cluster.restart_all()


@pytest.mark.slow
@pytest.mark.rule("A58", "A120")
def test_announcements_late_out_of_order_and_lost(cluster: Cluster, model: ModelServer, weather: Weather) -> None:
    with Crowd(cluster.server, model, 8) as crowd:
        crowd.wait_turns(8)
        weather.storm.set()
        crowd.wait_turns(120, timeout=240)
        weather.storm.clear()
        crowd.wait_turns(16)
    assert weather.cut > 0
    assert weather.held > 50
    assert crowd.told.stops.keys() == {"end_turn", "tool_use"}, crowd.told
    assert crowd.told.came_again == crowd.told.refused == 0, crowd.told
