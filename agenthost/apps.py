"""Django application config: registers system checks and the Celery application."""

from __future__ import annotations

from django.apps import AppConfig


class AgenthostConfig(AppConfig):
    name = "agenthost"

    def ready(self) -> None:
        # Importing registers the checks and makes our Celery application the default one in every process.
        # Starts nothing, because every management command runs this method.
        from agenthost import celery, checks  # noqa: F401
