"""The full-text index of sessions, which housekeeping fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _Field = models.Field[str, str]
else:
    # Django's class is generic only for the type checker.
    _Field = models.Field


class WordsField(_Field):
    """The words of a text: a ``tsvector`` on Postgres, the text itself on SQLite, whose FTS5 table indexes it by triggers."""

    def db_type(self, connection: Any) -> str:
        return "tsvector" if connection.vendor == "postgresql" else "text"


class SearchText(models.Model):
    """The words of a stretch of a session's messages, or its title (``through`` 0). Never changed; refers without foreign keys.

    The indexes of the words are made by the migration that follows the table's.
    """

    tenant_id = models.BigIntegerField()
    session_id = models.BigIntegerField()
    through = models.PositiveIntegerField(help_text="The position of the last message in it; 0: the title.")
    title = models.TextField(null=True)
    words = WordsField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session_id", "through"], name="search_text_once")]
        indexes = [models.Index(fields=["tenant_id", "id"], name="search_text_of_tenant")]

    def __str__(self) -> str:
        return f"{self.session_id} through {self.through}"
