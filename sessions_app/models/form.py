"""Forms: questions of an agent to its user during a turn."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant
from sessions_app.models.turn import Turn


class Form(models.Model):
    """A form of a tool call. ``document`` is JSON: message, questions; ``answers`` JSON by question, drafts included."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="forms")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="forms")
    call_id = models.TextField()
    form_id = models.CharField(max_length=64)
    document = models.TextField()
    answers = models.TextField(default="{}")
    response = models.CharField(max_length=8, default="", help_text="accept, decline, cancel; empty: it is open.")
    place = models.PositiveIntegerField(default=0, db_default=0, help_text="Number of its turn's parts before it.")
    created_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "form_id"], name="form_once_a_session")]
        indexes = [models.Index(fields=["turn"], condition=models.Q(response=""), name="open_forms")]

    def __str__(self) -> str:
        return self.form_id
