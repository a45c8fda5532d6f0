"""Entry point for ASGI servers: ``agenthost.asgi:application``."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agenthost.settings")
django.setup(set_prefix=False)

# These modules read the settings when they are imported.
from agenthost.routing import application  # noqa: E402

__all__ = ["application"]
