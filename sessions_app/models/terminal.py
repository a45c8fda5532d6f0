"""Terminals: shells on pseudo-terminals, and the services that run them."""

from __future__ import annotations

from django.db import models

from sessions_app.models.address import LONGEST_URI
from sessions_app.models.tenant import Tenant


class TerminalState(models.TextChoices):
    REQUESTED = "requested"
    RUNNING = "running"
    EXITED = "exited"


class LiveTerminals(models.Manager["Terminal"]):
    """The default manager, which leaves out disposed terminals."""

    def get_queryset(self) -> models.QuerySet[Terminal]:
        return super().get_queryset().filter(disposed_at=None)


class Terminal(models.Model):
    """A terminal, from its creation until it is disposed. JSON columns are text.

    Its events are in the tenant's journal under the number ``journal_keys.of_terminal``. Sessions and workspaces are referred
    to without foreign keys, because their rows may be deleted before this one.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    public_id = models.CharField(max_length=64, unique=True)
    uri = models.CharField(max_length=LONGEST_URI)
    claim = models.TextField(help_text="JSON: who has the terminal (terminals.types.Claim).")
    claim_session = models.BigIntegerField(null=True, help_text="The row of the session that has the terminal.")
    agent = models.CharField(max_length=200, default="", help_text="That session's agent; empty: a client has the terminal.")
    line = models.BigIntegerField(help_text="The key line that created the terminal.")
    command = models.TextField(null=True, help_text="What the shell runs, instead of being interactive: an agent's command.")
    claim_call = models.TextField(null=True, help_text="The id of the tool call that waits for the command; null: none does.")
    network = models.TextField(null=True, help_text="JSON list: the hosts that the agent of the command may reach; null: none.")
    trace = models.TextField(null=True, help_text="The traceparent that the agent's command gets; null: without tracing.")
    workspace = models.BigIntegerField(null=True)
    title = models.TextField(default="")
    cwd = models.TextField(default="", help_text="A file: URI; empty: unknown.")
    cols = models.IntegerField()
    rows = models.IntegerField()
    state = models.CharField(max_length=16, choices=TerminalState.choices)
    exit_code = models.IntegerField(null=True)
    service = models.CharField(max_length=64, default="", help_text="The terminal service that runs it.")
    fence = models.IntegerField(default=0)
    requested_at = models.DateTimeField()
    exited_at = models.DateTimeField(null=True)
    disposed_at = models.DateTimeField(null=True)
    kept = models.BooleanField(
        default=False, db_default=False, help_text="It is disposed, and the end of its output is kept for its session's history."
    )

    objects = LiveTerminals()
    with_disposed: models.Manager[Terminal] = models.Manager()

    class Meta:
        base_manager_name = "with_disposed"
        constraints = [
            models.UniqueConstraint(fields=["tenant", "uri"], condition=models.Q(disposed_at=None), name="one_terminal_per_uri"),
        ]
        indexes = [
            models.Index(fields=["state", "id"], condition=models.Q(state__in=["requested", "running"]), name="terminal_live"),
            models.Index(fields=["claim_session"], condition=models.Q(claim_session__isnull=False), name="terminal_of_session"),
            models.Index(fields=["id"], condition=models.Q(claim_call__isnull=False), name="terminal_of_call"),
            models.Index(fields=["exited_at"], condition=models.Q(exited_at__isnull=False), name="terminal_exited"),
            models.Index(
                fields=["disposed_at"], condition=models.Q(disposed_at__isnull=False, kept=False), name="terminal_to_clear"
            ),
        ]

    def __str__(self) -> str:
        return self.uri


class TerminalScreen(models.Model):
    """What a terminal shows, as of the journal's number ``seq``; later events change it (terminals.screen).

    A table of its own, because it is large and written often.
    """

    terminal = models.OneToOneField(Terminal, on_delete=models.CASCADE, primary_key=True, related_name="+")
    content = models.TextField(default="[]", help_text="JSON list, in the order of the output.")
    detects = models.BooleanField(default=False, help_text="Whether the shell reports its commands.")
    seq = models.BigIntegerField(default=0)
    counted = models.IntegerField(default=0, db_default=0, help_text="Bytes of the content that the tenant's quota counts.")


class TerminalService(models.Model):
    """A process that runs terminals. It renews its row while it is alive; the row is deleted when it stops.

    ``fault``: why it cannot run terminals; empty if it can.
    """

    service = models.CharField(max_length=64, primary_key=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    seen_at = models.DateTimeField()
    lease_expires_at = models.DateTimeField()
    fault = models.TextField(default="")

    def __str__(self) -> str:
        return self.service
