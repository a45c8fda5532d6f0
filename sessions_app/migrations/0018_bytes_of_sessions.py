"""Counts what each session has stored, for the limit of one session."""

from typing import Any

from django.db import migrations

from sessions_app.migrations._batches import InBatches

_MESSAGES = """
insert into sessions_app_usagetotal (tenant_id, key_id, measure, day, amount)
select m.tenant_id, m.session_id, 'session', {day}, sum({content} + coalesce({provider_data}, 0))
from sessions_app_message m join sessions_app_session s on s.id = m.session_id
where s.id > %s and s.id <= %s and s.deleted_at is null group by m.tenant_id, m.session_id
on conflict do nothing
"""


def count(connection: Any, after: int, upto: int) -> None:
    postgres = connection.vendor == "postgresql"
    length = "octet_length(m.{})" if postgres else "length(cast(m.{} as blob))"
    columns = {name: length.format(name) for name in ("content", "provider_data")}
    with connection.cursor() as cursor:
        cursor.execute(_MESSAGES.format(day="date '1970-01-01'" if postgres else "'1970-01-01'", **columns), [after, upto])


def forget(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("delete from sessions_app_usagetotal where measure = 'session'")


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("sessions_app", "0017_measure_of_sessions")]

    operations = [InBatches("0018_bytes_of_sessions", "sessions_app_session", count, forget)]
