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


def _check(role: str) -> None:
    """The role exists and cannot grant itself more rights."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", [role])
        found = cursor.fetchone()
        if found is None:
            raise ImproperlyConfigured(
                f"AGENTHOST_RUNTIME_ROLE: there is no role {role!r}. Make it: CREATE ROLE \"{role}\" LOGIN PASSWORD '…'"
            )
        cursor.execute("SELECT current_user, pg_has_role(%s, current_user, 'MEMBER')", [role])
        owner, is_owner = cursor.fetchone()
    if found[0]:
        raise ImproperlyConfigured(f"AGENTHOST_RUNTIME_ROLE: {role!r} is a superuser, which no grant limits. Name another role.")
    if is_owner:
        raise ImproperlyConfigured(
            f"AGENTHOST_RUNTIME_ROLE: {role!r} is, or is a member of, {owner!r}, which owns the tables. Name another role."
        )
