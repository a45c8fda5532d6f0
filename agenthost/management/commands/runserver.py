"""daphne's runserver, which in embedded mode also runs turns. For development only; use ops/entrypoint to serve.

daphne is one of the development packages; without it the command says how to install them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from agenthost import security_warnings, startup_checks

_HAS_DAPHNE = find_spec("daphne") is not None
if _HAS_DAPHNE:
    from daphne.management.commands.runserver import Command as Runserver
else:
    from django.core.management.commands.runserver import Command as Runserver


class Command(Runserver):  # type: ignore[misc]  # daphne has no types
    def handle(self, *args: Any, **options: Any) -> None:
        if not _HAS_DAPHNE:
            raise CommandError("runserver needs daphne: run ops/bootstrap --dev. ops/quickstart serves without it.")
        super().handle(*args, **options)

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

        services = WorkerServices()
        services.start()
        try:
            super().inner_run(*args, **options)
        finally:
            # A short grace, because the autoreloader restarts often. The new process takes over the runs.
            services.stop(grace=1.0)
