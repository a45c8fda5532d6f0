"""Budget of bytes received from clients that this process buffers, in total and per tenant."""

from __future__ import annotations

from django.conf import settings

from sessions_app.core.base.byte_budget import ByteBudget

BUDGET = ByteBudget(lambda: int(settings.AGENTHOST_BODIES_BYTES))
"""Counts request bodies and WebSocket messages."""
