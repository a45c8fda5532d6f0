"""The wiring as a Django application: its checks, its runserver."""

from __future__ import annotations

from django.apps import AppConfig


class AgenthostConfig(AppConfig):
    name = "agenthost"

    def ready(self) -> None:
        # Registers the checks, and makes our Celery application the one that tasks are sent through,
        # in every process. Nothing is started here: every management command passes through.
        from agenthost import celery, checks  # noqa: F401
