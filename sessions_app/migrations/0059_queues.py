from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0058_partition_events'),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='queue',
            field=models.CharField(db_default='default', default='default', help_text='Only workers that serve it claim the turn.', max_length=40),
        ),
    ]
