"""The agents application: no models, only commands and the registry."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents_app"
