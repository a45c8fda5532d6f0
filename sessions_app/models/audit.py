"""The audit log: who did what, when, to what and from where, and the chain that proves that nothing was changed."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from sessions_app.models.tenant import Tenant


class AuditRecord(models.Model):
    """One audit record; never changed. It outlives the rows it is about, so it refers to them by name."""

    tenant = models.ForeignKey(Tenant, on_delete=models.DO_NOTHING, db_constraint=False, null=True, related_name="+")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.CharField(max_length=200)
    action = models.CharField(max_length=64)
    target = models.CharField(max_length=300)
    address = models.CharField(max_length=64, blank=True, default="")
    detail = models.TextField(blank=True, default="")
    uid = models.UUIDField(null=True, unique=True, editable=False)
    mac = models.CharField(
        max_length=80, null=True, editable=False, help_text="Number of the audit key, and the keyed hash of the other columns."
    )

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["actor", "-at"], name="audit_of_actor"),
            models.Index(fields=["target", "-at"], name="audit_of_target"),
            models.Index(fields=["action", "-at", "-id"], name="audit_of_action"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.target}"


class AuditKey(models.Model):
    """The key of the hashes, sealed with the key ring. Replacing the ring's keys does not touch the chain."""

    sealed = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"audit key {self.pk}"


class AuditLink(models.Model):
    """The place of a record in the chain of its tenant, or of the server (chain 0). Only inserted, in order."""

    chain = models.BigIntegerField()
    number = models.BigIntegerField()
    record = models.BigIntegerField(unique=True)
    unsigned = models.BooleanField(help_text="The record had no hash of its own: a release before the chain wrote it.")
    hash = models.CharField(max_length=80)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain", "number"], name="one_link_of_a_number")]

    def __str__(self) -> str:
        return f"{self.chain}:{self.number}"


class AuditSeal(models.Model):
    """The end of a chain at the end of a day."""

    chain = models.BigIntegerField()
    day = models.DateField(help_text="In UTC.")
    number = models.BigIntegerField()
    hash = models.CharField(max_length=80)
    mac = models.CharField(max_length=80)
    pruned = models.CharField(max_length=80, blank=True, default="", help_text="Set when the records up to here were deleted.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain", "day"], name="one_seal_a_day")]

    def __str__(self) -> str:
        return f"{self.chain} {self.day}"


class AuditHead(models.Model):
    """The present end of a chain."""

    chain = models.BigIntegerField(primary_key=True)
    number = models.BigIntegerField()
    hash = models.CharField(max_length=80)
    mac = models.CharField(max_length=80)

    def __str__(self) -> str:
        return f"{self.chain}:{self.number}"


class AuditSink(models.Model):
    """How far another system has got the audit. Its position may be older than what it has, never newer."""

    name = models.CharField(max_length=20, primary_key=True)
    link = models.BigIntegerField(default=0, db_default=0, help_text="The last link that it took.")
    failures = models.IntegerField(default=0, db_default=0, help_text="Attempts that failed since the last one that did not.")
    retry_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, default="", db_default="")
    sent_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name
