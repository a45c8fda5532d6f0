from django.db import migrations, models

from sessions_app.migrations._concurrent import AddIndexConcurrently


class Migration(migrations.Migration):

    # The index is built while others write.
    atomic = False

    dependencies = [
        ('sessions_app', '0061_queues_of_workers'),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='turn',
            index=models.Index(condition=models.Q(('state', 'queued')), fields=['queue', 'tenant', 'queued_at', 'id'], name='turn_queued_in_pool'),
        ),
    ]
