"""For whom a tool runs: what a builtin tool shares out fairly by."""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar

fair_key: ContextVar[Hashable] = ContextVar("fair_key", default=None)
"""The key that shares are counted by; set while a tool of a run is called, in its threads too."""
