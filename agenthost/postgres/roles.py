"""Two Postgres roles: the migrating role owns the tables, the running role may use them.

The running role can read and add audit records but not change or delete them, so an attacker who takes over a server
process cannot hide it. It can read the list of migrations and cannot change the schema.
"""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from sessions_app.models import AuditRecord

ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
FEWER = {
    AuditRecord._meta.db_table: ("SELECT", "INSERT"),
    MigrationRecorder.Migration._meta.db_table: ("SELECT",),
}


def grant(role: str) -> None:
    """Grant ``role`` the rights that the server needs on every table, and revoke all others."""
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured("AGENTHOST_RUNTIME_ROLE: only Postgres has roles; unset it.")
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
        # Usually there is nothing to do here, and it would take the owner of database and schema.
        if not connects:
            cursor.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, name))
        if not uses:
            cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, name))
        if creates:
            cursor.execute(sql.SQL("REVOKE CREATE ON SCHEMA {} FROM {}, PUBLIC").format(schema, name))
        for table in sorted(connection.introspection.table_names(cursor)):
            rights = sql.SQL(", ").join(map(sql.SQL, FEWER.get(table, ALL)))
            target = sql.SQL(".").join((schema, sql.Identifier(table)))
            cursor.execute(sql.SQL("REVOKE ALL ON TABLE {} FROM {}, PUBLIC").format(target, name))
            cursor.execute(sql.SQL("GRANT {} ON TABLE {} TO {}").format(rights, target, name))
        cursor.execute(sql.SQL("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {} TO {}").format(schema, name))
        _check_effect(role)


def _check(role: str) -> None:
    """The role exists and cannot grant itself more rights."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = %s", [role])
        found = cursor.fetchone()
        if found is None:
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: there is no role {role!r}. Make it: CREATE ROLE \"{role}\" LOGIN PASSWORD '…'"
            )
        is_superuser, makes_roles = found
        if is_superuser:
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: {role!r} is a superuser, which no grant limits. Name another role."
            )
        if makes_roles:
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: {role!r} may make roles, and before Postgres 16 join any of them. Name another role,"
                f' or: ALTER ROLE "{role}" NOCREATEROLE'
            )
        cursor.execute(_OWNED, {"role": role})
        owned = cursor.fetchone()
        if owned is not None:
            what, owner = owned
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: {role!r} is, or is a member of, {owner!r}, which owns {what}. Name another role."
            )


# Who owns a table changes its grants, and who owns its schema drops it. The owner of the database owns the schema public.
_OWNED = """
SELECT what, pg_get_userbyid(owner) FROM (
 SELECT 1 AS place, 'the tables' AS what, oid AS owner FROM pg_roles WHERE rolname = current_user
 UNION ALL SELECT 2, 'the database ' || datname, datdba FROM pg_database WHERE datname = current_database()
 UNION ALL SELECT 3, 'the schema ' || nspname, nspowner FROM pg_namespace WHERE nspname = current_schema()
 UNION ALL SELECT 4, 'the table ' || relname, relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = current_schema() AND relkind IN ('r', 'p')
) AS owned WHERE pg_has_role(%(role)s::name, owner, 'MEMBER') ORDER BY place, what LIMIT 1
"""


def _check_effect(role: str) -> None:
    """Other roles, of which this one is a member, give it no more than it was granted."""
    with connection.cursor() as cursor:
        for table, rights in FEWER.items():
            for right in (*ALL, "TRUNCATE"):
                if right in rights:
                    continue
                cursor.execute("SELECT has_table_privilege(%s, %s, %s)", [role, connection.ops.quote_name(table), right])
                if cursor.fetchone()[0]:
                    raise ImproperlyConfigured(
                        f"AGENTHOST_RUNTIME_ROLE: {role!r} has {right} on {table} as a member of another role, which no grant to"
                        f" {role!r} limits. Name another role, or take it out of that one."
                    )
