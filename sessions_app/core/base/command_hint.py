"""How to run a management command with the Python of this process, for hints in messages."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def manage(arguments: str) -> str:
    """For example ``.venv/bin/python manage.py list_keys``; outside the checkout's own environment ``python manage.py …``."""
    python = Path(sys.executable)
    shown = python.relative_to(_ROOT) if python.is_relative_to(_ROOT) else "python"
    return f"{shown} manage.py {arguments}"
