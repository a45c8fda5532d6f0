"""Removes the rows of deleted sessions, in small batches."""

from __future__ import annotations

from django.db import connection

from sessions_app.core.log import journal
from sessions_app.models import Session

BATCH = 1000
TABLES_OF_SESSION = (
    "sessions_app_searchtext",
    "sessions_app_message",
    "sessions_app_toolcall",
    "sessions_app_fileversion",
    "sessions_app_sessiondiffs",
    "sessions_app_compaction",
    "sessions_app_optionvalue",
    "sessions_app_form",
    "sessions_app_pendingmessage",
    "sessions_app_deferredmodel",
    "sessions_app_sessionclient",
    "sessions_app_address",
    "sessions_app_turnattempt",
    "sessions_app_turn",
)


def remove_session(session: int) -> bool:
    """Delete the rows of a deleted session in small batches, so that no other transaction waits long."""
    with connection.cursor() as cursor:
        for table in TABLES_OF_SESSION:
            while True:
                cursor.execute(
                    f"delete from {table} where id in (select id from {table} where session_id = %s limit {BATCH})", [session]
                )
                if cursor.rowcount < BATCH:
                    break
        cursor.execute(
            "delete from sessions_app_usagetotal where measure = 'session' and key_id = %s"
            " and tenant_id = (select tenant_id from sessions_app_session where id = %s)",
            [session, session],
        )
    journal.forget_session(session)
    Session.with_deleted.filter(pk=session, deleted_at__isnull=False).delete()
    return True
