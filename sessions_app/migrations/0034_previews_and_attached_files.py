from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0033_figures")]

    operations = [
        migrations.AddField(
            model_name="toolcall",
            name="preview",
            field=models.TextField(
                help_text="JSON of the changes that a client is asked to permit; null: none are shown.", null=True
            ),
        ),
        migrations.AddField(
            model_name="pendingmessage",
            name="files",
            field=models.TextField(help_text="JSON of the attached files: base64 by URI; null: none.", null=True),
        ),
    ]
