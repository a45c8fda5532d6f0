"""Migrations that would stop a busy server are found by the locks that they take on a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, migrations, models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from ops import migration_locks
from sessions_app.core.base import lock_timeouts
from sessions_app.migrations._batches import InBatches
from sessions_app.migrations._concurrent import AddFieldConcurrently, AddIndexConcurrently

pytestmark = pytest.mark.django_db(transaction=True)

APP = "post"
BASE = [
    migrations.CreateModel(
        name,
        fields=[
            ("id", models.BigAutoField(primary_key=True)),
            ("title", models.TextField(null=True)),
            ("size", models.IntegerField()),
            ("box", models.BigIntegerField(default=1)),
        ],
    )
    for name in ("Letter", "Parcel")
]
INDEX = models.Index(fields=["size"], name="letter_size")


@pytest.fixture
def before(on_postgres: bool) -> Iterator[ProjectState]:
    """The state before the migration; its two tables are in the database."""
    if not on_postgres:
        pytest.skip("reads the locks of Postgres")
    state = ProjectState()
    with connection.schema_editor() as editor:
        for operation in BASE:
            earlier = state.clone()
            operation.state_forwards(APP, state)
            operation.database_forwards(APP, editor, earlier, state)
    with connection.cursor() as cursor:
        for table in ("letter", "parcel"):
            cursor.execute(f"insert into post_{table} (title, size, box) select '', n, 1 from generate_series(1, 300) n")
    yield state
    with connection.cursor() as cursor:
        cursor.execute("drop table if exists post_letter, post_parcel, post_stamp, migration_progress cascade")


def judge(before: ProjectState, *operations: Operation, atomic: bool = True, **facts: Any) -> list[str]:
    kind = type("Migration", (migrations.Migration,), {"operations": operations, "atomic": atomic, **facts})
    migration = kind("0002_next", APP)
    watch = migration_locks.Watch(connection, migration_locks.large_tables(connection))
    naming = migration_locks.naming_operations(migration, watch)
    # The editor ends first, with the deferred statements.
    with lock_timeouts.at_most(2), naming, connection.execute_wrapper(watch), connection.schema_editor(atomic=atomic) as editor:
        migration.apply(before, editor)
    return migration_locks.faults(migration, watch.seen)


def sql(statement: str) -> migrations.RunSQL:
    return migrations.RunSQL(statement, migrations.RunSQL.noop)


@pytest.mark.parametrize(
    ("operation", "fix"),
    [
        (migrations.AlterField("letter", "size", models.BigIntegerField()), "fill it with InBatches"),
        (sql("alter table post_letter add column at timestamptz default clock_timestamp()"), "fill it with InBatches"),
        (migrations.AddIndex("letter", INDEX), "use AddIndexConcurrently"),
        (migrations.AddField("letter", "weight", models.PositiveIntegerField(db_default=0)), "use AddFieldConcurrently"),
        (migrations.AddConstraint("letter", models.UniqueConstraint(fields=["size"], name="once")), "USING INDEX"),
        (
            migrations.AddConstraint("letter", models.CheckConstraint(condition=models.Q(size__gt=0), name="not_empty")),
            "add a CHECK that is NOT VALID",
        ),
        (sql("alter table post_letter alter column size set not null, alter column title set not null"), "NOT VALID"),
        (sql("alter table post_letter add foreign key (box) references post_parcel"), "validate it in a later migration"),
        (sql("update post_letter set title = 'unknown'"), "use InBatches"),
        (migrations.RunPython(lambda apps, _: apps.get_model(APP, "Letter").objects.update(size=1)), "use InBatches"),
        (sql("lock table post_letter in access exclusive mode; select count(*) from post_letter"), "under AccessExclusiveLock"),
        (sql("lock table post_letter; lock table post_parcel"), "make a migration for each"),
        (sql("set local lock_timeout = 0; lock table post_letter"), "without lock_timeout"),
    ],
    ids=range(13),
)
def test_what_would_stop_the_server_is_named_with_its_fix(before: ProjectState, operation: Operation, fix: str) -> None:
    found = judge(before, operation)
    assert found
    assert all(fault.startswith("post.0002_next: ") for fault in found), found
    assert any(fix in fault for fault in found), found


@pytest.mark.parametrize(
    ("operation", "atomic"),
    [
        (migrations.AddField("letter", "weight", models.IntegerField(null=True)), True),
        (migrations.AddField("letter", "weight", models.IntegerField(db_default=7)), True),
        (migrations.RemoveField("letter", "title"), True),
        (AddIndexConcurrently("letter", INDEX), False),
        (AddFieldConcurrently("letter", "weight", models.PositiveIntegerField(db_default=0)), False),
        (sql("alter table post_letter add constraint c check (size > 0) not valid"), True),
        (InBatches("test", "post_letter", lambda to, *ids: change(to, *ids)), False),
        (migrations.CreateModel("Stamp", fields=[("id", models.BigAutoField(primary_key=True))]), True),
        (sql("select count(*) from post_letter"), True),
    ],
    ids=range(9),
)
def test_what_does_not_stop_it_is_let_through(before: ProjectState, operation: Operation, atomic: bool) -> None:
    assert judge(before, operation, atomic=atomic) == []


def change(to: Any, after: int, upto: int) -> None:
    with to.cursor() as cursor:
        cursor.execute("update post_letter set title = 'unknown' where id > %s and id <= %s", [after, upto])


def test_a_migration_gives_the_reason_of_an_exception_by_table(before: ProjectState) -> None:
    operation = migrations.AddIndex("letter", INDEX)
    assert judge(before, operation, heavy_locks={"post_letter": "it takes a second"}) == []


def test_an_exception_that_nothing_needs_is_removed(before: ProjectState) -> None:
    operation = migrations.AddField("letter", "weight", models.IntegerField(null=True))
    (fault,) = judge(before, operation, heavy_locks={"post_letter": "it takes a second"})
    assert "heavy_locks has post_letter" in fault


def test_without_a_transaction_only_the_last_operation_cannot_be_repeated(before: ProjectState) -> None:
    added = migrations.AddField("letter", "weight", models.IntegerField(null=True))
    index = AddIndexConcurrently("letter", INDEX)
    assert judge(before, index, added, atomic=False) == []
    (fault,) = migration_locks.faults(
        type("M", (migrations.Migration,), {"operations": [added, index], "atomic": False})("x", APP), []
    )
    assert "it cannot run again" in fault


def test_a_checked_column_is_like_that_of_django_and_can_be_added_again(before: ProjectState) -> None:
    field = models.PositiveIntegerField(db_default=0)
    assert judge(before, AddFieldConcurrently("letter", "weight", field), atomic=False) == []
    assert judge(before, AddFieldConcurrently("letter", "weight", field), atomic=False) == []
    assert judge(before, migrations.AddField("parcel", "weight", field)) != []
    with connection.cursor() as cursor:
        cursor.execute(
            "select conrelid::regclass::text, conname, convalidated, pg_get_constraintdef(oid) from pg_constraint"
            " where conname like 'post_%_weight_check' order by 1"
        )
        ours, theirs = cursor.fetchall()
    assert [str(value).replace("parcel", "letter") for value in theirs] == [str(value) for value in ours]
    assert ours[2]
