"""Builds indexes of large tables without locks that block the server. Not a migration."""

from __future__ import annotations

from typing import Any

from django.db import NotSupportedError
from django.db.migrations.operations import AddIndex

_IS_VALID = "select i.indisvalid from pg_index i where i.indexrelid = to_regclass(%s)"


class AddIndexConcurrently(AddIndex):
    """``AddIndex`` that lets others write meanwhile, on Postgres; its migration has ``atomic = False``.

    It can be repeated: an index that exists is kept, and one that a build left unfinished is built again.
    """

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        table = to_state.apps.get_model(app_label, self.model_name)._meta.db_table
        with connection.cursor() as cursor:
            exists = self.index.name in connection.introspection.get_constraints(cursor, table)
        if connection.vendor != "postgresql":
            if not exists:
                super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        if connection.in_atomic_block:
            raise NotSupportedError(f"the index {self.index.name} is built concurrently: set atomic = False on its migration")
        model = to_state.apps.get_model(app_label, self.model_name)
        if exists:
            with connection.cursor() as cursor:
                cursor.execute(_IS_VALID, [schema_editor.quote_name(self.index.name)])
                if cursor.fetchone()[0]:
                    return
            schema_editor.remove_index(model, self.index, concurrently=True)
        schema_editor.add_index(model, self.index, concurrently=True)
