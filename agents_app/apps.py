"""The agents application: no models, only commands and the registry."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents_app"

    def ready(self) -> None:
        from django.conf import settings

        from agents_app import images, object_references, tool_lists
        from agents_app.outbound import guard
        from agents_app.providers import credentials

        credentials.set_defaults(getattr(settings, "AGENTHOST_PROVIDER_KEYS", {}))
        guard.set_policy(settings.AGENTHOST_FETCH_POLICY)
        images.set_most_bytes(settings.AGENTHOST_IMAGE_BYTES)
        tool_lists.set_most_bytes(settings.AGENTHOST_TOOL_LIST_BYTES)
        # A worker continues turns of definitions that another process has loaded, and must find their code too.
        path = getattr(settings, "AGENTHOST_AGENTS_FILE", None)
        if path is not None:
            object_references.add_folder(path.parent)
