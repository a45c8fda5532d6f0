"""daphne's runserver, which in embedded mode also runs turns. For development only; use ops/entrypoint to serve."""

from __future__ import annotations

from typing import Any

from daphne.management.commands.runserver import Command as DaphneRunserver
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from agenthost import security_warnings, startup_checks


class Command(DaphneRunserver):  # type: ignore[misc]  # daphne has no types
    def inner_run(self, *args: Any, **options: Any) -> None:
        try:
            startup_checks.check()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        security_warnings.log_warnings()
        if settings.AGENTHOST_MODE != "embedded":
            super().inner_run(*args, **options)
            return
        from agenthost.worker_services import WorkerServices

        services = WorkerServices(beat=True)
        services.start()
        try:
            super().inner_run(*args, **options)
        finally:
            # A short grace, because the autoreloader restarts often. The new process takes over the runs.
            services.stop(grace=1.0)
