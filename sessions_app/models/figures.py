"""Aggregates over time, for the operator's pages: what turns, models and the server did in each minute and hour.

There are no foreign keys, because figures of deleted sessions stay; deleting a tenant deletes its figures too. Only
housekeeping writes these tables.
"""

from __future__ import annotations

from django.db import models

MINUTE, HOUR = 60, 3600
"""The widths of buckets, in seconds."""


class TurnFigures(models.Model):
    """The turns that ended in one bucket, for one tenant, key and agent.

    Tenant 0 is the sum of all. Key -1 and an empty agent: the sum of those that had no place of their own. JSON columns:
    ``outcomes`` and ``causes`` are counts by name; ``first`` and ``took`` are histograms (core/figures/histograms.py).
    """

    width = models.PositiveSmallIntegerField()
    at = models.DateTimeField(help_text="The start of the bucket.")
    tenant_id = models.BigIntegerField()
    key_id = models.BigIntegerField()
    agent = models.CharField(max_length=200)
    turns = models.BigIntegerField()
    errors = models.BigIntegerField()
    outcomes = models.TextField()
    causes = models.TextField()
    first = models.TextField(help_text="Time from the request to the first piece of output.")
    took = models.TextField(help_text="Time from the request to the end, of turns that never waited for their client.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["width", "at", "tenant_id", "key_id", "agent"], name="turn_figures_once"),
        ]

    def __str__(self) -> str:
        return f"{self.at} {self.turns}"


class UseFigures(models.Model):
    """The model calls that were counted in one bucket, for one tenant, key, agent and model. Tenant 0 is the sum of all."""

    width = models.PositiveSmallIntegerField()
    at = models.DateTimeField()
    tenant_id = models.BigIntegerField()
    key_id = models.BigIntegerField()
    agent = models.CharField(max_length=200)
    model = models.CharField(max_length=256)
    calls = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cache_read_tokens = models.BigIntegerField()
    cost_nano = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["width", "at", "tenant_id", "key_id", "agent", "model"], name="use_figures_once"),
        ]

    def __str__(self) -> str:
        return f"{self.at} {self.calls}"


class UseCounted(models.Model):
    """How much of a day's model use is in ``UseFigures`` already."""

    day = models.DateField()
    tenant_id = models.BigIntegerField()
    key_id = models.BigIntegerField()
    agent = models.CharField(max_length=200)
    model = models.CharField(max_length=256)
    calls = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cache_read_tokens = models.BigIntegerField()
    cost_nano = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["day", "tenant_id", "key_id", "agent", "model"], name="use_counted_once"),
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.calls}"


class ServerFigures(models.Model):
    """Samples of the server in one bucket. ``gauges``: JSON of ``{name: [sum, samples, greatest]}``."""

    width = models.PositiveSmallIntegerField()
    at = models.DateTimeField()
    gauges = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["width", "at"], name="server_figures_once")]

    def __str__(self) -> str:
        return f"{self.at}"


class FiguresMark(models.Model):
    """Up to when something was counted, by its name."""

    name = models.CharField(max_length=40, primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} {self.at}"
