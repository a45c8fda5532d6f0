"""The runtime role serves everything and cannot change audit records."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from tests.e2e.server import Server
from tests.e2e.test_sign_in import MAKE_OPERATOR, RIGHT, WRONG, sign_in
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

HOUSEKEEPING = """
import django
django.setup()
from sessions_app.core.worker import housekeeping
housekeeping.run()
"""


def test_the_runtime_role_serves_everything_and_cannot_change_audit_records(server: Server, model: ModelServer) -> None:
    if server.shape != "production":
        pytest.skip("only Postgres has roles")
    alice = server.alice
    session, doomed = alice.create("pilot"), alice.create("echo")
    asked = alice.turn(session, model.script([steps.call("tide_table", {"port": "Oslo"}, id="c1")], [steps.text("high")]))
    assert asked.stop in ("tool_use", "end_turn")
    assert alice.turn(doomed, "hello").stop == "end_turn"
    assert alice.request("DELETE", f"/sessions/{doomed}").status_code == 204
    server.manage(code=HOUSEKEEPING)
    # What operators do: accounts, keys, the admin.
    server.manage("ruth", RIGHT, code=MAKE_OPERATOR)
    assert sign_in(server, "ruth", WRONG, "192.0.2.1").status_code == 200
    assert sign_in(server, "ruth", RIGHT, "192.0.2.1").status_code == 302
    raw = server.manage("create_key", "alice", "--name", "short").split()[-1]
    server.manage("revoke_key", raw)
    assert server.client(raw).get("/meta").status_code == 401
    with psycopg.connect(server.environment["DATABASE_URL"], autocommit=True) as running:
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
            "truncate event",
            "truncate event_kept",
        ):
            with pytest.raises(InsufficientPrivilege):
                running.execute(statement.encode())
        running.execute("truncate event_ring_4")
        # Postgres only warns about this one.
        running.execute("grant update on sessions_app_auditrecord to current_user")
        with pytest.raises(InsufficientPrivilege):
            running.execute("update sessions_app_auditrecord set actor = 'nobody'")
        assert running.execute("select count(*) from sessions_app_auditrecord").fetchone() == rows
    assert "permission denied" not in server.log_text()
