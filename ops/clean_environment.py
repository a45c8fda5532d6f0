"""The environment for the servers of tests and benchmarks: the caller's, without settings and vendors' keys."""

from __future__ import annotations

import os

_SETTINGS = ("AGENTHOST_", "DATABASE_URL", "REDIS_URL", "CELERY_", "DJANGO_", "PYTEST_ADDOPTS")
# With a vendor's key there would be one more agent, and a test could call a real model.
_VENDORS = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "AWS_", "HF_", "HEROKU_")
_KEY = "_API_KEY"


def inherited(*names: str) -> dict[str, str]:
    """The caller's environment without settings of Agenthost and vendors' keys; settings in ``names`` are included."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or not (name.startswith((*_SETTINGS, *_VENDORS)) or name.endswith(_KEY))
    }
