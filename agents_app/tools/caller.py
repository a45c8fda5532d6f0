"""The owner on whose behalf a tool runs, for fair sharing in builtin tools."""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar

fair_key: ContextVar[Hashable] = ContextVar("fair_key", default=None)
"""The owner by which shares are counted; set during each tool call, in its threads too."""
