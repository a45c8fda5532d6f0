"""Divides the table of events into partitions, on Postgres. It takes milliseconds, whatever the number of events.

The events that exist become the partition 0. Nothing is copied or indexed again; a scan without locks that block anybody checks
that they all have that number. Can be repeated after any interruption.
"""

from typing import Any

from django.db import migrations, transaction

RING = (1, 2, 3, 4)
LOCK_TIMEOUT = "2s"
TRIES = 30

IS_DIVIDED = "select relkind = 'p' from pg_class where oid = to_regclass('event')"
HAS_CHECK = "select exists (select 1 from pg_constraint where conrelid = to_regclass('event') and conname = 'event_kept_is_0')"

SWAP = """
lock table event in access exclusive mode;
alter table event rename to event_kept;
alter index event_of_session rename to event_kept_of_session;
alter index event_run_start rename to event_kept_run_start;
create table event (like event_kept including defaults) partition by list (partition);
create index event_of_session on event (session_id, seq);
create index event_run_start on event (session_id, seq) where kind in ('turn_started', 'turn_resumed');
alter table event attach partition event_kept for values in (0);
alter table event_kept drop constraint event_kept_is_0;
"""
# All rows of a partition of the ring are removed at once, so vacuuming what was inserted would be for nothing.
ADD = """
create table event_ring_{number} partition of event for values in ({number}) with (autovacuum_vacuum_insert_threshold = -1);
alter table event_ring_{number} add primary key (tenant_id, seq);
"""


def partition(apps: Any, schema_editor: Any) -> None:
    connection = schema_editor.connection
    if connection.vendor != 'postgresql':
        return
    with connection.cursor() as cursor:
        cursor.execute(IS_DIVIDED)
        if cursor.fetchone()[0]:
            return
        cursor.execute(HAS_CHECK)
        if not cursor.fetchone()[0]:
            waiting_shortly(cursor, 'alter table event add constraint event_kept_is_0 check (partition = 0) not valid')
        cursor.execute('alter table event validate constraint event_kept_is_0')
        waiting_shortly(cursor, SWAP + ''.join(ADD.format(number=number) for number in RING))


def waiting_shortly(cursor: Any, statements: str) -> None:
    """Others queue behind a lock that waits, so each try waits for a short time only."""
    from django.db import OperationalError

    for left in reversed(range(TRIES)):
        try:
            with transaction.atomic(cursor.db.alias):
                cursor.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
                for statement in filter(None, map(str.strip, statements.split(';'))):
                    cursor.execute(statement)
            return
        except OperationalError as error:
            if getattr(error.__cause__, 'sqlstate', None) != '55P03' or not left:
                raise


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('sessions_app', '0057_event_partitions'),
    ]

    operations = [
        migrations.RunPython(partition, migrations.RunPython.noop),
    ]
