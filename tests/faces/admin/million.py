"""A million sessions and what belongs to them, made of one row each with ``generate_series``. Postgres only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.db import connection
from django.db.models import Model
from django.utils import timezone

from sessions_app.core.tenancy import audit, keys, tenants
from sessions_app.models import (
    ApiKey,
    AuditRecord,
    ModelUse,
    SearchText,
    Session,
    Tenant,
    Terminal,
    Turn,
    Webhook,
    WebhookDelivery,
    Workspace,
)
from tests.faces.admin.conversations import make_session, make_turn

TENANTS, KEYS, SESSIONS, AUDIT = 5_000, 20_000, 1_000_000, 1_000_000
OTHERS = 200_000
"""Rows of every other table."""
AGENTS = 20
"""Each but the last has an equal part of the sessions; the last one has a handful."""
LARGE = 50_000
"""Rows of a table that no list may read whole."""


def fill(
    sessions: int = SESSIONS, records: int = AUDIT, others: int = OTHERS, numbers: tuple[int, int] = (TENANTS, KEYS)
) -> Tenant:
    """Fill the empty database; returns the tenant that has a tenth of everything. ``numbers``: of tenants and keys."""
    tenants_made, keys_made = numbers
    made, _ = tenants.create("tenant-1")
    key = keys.issue(made, name="key 1", scopes=["*"], expires_at=None, allowed_agents=None, actor="tests").key
    session = make_session(made, title="title 1", created_by=key)
    turn = make_turn(session)
    record = audit.record(actor="key:one", action=audit.Action.TRANSCRIPT_READ, target="session one", tenant=made, address="::1")
    webhook = Webhook.objects.create(tenant=made, public_id="wh_1", url="https://example.org/", types=["turn.ended"])
    now = timezone.now()
    delivery = WebhookDelivery.objects.create(
        tenant=made, webhook=webhook, public_id="whd_1", event="evt_1", type="turn.ended", body="{}", state="delivered", until=now
    )
    terminal = Terminal.objects.create(
        tenant=made,
        public_id="term_1",
        uri="term:/1",
        claim="{}",
        line=key.pk,
        cols=80,
        rows=24,
        state="exited",
        requested_at=now,
    )
    workspace = Workspace.objects.create(
        tenant=made, public_id="ws_1", root="file:///1", private=False, changed_at=now, used_at=now, created_at=now
    )
    use = ModelUse.objects.create(
        tenant_id=made.pk, day=now.date(), session="sess_1", key_id=key.pk, agent="agent1", model="m:1", purpose="turn",
        calls=1, input_tokens=1, output_tokens=1, cache_read_tokens=0,
    )  # fmt: skip
    # A tenth of all rows belongs to the first tenant, the rest to tenants by turns.
    tenant = f"case when g % 10 = 0 then {made.pk} else {made.pk} + g % {tenants_made} end"
    agent = f"case when g % 100000 = 7 then 'agent{AGENTS}' else 'agent' || g % {AGENTS - 1} end"
    past = f"timestamptz '{(now - timedelta(days=365)).isoformat()}' + g * interval '30 seconds'"
    with connection.cursor() as cursor:
        # No triggers: they would check each foreign key.
        cursor.execute("set session_replication_role = replica")
        _multiply(made, tenants_made, {"id": f"{made.pk} + g", "slug": "'tenant-' || g + 1", "title": "'Tenant ' || g"})
        _multiply(
            key,
            keys_made,
            {"tenant_id": tenant, "prefix": "'ah_' || lpad(g::text, 8, '0')", "digest": "'d' || g", "name": "'key ' || g"},
        )
        own = {"tenant_id": tenant, "agent_name": agent, "created_at": past, "modified_at": past}
        by = f"{key.pk} + g % {keys_made}"
        _multiply(
            session,
            sessions,
            {
                **own,
                "id": f"{session.pk} + g",
                "public_id": "'sess_' || md5(g::text)",
                "title": "'title ' || g",
                "created_by_id": by,
            },
        )
        _multiply(
            turn, others, {"tenant_id": tenant, "session_id": f"{session.pk} + g", "public_id": "'turn_' || g", "ended_at": past}
        )
        action = "case when g % 200000 = 9 then 'tenant_deleted' else 'transcript_read' end"
        _multiply(
            record, records,
            {
                "tenant_id": tenant, "at": past, "actor": "'key:' || g % 20000", "action": action,
                "target": "'session sess_' || md5(g::text)", "uid": "gen_random_uuid()",
            },
        )  # fmt: skip
        _multiply(
            delivery,
            others,
            {
                "tenant_id": tenant,
                "public_id": "'whd_' || g + 1",
                "event": "'evt_' || g + 1",
                "created_at": past,
                "state": "case when g % 50000 = 3 then 'failed' else 'delivered' end",
            },
        )
        _multiply(
            terminal,
            others,
            {
                "tenant_id": tenant,
                "public_id": "'term_' || g + 1",
                "uri": "'term:/' || g + 1",
                "command": "case when g % 50000 = 3 then 'ls' end",
            },
        )
        _multiply(
            workspace,
            others,
            {"tenant_id": tenant, "public_id": "'ws_' || g + 1", "root": "'file:///' || g + 1", "private": "g % 50000 <> 3"},
        )
        _multiply(use, others, {"tenant_id": tenant, "session": "'sess_' || g + 1", "agent": agent, "day": f"({past})::date"})
        words = f"to_tsvector('simple', 't' || ({tenant}) || ' hello word' || g % 1000 || ' rare' || g)"
        cursor.execute(
            "insert into sessions_app_searchtext (tenant_id, session_id, through, words)"
            f" select {tenant}, {session.pk} + g, 1, {words} from generate_series(1, {others}) g"
        )
        cursor.execute("set session_replication_role = default")
        cursor.execute("analyze")
    return made


def empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "truncate sessions_app_tenant, sessions_app_session, sessions_app_auditrecord, sessions_app_searchtext,"
            " sessions_app_modeluse cascade"
        )


def _multiply(row: Model, number: int, changed: Mapping[str, str]) -> None:
    """Insert copies of a row. ``changed``: SQL for columns, with the number ``g`` of the copy."""
    generated = {field.column for field in row._meta.concrete_fields if field.generated}
    columns = [field.column for field in row._meta.concrete_fields if field.column not in generated]
    columns = [column for column in columns if column != "id" or "id" in changed]
    values = ", ".join(changed.get(str(column), f't."{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    table = row._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into {table} ({names}) select {values} from {table} t, generate_series(1, {number}) g where t.id = {row.pk}"
        )


__all__ = ["AGENTS", "LARGE", "ApiKey", "AuditRecord", "SearchText", "Session", "Turn", "fill"]
