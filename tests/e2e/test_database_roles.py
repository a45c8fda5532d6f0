"""The role of the running server: it serves everything, and cannot rewrite the audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from tests.e2e import server as servers
from tests.e2e.server import Server
from tests.e2e.test_sign_in import MAKE_OPERATOR, RIGHT, WRONG, sign_in
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.skipif("production" not in servers.shapes(), reason="only Postgres has roles")

HOUSEKEEPING = """
import datetime, django
django.setup()
from sessions_app.core import housekeeping, journal
now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=60)
while journal.prune(now, now, 1000):
    pass
housekeeping.run()
"""


@pytest.fixture
def cluster(tmp_path: Path, model: ModelServer) -> Iterator[Server]:
    with servers.running("production", tmp_path, model.url) as server:
        yield server


def test_the_running_role_serves_everything_and_cannot_change_the_audit(cluster: Server, model: ModelServer) -> None:
    alice = cluster.alice
    session, doomed = alice.create("pilot"), alice.create("echo")
    asked = alice.turn(session, model.script([steps.call("tide_table", {"port": "Oslo"}, id="c1")], [steps.text("high")]))
    assert asked.stop in ("tool_use", "end_turn")
    assert alice.turn(doomed, "hello").stop == "end_turn"
    assert alice.request("DELETE", f"/sessions/{doomed}").status_code == 204
    cluster.manage(code=HOUSEKEEPING)
    # What operators do: accounts, keys, the admin.
    cluster.manage("eve", RIGHT, code=MAKE_OPERATOR)
    assert sign_in(cluster, "eve", WRONG, "192.0.2.1").status_code == 200
    assert sign_in(cluster, "eve", RIGHT, "192.0.2.1").status_code == 302
    raw = cluster.manage("create_key", "alice", "--name", "short").split()[-1]
    cluster.manage("revoke_key", raw)
    assert cluster.client(raw).get("/meta").status_code == 401
    with psycopg.connect(cluster.environment["DATABASE_URL"], autocommit=True) as running:
        rows = running.execute("select count(*) from sessions_app_auditrecord").fetchone()
        assert rows is not None
        assert rows[0] > 5
        for statement in (
            "update sessions_app_auditrecord set actor = 'nobody'",
            "delete from sessions_app_auditrecord",
            "truncate sessions_app_auditrecord",
            "drop table sessions_app_auditrecord",
            "alter table sessions_app_auditrecord disable trigger all",
            "delete from django_migrations",
            "create table mine (a int)",
        ):
            with pytest.raises(InsufficientPrivilege):
                running.execute(statement.encode())
        # Postgres only warns about this one.
        running.execute("grant update on sessions_app_auditrecord to current_user")
        with pytest.raises(InsufficientPrivilege):
            running.execute("update sessions_app_auditrecord set actor = 'nobody'")
        assert running.execute("select count(*) from sessions_app_auditrecord").fetchone() == rows
    assert "permission denied" not in cluster.log_text()
