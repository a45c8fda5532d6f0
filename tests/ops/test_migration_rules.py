"""Migrations that the previous release would not survive."""

from __future__ import annotations

import pytest
from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from ops import migration_rules

BASE = [
    migrations.CreateModel(
        "Letter",
        fields=[
            ("id", models.BigAutoField(primary_key=True)),
            ("title", models.TextField(null=True)),
            ("size", models.IntegerField()),
        ],
    )
]


def judge(*operations: Operation, reason: str = "") -> list[str]:
    before = ProjectState()
    for operation in BASE:
        operation.state_forwards("post", before)
    kind = type("Migration", (migrations.Migration,), {"operations": operations, "breaks_previous_release": reason})
    return migration_rules.faults(kind("0002_next", "post"), before)


@pytest.mark.parametrize(
    "operation",
    [
        migrations.RemoveField("letter", "title"),
        migrations.DeleteModel("Letter"),
        migrations.RenameField("letter", "title", "heading"),
        migrations.RenameModel("Letter", "Parcel"),
        migrations.AddField("letter", "weight", models.IntegerField(default=0)),
        migrations.AlterField("letter", "title", models.TextField(default="")),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_what_the_previous_release_still_needs_is_refused(operation: Operation) -> None:
    assert len(judge(operation)) == 1


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("letter", "weight", models.IntegerField(null=True)),
        migrations.AddField("letter", "weight", models.IntegerField(db_default=0)),
        migrations.AlterField("letter", "size", models.IntegerField(null=True)),
        migrations.AddIndex("letter", models.Index(fields=["size"], name="letter_size")),
        migrations.CreateModel("Stamp", fields=[("id", models.BigAutoField(primary_key=True))]),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_what_it_does_not_notice_is_let_through(operation: Operation) -> None:
    assert judge(operation) == []


def test_a_table_made_in_the_same_migration_may_get_any_column() -> None:
    stamp = migrations.CreateModel("Stamp", fields=[("id", models.BigAutoField(primary_key=True))])
    assert judge(stamp, migrations.AddField("stamp", "value", models.IntegerField(default=1))) == []


def test_a_migration_may_say_why_it_must() -> None:
    assert judge(migrations.RemoveField("letter", "title"), reason="a security hole") == []


def test_schema_and_data_steps_stand_apart() -> None:
    data = migrations.RunPython(migrations.RunPython.noop)
    index = migrations.AddIndex("letter", models.Index(fields=["size"], name="letter_size"))
    assert len(judge(data, index)) == 1
    assert judge(data) == []
