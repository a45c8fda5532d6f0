"""Terminals, what they show, and the services that run them (decision 0056)."""

import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0026_workspaces"),
    ]

    operations = [
        migrations.CreateModel(
            name="Terminal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("public_id", models.CharField(max_length=64, unique=True)),
                ("uri", models.CharField(max_length=1000)),
                ("claim", models.TextField(help_text="JSON: who has the terminal (terminals.types.Claim).")),
                ("claim_session", models.BigIntegerField(help_text="The row of the session that has the terminal.", null=True)),
                (
                    "agent",
                    models.CharField(
                        default="", help_text="That session's agent; empty: a client has the terminal.", max_length=200
                    ),
                ),
                ("line", models.BigIntegerField(help_text="The key line that created the terminal.")),
                ("workspace", models.BigIntegerField(null=True)),
                ("title", models.TextField(default="")),
                ("cwd", models.TextField(default="", help_text="A file: URI; empty: unknown.")),
                ("cols", models.IntegerField()),
                ("rows", models.IntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[("requested", "Requested"), ("running", "Running"), ("exited", "Exited")], max_length=16
                    ),
                ),
                ("exit_code", models.IntegerField(null=True)),
                ("service", models.CharField(default="", help_text="The terminal service that runs it.", max_length=64)),
                ("fence", models.IntegerField(default=0)),
                ("requested_at", models.DateTimeField()),
                ("exited_at", models.DateTimeField(null=True)),
                ("disposed_at", models.DateTimeField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.tenant"
                    ),
                ),
            ],
            options={
                "base_manager_name": "with_disposed",
            },
            managers=[
                ("objects", django.db.models.manager.Manager()),
                ("with_disposed", django.db.models.manager.Manager()),
            ],
        ),
        migrations.CreateModel(
            name="TerminalService",
            fields=[
                ("service", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("host", models.CharField(max_length=200)),
                ("pid", models.IntegerField()),
                ("seen_at", models.DateTimeField()),
                ("lease_expires_at", models.DateTimeField()),
                ("fault", models.TextField(default="")),
            ],
        ),
        migrations.CreateModel(
            name="TerminalScreen",
            fields=[
                (
                    "terminal",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="sessions_app.terminal",
                    ),
                ),
                ("content", models.TextField(default="[]", help_text="JSON list, in the order of the output.")),
                ("detects", models.BooleanField(default=False, help_text="Whether the shell reports its commands.")),
                ("seq", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.AddIndex(
            model_name="terminal",
            index=models.Index(
                condition=models.Q(("state__in", ["requested", "running"])), fields=["state", "id"], name="terminal_live"
            ),
        ),
        migrations.AddIndex(
            model_name="terminal",
            index=models.Index(
                condition=models.Q(("claim_session__isnull", False)), fields=["claim_session"], name="terminal_of_session"
            ),
        ),
        migrations.AddIndex(
            model_name="terminal",
            index=models.Index(condition=models.Q(("exited_at__isnull", False)), fields=["exited_at"], name="terminal_exited"),
        ),
        migrations.AddIndex(
            model_name="terminal",
            index=models.Index(
                condition=models.Q(("disposed_at__isnull", False)), fields=["disposed_at"], name="terminal_disposed"
            ),
        ),
        migrations.AddConstraint(
            model_name="terminal",
            constraint=models.UniqueConstraint(
                condition=models.Q(("disposed_at", None)), fields=("tenant", "uri"), name="one_terminal_per_uri"
            ),
        ),
    ]
