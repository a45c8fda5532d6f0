"""Tool calls and their states. A state changes only by a conditional update."""

from __future__ import annotations

from django.db import models

from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant
from sessions_app.models.turn import Turn


class CallState(models.TextChoices):
    PENDING = "pending"
    GRANTED = "granted"
    RUNNING = "running"
    REVIEW = "review", "its result waits for a client's word"
    DENIED = "denied"
    DONE = "done"


OPEN_CALL_STATES = (CallState.PENDING, CallState.GRANTED, CallState.RUNNING, CallState.REVIEW)


class CallRunner(models.TextChoices):
    SERVER = "server"
    CLIENT = "client"
    NOBODY = "nobody"


class ToolCall(models.Model):
    """One tool call. ``turn`` is null for a call of a seed that was not answered yet.

    ``result`` is JSON text: the content of the tool's message (or of the later message, if a client answered while the turn
    was running). ``stored`` is true when that message is in the history.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=False, related_name="tool_calls")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, db_index=False, null=True, related_name="tool_calls")
    call_id = models.TextField()
    name = models.TextField()
    arguments = models.TextField(help_text="The argument text as the model wrote it.")
    runner = models.CharField(max_length=8, choices=CallRunner.choices)
    state = models.CharField(max_length=8, choices=CallState.choices, default=CallState.PENDING)
    step = models.PositiveIntegerField(default=0)
    ordinal = models.PositiveIntegerField(default=0, help_text="Its place among the calls of its message.")
    idempotent = models.BooleanField(default=False)
    failed = models.BooleanField(default=False)
    reason = models.TextField(blank=True, default="", help_text="Why it was denied, in the decider's words.")
    result = models.TextField(null=True)
    stored = models.BooleanField(default=False)
    decided_by = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    title = models.TextField(default="", db_default="", help_text="The tool's name for people; empty: the tool's name.")
    client = models.TextField(null=True, help_text="The session's client whose tool it is; null: nobody's, or an application's.")
    why = models.CharField(
        max_length=16, default="", db_default="", help_text="Why it may run: not-needed, setting, user-action."
    )
    option = models.TextField(default="", db_default="", help_text="The option that the decider chose.")
    how = models.CharField(
        max_length=16, default="", db_default="", help_text="How it was ended unrun: denied, skipped, result-denied."
    )
    suggestion = models.TextField(null=True, help_text="JSON of what the decider suggests instead.")
    outcome = models.TextField(null=True, help_text="JSON of a client's own account of its result.")
    shown = models.TextField(null=True, help_text="JSON of the content that a client shows while it runs.")
    edits = models.TextField(null=True, help_text="JSON of the files that it changed (file_edits.py); null: none.")
    preview = models.TextField(null=True, help_text="JSON of the changes that a client is asked to permit; null: none are shown.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "call_id"], name="call_id_once_a_session")]
        indexes = [
            models.Index(
                fields=["session", "step", "ordinal"],
                condition=models.Q(state__in=["pending", "granted", "running", "review"]),
                name="open_calls",
            ),
            models.Index(fields=["turn", "step", "ordinal"], name="call_of_turn"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.call_id}"
