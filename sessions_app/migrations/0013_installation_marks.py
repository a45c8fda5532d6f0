from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0012_scopes_are_rights'),
    ]

    operations = [
        migrations.CreateModel(
            name='InstallationMark',
            fields=[
                ('name', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('value', models.TextField()),
                ('updated_at', models.DateTimeField()),
            ],
        ),
    ]
