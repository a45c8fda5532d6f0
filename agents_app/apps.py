"""The agents application: no models, only commands and the registry."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents_app"

    def ready(self) -> None:
        from django.conf import settings

        from agents_app.providers import credentials

        credentials.set_defaults(getattr(settings, "AGENTHOST_PROVIDER_KEYS", {}))
