"""Grants to the runtime role, and roles that migrate refuses."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.core.management.commands import migrate
from django.db import connection
from pytest_django import Settings

from agenthost.postgres import roles

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="only Postgres has roles"),
]


@pytest.fixture
def runner(transactional_db: None) -> Iterator[str]:
    name = f'test runner "{secrets.token_hex(4)}"'
    quoted = name.replace('"', '""')
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE ROLE "{quoted}"')
    yield name
    with connection.cursor() as cursor:
        cursor.execute(f'DROP OWNED BY "{quoted}"')
        cursor.execute(f'DROP ROLE "{quoted}"')


def holds(role: str, table: str, right: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, %s, %s)", [role, table, right])
        return bool(cursor.fetchone()[0])


def test_migrate_grants_the_needed_privileges_and_revokes_others(settings: Settings, runner: str) -> None:
    settings.AGENTHOST_RUNTIME_ROLE = runner
    call_command("migrate", verbosity=0)
    assert all(holds(runner, "sessions_app_session", right) for right in roles.ALL_PRIVILEGES)
    assert all(holds(runner, "axes_accessattempt", right) for right in roles.ALL_PRIVILEGES)
    with connection.cursor() as cursor:
        quoted = runner.replace('"', '""')
        cursor.execute(f'GRANT ALL ON sessions_app_auditrecord, sessions_app_session TO "{quoted}"')
    call_command("migrate", verbosity=0)
    for right, held in {"SELECT": True, "INSERT": True, "UPDATE": False, "DELETE": False, "TRUNCATE": False}.items():
        assert holds(runner, "sessions_app_auditrecord", right) is held, right
    assert not holds(runner, "sessions_app_session", "TRUNCATE")
    assert not holds(runner, "django_migrations", "INSERT")


def test_the_progress_of_migrations_is_read_only(settings: Settings, runner: str) -> None:
    settings.AGENTHOST_RUNTIME_ROLE = runner
    with connection.cursor() as cursor:
        # As the first migration that changes rows in batches makes it.
        cursor.execute("create table migration_progress (name varchar(200) primary key, position bigint not null)")
    try:
        call_command("migrate", verbosity=0)
        assert holds(runner, "migration_progress", "SELECT")
        for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE"):
            assert not holds(runner, "migration_progress", right), right
    finally:
        with connection.cursor() as cursor:
            cursor.execute("drop table migration_progress")


def test_a_table_that_a_migration_replaces_can_be_used_before_migrate_ends(
    settings: Settings, runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of the previous release write to it at that moment."""
    settings.AGENTHOST_RUNTIME_ROLE = runner
    held: list[bool] = []

    def replace(*_arguments: Any, **_options: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("create table replaced (id bigserial)")
            held.extend(holds(runner, "replaced", right) for right in roles.ALL_PRIVILEGES)
            cursor.execute("drop table replaced")

    monkeypatch.setattr(migrate.Command, "handle", replace)
    call_command("migrate", verbosity=0)
    assert held == [True] * len(roles.ALL_PRIVILEGES)
    with connection.cursor() as cursor:
        cursor.execute("create table later (id bigint)")
        assert not holds(runner, "later", "SELECT")
        cursor.execute("drop table later")


def test_a_superuser_is_refused(settings: Settings, runner: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="CREATE ROLE"):
        roles.grant("nobody knows")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        (owner,) = cursor.fetchone()
    with pytest.raises(ImproperlyConfigured, match="superuser"):
        roles.grant(owner)
    settings.AGENTHOST_RUNTIME_ROLE = "nobody knows"
    with pytest.raises(CommandError, match="AGENTHOST_RUNTIME_ROLE"):
        call_command("migrate", verbosity=0)


def test_a_member_of_the_owner_is_refused(runner: str) -> None:
    quoted = runner.replace('"', '""')
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE ROLE "{quoted} owner"')
        try:
            cursor.execute(f'GRANT "{quoted} owner" TO "{quoted}"')
            cursor.execute(f'SET ROLE "{quoted} owner"')
            with pytest.raises(ImproperlyConfigured, match="owns the tables"):
                roles.grant(runner)
        finally:
            cursor.execute("RESET ROLE")
            cursor.execute(f'DROP ROLE "{quoted} owner"')


def _run(statement: str, *names: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement.format(*('"{}"'.format(name.replace('"', '""')) for name in names)))


def _owner_of(kind: str) -> tuple[str, str]:
    """Run statements that give ``runner`` something, and revert them afterwards."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_schema(), current_database()")
        user, schema, database = cursor.fetchone()
        cursor.execute("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = current_schema()")
        (schema_owner,) = cursor.fetchone()
    thing = {"TABLE": "sessions_app_auditrecord", "SCHEMA": f'"{schema}"', "DATABASE": f'"{database}"'}[kind]
    before = schema_owner if kind == "SCHEMA" else f'"{user}"'
    return f"ALTER {kind} {thing} OWNER TO {{}}", f"ALTER {kind} {thing} OWNER TO {before}"


@pytest.mark.parametrize("kind", ["TABLE", "SCHEMA", "DATABASE"])
def test_a_role_that_owns_database_schema_or_table_is_refused(runner: str, kind: str) -> None:
    give, take_back = _owner_of(kind)
    _run(give, runner)
    try:
        with pytest.raises(ImproperlyConfigured, match=f"owns the {kind.lower()} "):
            roles.grant(runner)
    finally:
        _run(take_back)


def test_a_role_with_more_privileges_through_membership_is_refused(runner: str) -> None:
    _run("GRANT pg_write_all_data TO {}", runner)
    with pytest.raises(ImproperlyConfigured, match="UPDATE on sessions_app_auditrecord"):
        roles.grant(runner)
    assert not holds(runner, "sessions_app_session", "SELECT")


def test_a_role_with_createrole_is_refused(runner: str) -> None:
    _run("ALTER ROLE {} CREATEROLE", runner)
    with pytest.raises(ImproperlyConfigured, match="NOCREATEROLE"):
        roles.grant(runner)
