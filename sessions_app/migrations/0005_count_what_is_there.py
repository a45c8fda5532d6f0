"""Counts the sessions and bytes that were stored before anything was counted."""

from datetime import date
from typing import Any

from django.db import migrations

STANDING = date(1970, 1, 1).isoformat()

_SESSIONS = """
insert into sessions_app_usagetotal (tenant_id, key_id, measure, day, amount)
select tenant_id, coalesce(created_by_id, 0), 'sessions', {day}, count(*)
from sessions_app_session where deleted_at is null group by tenant_id, coalesce(created_by_id, 0)
"""
_BYTES = """
insert into sessions_app_usagetotal (tenant_id, key_id, measure, day, amount)
select tenant_id, key_id, 'bytes', {day}, sum(size) from (
  select s.tenant_id, coalesce(s.created_by_id, 0) as key_id,
    {length}(s.client_tools{cast}) + coalesce({length}(s.tool_refs{cast}), 0)
    + coalesce((select sum({length}(m.content{cast}) + coalesce({length}(m.provider_data{cast}), 0))
        from sessions_app_message m where m.session_id = s.id), 0)
    + coalesce((select sum(coalesce({length}(o.value{cast}), 0) + coalesce({length}(o.sealed{cast}), 0))
        from sessions_app_optionvalue o where o.session_id = s.id), 0) as size
  from sessions_app_session s where s.deleted_at is null) sizes
group by tenant_id, key_id
"""


def count(apps: Any, schema_editor: Any) -> None:
    postgres = schema_editor.connection.vendor == "postgresql"
    day = f"date '{STANDING}'" if postgres else f"'{STANDING}'"
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(_SESSIONS.format(day=day))
        if postgres:
            cursor.execute(_BYTES.format(day=day, length="octet_length", cast=""))
        else:
            # Length counts characters of text, and bytes of a blob.
            by_bytes = _BYTES
            for column in ("s.client_tools", "s.tool_refs", "m.content", "m.provider_data", "o.value", "o.sealed"):
                by_bytes = by_bytes.replace(column + "{cast}", f"cast({column} as blob)")
            cursor.execute(by_bytes.format(day=day, length="length"))


def forget(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("delete from sessions_app_usagetotal")


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0004_quotas_and_retention")]

    operations = [migrations.RunPython(count, forget)]
