"""What Postgres alone has for the journal: the era, the refusal, room in the pages of its counters."""

from typing import Any

from django.db import migrations

FORWARD = [
    # Unlogged: crash recovery and the promotion of a standby empty it, a clean restart does not.
    "create unlogged table journal_era (one boolean primary key default true check (one), id bigint not null)",
    # An append inside a pipeline raises by this, so that the COMMIT behind it does nothing.
    """create function journal_refuse(reason text) returns integer language plpgsql volatile as
    $$ begin raise exception 'not everything could be stored' using errcode = 'JN001', detail = reason; end $$""",
    # A counter changes with every append: room for its next versions in its own page, and a broom for long snapshots.
    """alter table tenant_counter set (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)""",
    "alter table session_tail set (fillfactor = 50)",
    # Pruning leaves many dead rows in a large table; a fifth of it is too late.
    "alter table event set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05)",
]

BACKWARD = [
    "alter table event reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_insert_scale_factor)",
    "alter table session_tail reset (fillfactor)",
    """alter table tenant_counter reset (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay)""",
    "drop function journal_refuse(text)",
    "drop table journal_era",
]


def forward(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in FORWARD:
            schema_editor.execute(statement)


def backward(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in BACKWARD:
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0001_initial")]

    operations = [migrations.RunPython(forward, backward, elidable=False)]
