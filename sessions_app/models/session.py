"""Sessions: conversations with an agent."""

from __future__ import annotations

from typing import Any

from django.db import models

from sessions_app.models.key import ApiKey
from sessions_app.models.tenant import Tenant
from sessions_app.models.workspace import Workspace


class HourOf(models.Func):
    """The number of a time's hour since 1970, by an expression that does not depend on the connection's time zone."""

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "floor(extract(epoch from %(expressions)s at time zone 'UTC') / 3600)::integer"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # Without minutes, because julianday rounds a time to milliseconds. 1970 began 2440587.5 days after its own epoch.
        # No comma with a space behind it: Django's introspection splits a table's SQL there.
        template = "cast(round((julianday(substr(%(expressions)s,1,13) || ':00') - 2440587.5) * 24) as integer)"
        return self.as_sql(compiler, connection, template=template, **context)


class LiveSessions(models.Manager["Session"]):
    """The default manager, which leaves out deleted sessions."""

    def get_queryset(self) -> models.QuerySet[Session]:
        return super().get_queryset().filter(deleted_at=None)


class Session(models.Model):
    """One conversation with one agent. JSON columns are text, because the order of members must be kept."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="sessions")
    public_id = models.CharField(max_length=64, unique=True)
    agent_name = models.CharField(max_length=200)
    tool_refs = models.TextField(null=True, help_text="JSON list of server tool references as last set; null: never set.")
    client_tools = models.TextField(default="[]", help_text="JSON list of the client's tools.")
    created_by = models.ForeignKey(ApiKey, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField()
    modified_at = models.DateTimeField()
    modified_hour = models.GeneratedField(
        expression=HourOf("modified_at"),
        output_field=models.IntegerField(),
        db_persist=True,
        help_text="For the index: with modified_at in it, each turn would write new entries into all indexes of the session.",
    )
    deleted_at = models.DateTimeField(null=True)
    title = models.TextField(null=True, help_text="Made from the first message or set by a client; null: neither yet.")
    read = models.BooleanField(default=False, db_default=False)
    read_forms = models.BigIntegerField(
        default=0, db_default=0, help_text="The newest form when it was read: one that came later makes it unread."
    )
    archived = models.BooleanField(default=False, db_default=False)
    chat_read = models.BooleanField(default=False, db_default=False, help_text="Of its chat, which AHP 1.0 marks apart from it.")
    chat_read_forms = models.BigIntegerField(default=0, db_default=0, help_text="As read_forms, of its chat.")
    draft = models.TextField(null=True, help_text="JSON of the message that a client has not sent yet; null: none.")
    approval = models.CharField(
        max_length=8,
        default="",
        db_default="",
        help_text="Whether host tools ask first: ask, auto; empty: nobody said, so they ask.",
    )
    directory = models.TextField(null=True, help_text="The URI of the folder that its client works in; null: nobody said.")
    workspace = models.ForeignKey(
        Workspace,
        on_delete=models.DO_NOTHING,
        null=True,
        db_index=False,
        db_constraint=False,
        related_name="sessions",
        help_text="Null: none yet. Its row is deleted after the sessions that refer to it.",
    )
    customizations = models.TextField(null=True, help_text="JSON list; null: none.")
    failures_seen_through = models.BigIntegerField(
        default=0, db_default=0, help_text="The last turn whose failure is no longer what the session shows."
    )

    objects = LiveSessions()
    with_deleted = models.Manager["Session"]()

    class Meta:
        base_manager_name = "with_deleted"
        indexes = [
            models.Index(fields=["tenant", "-created_at", "-id"], condition=models.Q(deleted_at=None), name="session_list"),
            models.Index(
                fields=["tenant", "agent_name", "-created_at", "-id"],
                condition=models.Q(deleted_at=None),
                name="session_of_agent",
            ),
            models.Index(fields=["-created_at", "-id"], condition=models.Q(deleted_at=None), name="session_newest"),
            models.Index(
                fields=["agent_name", "-created_at", "-id"], condition=models.Q(deleted_at=None), name="session_by_agent"
            ),
            models.Index(fields=["tenant", "modified_hour"], condition=models.Q(deleted_at=None), name="session_recent"),
            models.Index(fields=["workspace"], condition=models.Q(workspace__isnull=False), name="session_workspace"),
            models.Index(fields=["deleted_at"], condition=models.Q(deleted_at__isnull=False), name="session_deleted"),
        ]

    def __str__(self) -> str:
        return self.public_id
