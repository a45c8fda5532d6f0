"""A session's update at each turn is a heap-only one, and a live turn has fewer indexes (decision 0049)."""

from django.db import migrations, models

from sessions_app.models.session import HourOf


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0022_leases_of_workers")]

    operations = [
        migrations.RemoveIndex("session", "session_idle"),
        migrations.RemoveIndex("turn", "turn_queue"),
        migrations.RemoveIndex("turn", "turn_leases"),
        migrations.RemoveIndex("turn", "turn_deadlines"),
        migrations.AddField(
            "session",
            "modified_hour",
            models.GeneratedField(
                expression=HourOf("modified_at"),
                output_field=models.IntegerField(),
                db_persist=True,
                help_text="For the index: with modified_at in it, each turn would write new entries into all indexes of the session.",
            ),
        ),
        migrations.AlterField(
            "turn",
            "lease_expires_at",
            models.DateTimeField(help_text="Null while the worker drives it: its worker's lease counts.", null=True),
        ),
        migrations.AddIndex(
            "session",
            models.Index(condition=models.Q(("deleted_at", None)), fields=["tenant", "modified_hour"], name="session_recent"),
        ),
        migrations.AddIndex(
            "turn",
            models.Index(
                condition=models.Q(("deadline_at__isnull", False), ("state__in", ["queued", "running"])),
                fields=["deadline_at"],
                name="turn_deadlines_set",
            ),
        ),
    ]
