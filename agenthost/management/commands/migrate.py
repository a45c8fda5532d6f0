"""Django's migrate, which refuses databases of other programs and of newer releases, and stores markers of schema and keys.

With AGENTHOST_RUNTIME_ROLE it grants that role the privileges of the server's processes at the end.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.core.management.commands import migrate

from agenthost import startup_checks
from agenthost.postgres import roles
from sessions_app.core.records import database_checks


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            startup_checks.check_before_migrating()
            # Before the first migration, because processes of the previous release still run meanwhile.
            database_checks.allow_previous_release()
            super().handle(*args, **options)
            if database_checks.schema_fault() is None:
                startup_checks.check()
            if settings.AGENTHOST_RUNTIME_ROLE:
                roles.grant(settings.AGENTHOST_RUNTIME_ROLE)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
