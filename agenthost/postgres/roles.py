"""Two Postgres roles: the migrating role owns the tables, the running role may use them.

The running role can read and add audit records but not change or delete them, so an attacker who takes over a server
process cannot hide it. It can read the list of migrations and cannot change the schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from sessions_app.core.log.journal import partitions
from sessions_app.models import AuditKey, AuditLink, AuditRecord, AuditSeal

ALL_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")
RESTRICTED_TABLES = {
    AuditRecord._meta.db_table: ("SELECT", "INSERT"),
    AuditLink._meta.db_table: ("SELECT", "INSERT"),
    AuditSeal._meta.db_table: ("SELECT", "INSERT"),
    AuditKey._meta.db_table: ("SELECT", "INSERT", "UPDATE"),
    MigrationRecorder.Migration._meta.db_table: ("SELECT",),
    # Made by the first migration that changes rows in batches.
    "migration_progress": ("SELECT",),
}
EMPTIED_TABLES = frozenset(partitions.TABLES)

_PARTITIONS = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = current_schema() AND c.relispartition AND c.relkind IN ('r', 'p') ORDER BY relname
"""


_NEW = (("SELECT, INSERT, UPDATE, DELETE", "TABLES"), ("USAGE, SELECT", "SEQUENCES"))


@contextmanager
def granted_on_new_tables(role: str) -> Iterator[None]:
    """Let ``role`` use tables as soon as migrations make them, until ``grant`` decides on each.

    A migration may replace a table that processes of the previous release write to at this moment.
    """
    if not role or connection.vendor != "postgresql":
        yield
        return
    _check(role)
    _change_defaults("GRANT {} ON {} TO {}", role)
    try:
        yield
    finally:
        _change_defaults("REVOKE {} ON {} FROM {}", role)


def _change_defaults(statement: str, role: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        (schema,) = cursor.fetchone()
        for rights, objects in _NEW:
            change = sql.SQL(statement).format(sql.SQL(rights), sql.SQL(objects), sql.Identifier(role))
            cursor.execute(sql.SQL("ALTER DEFAULT PRIVILEGES IN SCHEMA {} ").format(sql.Identifier(schema)) + change)


def grant(role: str) -> None:
    """Grant ``role`` the privileges that the server needs on every table, and revoke all others."""
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured("AGENTHOST_RUNTIME_ROLE: the database is not Postgres and has no roles. Unset the variable.")
    with transaction.atomic(), connection.cursor() as cursor:
        _check(role)
        name = sql.Identifier(role)
        cursor.execute("SELECT current_schema(), current_database()")
        schema, database = map(sql.Identifier, cursor.fetchone())
        cursor.execute(
            "SELECT has_database_privilege(%(role)s, current_database(), 'CONNECT'),"
            " has_schema_privilege(%(role)s, current_schema(), 'USAGE'),"
            " has_schema_privilege(%(role)s, current_schema(), 'CREATE')",
            {"role": role},
        )
        connects, uses, creates = cursor.fetchone()
        # Only if needed, because these statements need the owner of database and schema.
        if not connects:
            cursor.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, name))
        if not uses:
            cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, name))
        if creates:
            cursor.execute(sql.SQL("REVOKE CREATE ON SCHEMA {} FROM {}, PUBLIC").format(schema, name))
        tables = sorted(connection.introspection.table_names(cursor))
        for table in tables:
            rights = sql.SQL(", ").join(map(sql.SQL, RESTRICTED_TABLES.get(table, ALL_PRIVILEGES)))
            target = sql.SQL(".").join((schema, sql.Identifier(table)))
            cursor.execute(sql.SQL("REVOKE ALL ON TABLE {} FROM {}, PUBLIC").format(target, name))
            cursor.execute(sql.SQL("GRANT {} ON TABLE {} TO {}").format(rights, target, name))
        # Partitions are used through their table. Emptying one is the only thing that is done to a partition itself.
        cursor.execute(_PARTITIONS)
        for (table,) in cursor.fetchall():
            target = sql.SQL(".").join((schema, sql.Identifier(table)))
            cursor.execute(sql.SQL("REVOKE ALL ON TABLE {} FROM {}, PUBLIC").format(target, name))
            if table in EMPTIED_TABLES:
                cursor.execute(sql.SQL("GRANT TRUNCATE ON TABLE {} TO {}").format(target, name))
        cursor.execute(sql.SQL("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {} TO {}").format(schema, name))
        _check_effect(role, tables)


def _check(role: str) -> None:
    """The role exists and cannot grant itself more privileges."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = %s", [role])
        found = cursor.fetchone()
        if found is None:
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: the role {role!r} does not exist. Create it: CREATE ROLE \"{role}\" LOGIN PASSWORD '…'"
            )
        is_superuser, makes_roles = found
        if is_superuser:
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: {role!r} is a superuser, whose privileges cannot be limited. Use another role."
            )
        if makes_roles:
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: {role!r} may create roles, and before Postgres 16 join any of them. Use another role,"
                f' or: ALTER ROLE "{role}" NOCREATEROLE'
            )
        cursor.execute(_OWNED, {"role": role})
        owned = cursor.fetchone()
        if owned is not None:
            what, owner = owned
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: {role!r} is, or is a member of, {owner!r}, which owns {what}. Use another role."
            )


# The owner of a table can change its grants, and the owner of its schema can drop it. The owner of the database owns the
# schema public.
_OWNED = """
SELECT what, pg_get_userbyid(owner) FROM (
 SELECT 1 AS place, 'the tables' AS what, oid AS owner FROM pg_roles WHERE rolname = current_user
 UNION ALL SELECT 2, 'the database ' || datname, datdba FROM pg_database WHERE datname = current_database()
 UNION ALL SELECT 3, 'the schema ' || nspname, nspowner FROM pg_namespace WHERE nspname = current_schema()
 UNION ALL SELECT 4, 'the table ' || relname, relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = current_schema() AND relkind IN ('r', 'p')
) AS owned WHERE pg_has_role(%(role)s::name, owner, 'MEMBER') ORDER BY place, what LIMIT 1
"""


def _check_effect(role: str, tables: Collection[str]) -> None:
    """Other roles of which this one is a member give it no further privileges."""
    with connection.cursor() as cursor:
        for table, rights in RESTRICTED_TABLES.items():
            if table not in tables:
                continue
            for right in (*ALL_PRIVILEGES, "TRUNCATE"):
                if right in rights:
                    continue
                cursor.execute("SELECT has_table_privilege(%s, %s, %s)", [role, connection.ops.quote_name(table), right])
                if cursor.fetchone()[0]:
                    raise ImproperlyConfigured(
                        f"AGENTHOST_RUNTIME_ROLE: {role!r} has {right} on {table} as a member of another role. Use"
                        " another role, or end the membership."
                    )
