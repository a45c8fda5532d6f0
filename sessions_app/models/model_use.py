"""Model use: token counts and costs of each session's model calls, per day.

There are no foreign keys, because rows stay when the session, key or agent is deleted. Each row belongs to one session, so
sessions do not wait for each other's row locks.
"""

from __future__ import annotations

from django.db import models


class ModelUsePurpose(models.TextChoices):
    TURN = "turn"
    SUMMARY = "summary"


class ModelUse(models.Model):
    """All calls of one model on one day for one session, requested by one key."""

    tenant_id = models.BigIntegerField()
    day = models.DateField(help_text="In UTC.")
    session = models.CharField(max_length=256, help_text="Its public id.")
    key_id = models.BigIntegerField(default=0, help_text="0: nobody's.")
    agent = models.CharField(max_length=200)
    model = models.CharField(max_length=256, help_text="With its provider in front.")
    purpose = models.CharField(max_length=8, choices=ModelUsePurpose.choices)
    calls = models.BigIntegerField()
    input_tokens = models.BigIntegerField(help_text="All of them, those read from a cache included.")
    output_tokens = models.BigIntegerField()
    cache_read_tokens = models.BigIntegerField()
    cost_nano = models.BigIntegerField(null=True, help_text="In billionths of the price list's unit; null: no price was known.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "day", "session", "key_id", "agent", "model", "purpose"], name="model_use_once"
            ),
        ]
        indexes = [
            models.Index(fields=["day"], name="model_use_by_day"),
            models.Index(fields=["session"], name="model_use_of_session"),
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.model} {self.input_tokens}+{self.output_tokens}"
