"""What Postgres alone has for usage: entries come and go by the thousand, so their dead rows go soon."""

from typing import Any

from django.db import migrations

FORWARD = """alter table sessions_app_usageentry set (autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)"""
BACKWARD = """alter table sessions_app_usageentry reset (autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay)"""


def forward(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(FORWARD)


def backward(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(BACKWARD)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0005_count_what_is_there")]

    operations = [migrations.RunPython(forward, backward, elidable=False)]
