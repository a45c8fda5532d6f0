"""The stored output of terminals counts as stored bytes."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0031_terminal_network")]

    operations = [
        migrations.AddField(
            model_name="terminalscreen",
            name="counted",
            field=models.IntegerField(db_default=0, default=0, help_text="Bytes of the content that the tenant's quota counts."),
        ),
    ]
