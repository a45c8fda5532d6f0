"""Whether terminals can be created, and why not."""

from __future__ import annotations

from django.conf import settings
from django.db.models.functions import Now

from agents_app import installation
from sessions_app.core.base.errors import TerminalsUnavailable
from sessions_app.models import TerminalService

OFF = "terminals are off on this server (AGENTHOST_TERMINALS)"
NO_SERVICE = f"no terminal service is running ({installation.role('terminals')})"


def are_on() -> bool:
    """Whether this installation has terminals at all."""
    return bool(settings.AGENTHOST_TERMINALS)


def reason() -> str:
    """Why no terminal can be created; empty if one can."""
    if not are_on():
        return OFF
    alive = TerminalService.objects.filter(lease_expires_at__gte=Now()).order_by("fault")
    faults = list(alive.values_list("fault", flat=True)[:1])
    return faults[0] if faults else NO_SERVICE


def require() -> None:
    if why := reason():
        raise TerminalsUnavailable(why)
