"""The call that a builtin tool serves: its owner, for fair shares, and the file edits that it makes."""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar

from agents_app.runtime.interface import FileEdit

fair_key: ContextVar[Hashable] = ContextVar("fair_key", default=None)
"""The owner by which shares are counted; set during each tool call, in its threads too."""

edits: ContextVar[list[FileEdit] | None] = ContextVar("edits", default=None)
"""The edits of the call in progress, in order; the loop reports them with the call's result."""
