from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0060_queues_of_summaries'),
    ]

    operations = [
        migrations.AddField(
            model_name='workerpresence',
            name='queues',
            field=models.TextField(db_default='default', default='default', help_text='The queues that it serves, with commas between them; *: all.'),
        ),
    ]
