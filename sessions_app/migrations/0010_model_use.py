from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0009_shown_agents'),
    ]

    operations = [
        migrations.CreateModel(
            name='ModelUse',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tenant_id', models.BigIntegerField()),
                ('day', models.DateField(help_text='In UTC.')),
                ('session', models.CharField(help_text='Its public id.', max_length=256)),
                ('key_id', models.BigIntegerField(default=0, help_text="0: nobody's.")),
                ('agent', models.CharField(max_length=200)),
                ('model', models.CharField(help_text='With its provider in front.', max_length=256)),
                ('purpose', models.CharField(choices=[('turn', 'Turn'), ('summary', 'Summary')], max_length=8)),
                ('calls', models.BigIntegerField()),
                ('input_tokens', models.BigIntegerField(help_text='All of them, those read from a cache included.')),
                ('output_tokens', models.BigIntegerField()),
                ('cache_read_tokens', models.BigIntegerField()),
                ('cost_nano', models.BigIntegerField(help_text="In billionths of the price list's unit; null: no price was known.", null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['day'], name='model_use_by_day')],
                'constraints': [models.UniqueConstraint(fields=('tenant_id', 'day', 'session', 'key_id', 'agent', 'model', 'purpose'), name='model_use_once')],
            },
        ),
    ]
