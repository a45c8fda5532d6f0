"""Foreign keys of the hot tables are checked by the statement that writes them (decision 0043)."""

from typing import Any

from django.db import migrations

TABLES = ("sessions_app_session", "sessions_app_turn", "sessions_app_message", "sessions_app_toolcall")


def _alter(schema_editor: Any, when: str) -> None:
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "select conrelid::regclass::text, conname from pg_constraint where contype = 'f' and conrelid::regclass::text = any(%s)",
            [list(TABLES)],
        )
        for table, name in cursor.fetchall():
            cursor.execute(f'ALTER TABLE "{table}" ALTER CONSTRAINT "{name}" DEFERRABLE INITIALLY {when}')


def forwards(apps: Any, schema_editor: Any) -> None:
    _alter(schema_editor, "IMMEDIATE")


def backwards(apps: Any, schema_editor: Any) -> None:
    _alter(schema_editor, "DEFERRED")


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0020_fewer_indexes")]

    operations = [migrations.RunPython(forwards, backwards)]
