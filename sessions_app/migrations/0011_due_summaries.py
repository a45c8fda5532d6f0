import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0010_model_use'),
    ]

    operations = [
        migrations.CreateModel(
            name='DueSummary',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('asked_at', models.DateTimeField()),
                ('due', models.BooleanField(default=True)),
                ('worker', models.CharField(blank=True, default='', max_length=64)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('rest_until', models.DateTimeField(null=True)),
                ('session', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='sessions_app.session')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.tenant')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('due', True)), fields=['asked_at'], name='summary_due')],
            },
        ),
        # System messages stay however much of a conversation is left out: they are found without reading the rest.
        migrations.AddIndex(
            model_name='message',
            index=models.Index(condition=models.Q(('role', 'system')), fields=['session', 'position'], name='message_of_system'),
        ),
    ]
