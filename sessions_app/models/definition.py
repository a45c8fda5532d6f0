"""Agent definitions, by digest: a turn uses the stored one, even if another agents file was loaded since."""

from __future__ import annotations

from django.db import models


class AgentDefinition(models.Model):
    """One definition of an agent, without code. ``sealed`` holds its secrets, encrypted."""

    digest = models.CharField(max_length=64, unique=True)
    agent_name = models.CharField(max_length=200)
    document = models.TextField(help_text="JSON of the definition, secrets left out.")
    sealed = models.BinaryField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.agent_name} {self.digest[:12]}"
