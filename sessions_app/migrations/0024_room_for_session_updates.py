"""Space in each page of sessions for the next versions of its rows: without it an update is not heap-only (decision 0049)."""

from typing import Any

from django.db import migrations


def _set(schema_editor: Any, what: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"alter table sessions_app_session {what}")


def forwards(apps: Any, schema_editor: Any) -> None:
    _set(schema_editor, "set (fillfactor = 85)")


def backwards(apps: Any, schema_editor: Any) -> None:
    _set(schema_editor, "reset (fillfactor)")


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0023_heap_only_updates")]

    operations = [migrations.RunPython(forwards, backwards)]
