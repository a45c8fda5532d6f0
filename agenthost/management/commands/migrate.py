"""Django's migrate, which refuses a database that is not ours to migrate and marks the one it has migrated.

With AGENTHOST_RUNTIME_ROLE it ends by giving that role what the server's processes need.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.core.management.commands import migrate

from agenthost import startup_checks
from agenthost.postgres import roles
from sessions_app.core.records import installation


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            startup_checks.check_before_migrating()
            # Before the first step, because processes of the previous release go on while it runs.
            installation.allow_previous_release()
            super().handle(*args, **options)
            if installation.schema_fault() is None:
                startup_checks.check()
            if settings.AGENTHOST_RUNTIME_ROLE:
                roles.grant(settings.AGENTHOST_RUNTIME_ROLE)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
