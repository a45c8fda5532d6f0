"""One cluster for all tests of a process, because starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services import Postgres, folder
from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.fakes.model_server import ModelServer
from tests.faults import cluster as clusters
from tests.faults.cluster import Cluster, wait_for


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Cluster]:
    if "production" not in servers.shapes():
        pytest.skip("needs Postgres")
    with folder() as home:
        postgres = Postgres(home, crash_safe=True)
        postgres.start()
        try:
            with clusters.running(tmp_path_factory.mktemp("faults"), _model_server.url, postgres) as cluster:
                yield cluster
        finally:
            postgres.stop()


@pytest.fixture
def cluster(_cluster: Cluster, model: ModelServer) -> Iterator[Cluster]:
    """The cluster, with all processes ready before and after the test, and nothing left open."""
    _cluster.heal()
    yield _cluster
    _cluster.heal()
    wait_for(lambda: _cluster.turns_running() == 0, "every turn has ended")
    wait_for(lambda: model.streams == 0, "every call to the provider is closed")
    wait_for(lambda: all(row[2] == "idle" for row in _cluster.backends()), "no transaction is left open")
    if Path("/proc").exists():
        wait_for(lambda: _cluster.orphaned_connections() == [], "no connection of a killed process is left")
    observed = _cluster.server.log_text()
    for secret in (_cluster.server.keys.alice, agents_file.DEFAULT_KEY, agents_file.HEADER_SECRET):
        assert secret not in observed, "a secret was written to a log"
    torn = _cluster.ask(
        "select session_id, count(*) from sessions_app_toolcall c where state in ('pending', 'granted', 'running', 'review')"
        " and not exists"
        " (select 1 from sessions_app_turn t where t.session_id = c.session_id and t.state in ('queued', 'running', 'waiting'))"
        " group by session_id"
    )
    assert torn == [], "calls are open in sessions where nothing runs or waits"
    backwards = _cluster.ask(
        "select session_id, seq from (select session_id, seq, fence, max(fence) over (partition by session_id order by seq"
        " rows between unbounded preceding and 1 preceding) as before from event where fence is not null) e where fence < before"
    )
    assert backwards == [], "a run wrote after a newer one"
