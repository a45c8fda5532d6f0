"""Two roles of Postgres: the one that migrates owns the tables, the one that runs may use them.

The running role can add and read audit records, and neither change nor delete them: whoever takes over a process of
the server cannot hide what was done with it. It reads the list of migrations and changes no schema.
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
    """Give ``role`` what running takes, on every table of this release, and take from it what is more."""
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
    """The role exists and could not give itself what it is not given."""
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
        raise ImproperlyConfigured(f"AGENTHOST_RUNTIME_ROLE: {role!r} is a superuser, whom no grant limits. Name another role.")
    if is_owner:
        raise ImproperlyConfigured(
            f"AGENTHOST_RUNTIME_ROLE: {role!r} is, or is a member of, {owner!r}, which owns the tables. Name another role."
        )
