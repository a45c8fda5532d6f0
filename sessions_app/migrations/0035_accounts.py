import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

ROLES = [("owner", "Owner"), ("developer", "Developer"), ("reader", "Reader")]


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("sessions_app", "0034_previews_and_attached_files"),
    ]

    operations = [
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("role", models.CharField(choices=ROLES, max_length=16)),
                (
                    "email",
                    models.EmailField(blank=True, default="", help_text="Where the link was mailed, if it was.", max_length=254),
                ),
                ("digest", models.CharField(editable=False, max_length=64, unique=True)),
                ("invited_by", models.CharField(help_text="The actor of the audit record.", max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("accepted_at", models.DateTimeField(blank=True, null=True)),
                ("accepted_by", models.CharField(blank=True, default="", max_length=200)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="invitations", to="sessions_app.tenant"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [models.Index(fields=["expires_at"], name="invitations_by_expiry")],
            },
        ),
        migrations.CreateModel(
            name="Member",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("role", models.CharField(choices=ROLES, max_length=16)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="members", to="sessions_app.tenant"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="memberships", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["tenant_id", "id"],
                "constraints": [models.UniqueConstraint(fields=("tenant", "user"), name="one_role_of_a_member")],
            },
        ),
        migrations.CreateModel(
            name="Staff",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("role", models.CharField(choices=[("operator", "Operator"), ("auditor", "Auditor")], max_length=16)),
                (
                    "reads_transcripts",
                    models.BooleanField(
                        default=False,
                        help_text="May read what users and models wrote. Each reading is recorded in the audit.",
                    ),
                ),
                (
                    "limited",
                    models.BooleanField(
                        default=False,
                        help_text="Sees these tenants only. Everything else of the server stays hidden. Without this: all tenants.",
                        verbose_name="only the tenants below",
                    ),
                ),
                ("tenants", models.ManyToManyField(blank=True, related_name="+", to="sessions_app.tenant")),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="staff", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={"verbose_name": "staff", "verbose_name_plural": "staff"},
        ),
    ]
