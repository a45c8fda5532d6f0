"""The call that a builtin tool serves: its owner, for fair shares, its limits, and what it reports besides its result."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from agents_app.runtime.interface import CommandResult, FileEdit

fair_key: ContextVar[Hashable] = ContextVar("fair_key", default=None)
"""The owner by which shares are counted; set during each tool call, in its threads too."""

edits: ContextVar[list[FileEdit] | None] = ContextVar("edits", default=None)
"""The edits of the call in progress, in order; the loop reports them with the call's result."""

seen: ContextVar[Mapping[str, str | None]] = ContextVar("seen", default=MappingProxyType({}))
"""The files that a client saw before it permitted the call in progress, as in ``Call.seen``."""


class CurrentCall(Protocol):
    """The call in progress, for a tool that runs something which clients can watch."""

    @property
    def call_id(self) -> str: ...

    async def show_terminal(self, resource: str, title: str, *, stays: bool = False, result: CommandResult | None = None) -> None:
        """Refer clients to a terminal while the call runs. ``stays``: after its end too.

        ``result``: of the command that ran there, for the call's result; without ``stays`` the terminal is gone then.
        """
        ...


current_call: ContextVar[CurrentCall | None] = ContextVar("current_call", default=None)


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one call."""

    seconds: float
    output_bytes: int


allowance: ContextVar[Allowance | None] = ContextVar("allowance", default=None)
"""The limits of the call in progress, for tools that keep them themselves."""
