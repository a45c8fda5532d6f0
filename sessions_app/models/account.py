"""What accounts may do: members of tenants, staff, and invitations. An account is a user of django.contrib.auth."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from sessions_app.models.tenant import Tenant


class Role(models.TextChoices):
    """A member's role in one tenant. sessions_app.core.tenancy.rights has the rights of each."""

    OWNER = "owner"
    DEVELOPER = "developer"
    READER = "reader"


class StaffRole(models.TextChoices):
    """The role of an account that may use the admin. Superusers need none."""

    OPERATOR = "operator"
    AUDITOR = "auditor"


class Member(models.Model):
    """An account's role in a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["tenant_id", "id"]
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="one_role_of_a_member")]

    def __str__(self) -> str:
        return f"{self.role} of tenant {self.tenant_id}"


class Staff(models.Model):
    """An account's role in the admin."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="staff")
    role = models.CharField(max_length=16, choices=StaffRole.choices)
    reads_transcripts = models.BooleanField(
        default=False, help_text="May read what users and models wrote. Each reading is recorded in the audit."
    )
    limited = models.BooleanField(
        "only the tenants below",
        default=False,
        help_text="Sees these tenants only. Everything else of the server stays hidden. Without this: all tenants.",
    )
    tenants = models.ManyToManyField(Tenant, blank=True, related_name="+")

    class Meta:
        verbose_name = verbose_name_plural = "staff"

    def __str__(self) -> str:
        return self.role


class Invitation(models.Model):
    """A link with which one person becomes a member of a tenant. Only the hash of the link's token is stored."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=16, choices=Role.choices)
    email = models.EmailField(blank=True, default="", help_text="Where the link was mailed, if it was.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    invited_by = models.CharField(max_length=200, help_text="The actor of the audit record.")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.CharField(max_length=200, blank=True, default="")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["expires_at"], name="invitations_by_expiry")]

    def __str__(self) -> str:
        return f"invitation {self.pk}"
