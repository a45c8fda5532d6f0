"""What of a developer's environment the servers of tests and benchmarks get: nothing that decides how they run."""

from __future__ import annotations

import os

_SETTINGS = ("AGENTHOST_", "DATABASE_URL", "REDIS_URL", "CELERY_", "DJANGO_", "PYTEST_ADDOPTS")
# Keys of vendors, and what leads to them: with one there is an agent more, and a real model could be asked.
_VENDORS = ("OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "AWS_", "HF_", "HEROKU_")
_KEY = "_API_KEY"


def inherited(*kept: str) -> dict[str, str]:
    """The environment without settings of ours and keys of vendors; ``kept`` names settings that stay."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not (name.startswith((*_SETTINGS, *_VENDORS)) or name.endswith(_KEY))
    }
