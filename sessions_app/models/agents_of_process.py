"""What each process serves: when it loaded its agents, and why a later attempt failed."""

from __future__ import annotations

from django.db import models


class AgentsOfProcess(models.Model):
    """What each web and worker that is alive serves; rows of others are deleted after some minutes."""

    process = models.CharField(max_length=64, primary_key=True)
    role = models.CharField(max_length=20)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    digest = models.CharField(max_length=64, help_text="Of all agents: processes with the same one serve the same agents.")
    loaded_at = models.DateTimeField()
    tried_at = models.DateTimeField(help_text="When the files were last read; later than the load if that failed.")
    fault = models.TextField(default="", db_default="", help_text="Why the last attempt failed; empty if it did not.")
    streams = models.IntegerField(
        default=0, db_default=0, help_text="Its open streams and connections of clients, when it was seen."
    )
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["role", "host", "pid"]

    def __str__(self) -> str:
        return self.process
