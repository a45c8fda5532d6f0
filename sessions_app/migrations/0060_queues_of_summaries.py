from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0059_queues'),
    ]

    operations = [
        migrations.AddField(
            model_name='duesummary',
            name='queue',
            field=models.CharField(db_default='default', default='default', help_text='Only workers that serve it claim the summary.', max_length=40),
        ),
    ]
