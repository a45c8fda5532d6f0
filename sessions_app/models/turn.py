"""Turns: from a user message until the agent's work on it is done. The table is also the queue."""

from __future__ import annotations

from django.db import models

from sessions_app.models.definition import AgentDefinition
from sessions_app.models.key import ApiKey
from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant

TURN_FORMAT = 8
"""The newest turn format that this code knows. Workers leave turns with a newer format to newer workers.

2: the agent's definition uses fields that format 1 does not have (``agents_app.spec.FIELDS_SINCE``). 3: MCP servers as
programs. 4: the network of commands. 5: rules of access to files. 6: a model of the turn's own. 7: a turn that was reopened: its
model must not get the messages that failed attempts left unfinished. 8: a turn of a named queue."""
TURN_WITH_MODEL = 6
REOPENED_FORMAT = 7
NAMED_QUEUE_FORMAT = 8
DEFAULT_QUEUE = "default"


class TurnState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    ERROR = "error"
    CANCELLED = "cancelled"


LIVE_STATES = (TurnState.QUEUED, TurnState.RUNNING, TurnState.WAITING)


class Turn(models.Model):
    """One turn.

    ``run``: the number of the current run (the first request is 1, each answer that resumes the turn adds one).
    ``fence``: a run's writes with another fence than the row's are refused. ``parts``: the output in stream order; a call's
    part only refers to its ToolCall row.

    This table and those of messages and calls are written at every turn, so they have no index that is a prefix of another,
    and no constraint on the tenant, which is always the session's (docs/decisions/0043).
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_index=False, related_name="turns")
    api_key = models.ForeignKey(
        ApiKey, on_delete=models.SET_NULL, null=True, db_index=False, related_name="+", help_text="Who asked for this run."
    )
    public_id = models.CharField(max_length=256, help_text="Made by the server or chosen by a client; once a session.")
    definition = models.ForeignKey(AgentDefinition, on_delete=models.PROTECT, db_index=False, related_name="+")
    format = models.PositiveSmallIntegerField(default=1)
    state = models.CharField(max_length=16, choices=TurnState.choices, default=TurnState.QUEUED)
    stop_reason = models.CharField(max_length=16, blank=True, default="")
    error = models.CharField(max_length=64, blank=True, default="", help_text="A short public code, never a provider's words.")
    failure = models.TextField(null=True, help_text="JSON of why it failed, as facts for operators; null: the code says it all.")
    run = models.PositiveIntegerField(default=1)
    step = models.PositiveIntegerField(default=0, help_text="Model calls begun so far.")
    parts = models.TextField(default="[]")
    fence = models.IntegerField(default=0)
    worker = models.CharField(max_length=64, blank=True, default="")
    lease_expires_at = models.DateTimeField(null=True, help_text="Null while the worker drives it: its worker's lease counts.")
    takeovers = models.PositiveSmallIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cache_read_tokens = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    queued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    provider_closed_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True, help_text="When this run is stopped, if the client set a deadline for it.")
    said = models.TextField(
        null=True, help_text="JSON of the user's message as its client wrote it, if the model gets it otherwise."
    )
    began = models.TextField(
        null=True, help_text="When it began, as text: by the clock of the client that started it, or the server's."
    )
    duration_ms = models.BigIntegerField(
        null=True, help_text="As measured by who ended it; null: it is live, or was cut while live."
    )
    model = models.TextField(null=True, help_text="The model that its message names, or that clients are shown; null: none.")
    model_named = models.BooleanField(
        default=False, db_default=False, help_text="Its message names the model, which counts instead of the session's."
    )
    client = models.TextField(null=True, help_text="The AHP client whose message started it; null: none did.")
    attention = models.BooleanField(
        default=False, db_default=False, help_text="The session has, or had, pending messages or clients: the run has to look."
    )
    cut_at = models.DateTimeField(null=True, help_text="Truncated away: in no history any more.")
    resumable = models.BooleanField(
        default=False, db_default=False, help_text="It failed, and could go on from its last finished step."
    )
    attempt = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="One more each time that it was reopened; the failed ones have rows of their own."
    )
    chat_modified = models.TextField(
        null=True,
        help_text="The time that the chat showed when it was last reopened. Empty: cut, and an older turn was reopened since.",
    )

    queue = models.CharField(
        max_length=40, default=DEFAULT_QUEUE, db_default=DEFAULT_QUEUE, help_text="Only workers that serve it claim the turn."
    )
    trace = models.TextField(
        null=True, help_text="Its place in a distributed trace (core/base/traces.py); null: it was accepted without tracing."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "public_id"], name="turn_once_a_session"),
            models.UniqueConstraint(
                fields=["session"], condition=models.Q(state__in=["queued", "running", "waiting"]), name="one_live_turn_a_session"
            ),
        ]
        indexes = [
            models.Index(
                fields=["deadline_at"],
                condition=models.Q(state__in=["queued", "running"], deadline_at__isnull=False),
                name="turn_deadlines_set",
            ),
            models.Index(
                fields=["tenant", "state", "queued_at"], condition=models.Q(state__in=["queued", "running"]), name="turn_in_work"
            ),
            # A claim reads the queued turns of its queues alone, in the order in which it wants them (docs/decisions/0103).
            models.Index(
                fields=["queue", "tenant", "queued_at", "id"], condition=models.Q(state="queued"), name="turn_queued_in_pool"
            ),
            models.Index(fields=["worker"], condition=models.Q(state="running"), name="turn_of_worker"),
            models.Index(fields=["session", "id"], name="turn_of_session"),
            models.Index(fields=["tenant", "-id"], condition=models.Q(state="error"), name="turn_failed"),
            # One more entry at a turn's end, for the figures (docs/decisions/0075).
            models.Index(fields=["ended_at"], condition=models.Q(ended_at__isnull=False), name="turn_ended"),
        ]

    def __str__(self) -> str:
        return self.public_id


class TurnAttempt(models.Model):
    """How a turn had failed before it was reopened. Written in the transaction that reopens it, and never changed.

    Its references have no constraints in the database, so that the previous release can delete turns that have such rows.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, db_constraint=False, related_name="+")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, db_index=False, db_constraint=False, related_name="attempts")
    number = models.PositiveSmallIntegerField()
    place = models.PositiveIntegerField(help_text="Number of its turn's parts at its end.")
    run = models.PositiveIntegerField(help_text="Its last run.")
    key_id = models.BigIntegerField(default=0, help_text="The key that asked for that run; 0: none.")
    error = models.CharField(max_length=64)
    failure = models.TextField(null=True)
    ended_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["turn", "number"], name="attempt_once_a_turn")]
        indexes = [models.Index(fields=["ended_at"], name="attempt_ended")]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.turn_id}"
