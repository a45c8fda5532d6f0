"""One lease row per worker, whose renewals are heap-only updates (decision 0049)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0021_check_keys_at_once")]

    operations = [
        migrations.AddField("workerpresence", "lease_expires_at", models.DateTimeField(null=True)),
        migrations.AlterField("workerpresence", "seen_at", models.DateTimeField()),
    ]
