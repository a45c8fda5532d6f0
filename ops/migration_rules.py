"""Checks that the previous release can run on the new schema.

During an upgrade, processes of the previous release use the migrated database. So a column that they read must stay, and a
column that they do not know must have a value when they insert. Each operation is judged by its kind and the state before
it. Not covered: a new constraint that old rows or old code violate, and custom SQL.

`sessions_app/migrations/released.txt` lists the migrations of the last release; only newer ones are checked. A migration that
must break a rule gives the reason in `breaks_previous_release = "reason"`: processes of the previous release then refuse the
new schema (sessions_app.core.records.database_checks), and the changelog has to mention it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from django.db.migrations import Migration
from django.db.migrations import operations as kinds
from django.db.migrations.operations.base import Operation
from django.db.migrations.operations.fields import FieldOperation
from django.db.migrations.operations.models import IndexOperation
from django.db.migrations.state import ProjectState
from django.db.models import Field, GeneratedField, ManyToManyField
from django.db.models.fields import NOT_PROVIDED

GONE = (kinds.RemoveField, kinds.DeleteModel, kinds.RenameField, kinds.RenameModel, kinds.AlterModelTable)


def optional_for_old_code(field: Field) -> bool:  # type: ignore[type-arg]  # any field
    """An INSERT that does not name the column works: a Python default is not known to the database, and the
    database computes a generated one."""
    return field.null or field.db_default is not NOT_PROVIDED or isinstance(field, (ManyToManyField, GeneratedField))


def faults_of(operation: Operation, app: str, before: ProjectState) -> Iterator[str]:
    if isinstance(operation, GONE):
        yield f"{operation.describe()}: the previous release still uses it"
    if isinstance(operation, kinds.AddField) and not optional_for_old_code(operation.field):
        yield f"{operation.describe()}: rows that the previous release inserts have no value for it (null or db_default)"
    if isinstance(operation, kinds.AlterField):
        old = before.models[app, operation.model_name_lower].fields[operation.name]
        if optional_for_old_code(old) and not optional_for_old_code(operation.field):
            yield f"{operation.describe()}: the previous release may leave it empty"


def faults(migration: Migration, before: ProjectState) -> list[str]:
    """Operations of this migration that break the previous release; `before` is the state it starts from."""
    name = f"{migration.app_label}.{migration.name}"
    found = [f"{name}: {fault}" for fault in _walk(migration, before.clone())]
    reason: str | None = getattr(migration, "breaks_previous_release", None)
    if reason:
        found = []
    if _of_kind(migration.operations, kinds.RunPython) and not all(
        isinstance(operation, kinds.RunPython) for operation in migration.operations
    ):
        found.append(f"{name}: it mixes schema and data steps; move RunPython to its own migration")
    return found


def _walk(migration: Migration, state: ProjectState) -> Iterator[str]:
    created: set[str] = set()
    for operation in migration.operations:
        if isinstance(operation, kinds.CreateModel):
            created.add(operation.name_lower)
        # The previous release does not know a table that is created here.
        if not (isinstance(operation, FieldOperation | IndexOperation) and operation.model_name_lower in created):
            yield from faults_of(operation, migration.app_label, state)
        operation.state_forwards(migration.app_label, state)


def _of_kind(operations: Sequence[Operation], kind: type[Operation]) -> bool:
    return any(isinstance(operation, kind) for operation in operations)


def main() -> int:
    import django

    django.setup()
    from django.db.migrations.loader import MigrationLoader

    from sessions_app.core.records.database_checks import released_migrations

    loader = MigrationLoader(None)
    ours = {"sessions_app"}
    released = released_migrations()
    found = [f"{app}: two heads, {' and '.join(names)}" for app, names in loader.detect_conflicts().items() if app in ours]
    known = {f"{app}.{name}" for app, name in loader.disk_migrations}
    found += [f"{name}: was released and is gone" for name in sorted(released - known)]
    # Before the first release no schema has to stay compatible.
    if released and not found:
        for (app, name), migration in sorted(loader.disk_migrations.items()):
            if app in ours and f"{app}.{name}" not in released:
                found += faults(migration, loader.project_state((app, name), at_end=False))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
