"""The sessions application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.apps import AppConfig, apps

if TYPE_CHECKING:
    from agents_app.mcp.programs import Launcher


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Agenthost"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.conf import settings

        from agents_app.mcp import programs
        from sessions_app.core.records import conversation_facts
        from sessions_app.core.tenancy import account_audit
        from sessions_app.workspace import memory

        account_audit.connect_signals()
        conversation_facts.install()
        if apps.is_installed("allauth.mfa"):
            # Not in workers, where nobody signs in.
            from sessions_app.accounts import records

            records.connect()
        programs.install(_launcher)
        memory.set_budget(settings.AGENTHOST_SANDBOX_TOTAL_MEMORY_BYTES)


def _launcher() -> Launcher:
    # Loaded only where a program is started.
    from sessions_app.core.programs.launcher import SandboxLauncher

    return SandboxLauncher()
