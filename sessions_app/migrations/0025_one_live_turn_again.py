"""Restores the constraint of one live turn for each session: on Postgres, 0020 dropped it with the index of its column."""

from django.db import migrations

CREATE = """
create unique index if not exists one_live_turn_a_session on sessions_app_turn (session_id)
where state in ('queued', 'running', 'waiting')
"""


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0024_room_for_session_updates")]

    operations = [migrations.RunSQL(CREATE, migrations.RunSQL.noop)]
