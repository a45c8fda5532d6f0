"""How many bytes of what clients send this process holds, in all and per tenant."""

from __future__ import annotations

from django.conf import settings

from sessions_app.core.base.byte_budget import ByteBudget

OF_PROCESS = ByteBudget(lambda: int(settings.AGENTHOST_BODIES_BYTES))
"""Bodies of requests and messages of WebSockets."""
