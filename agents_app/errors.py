"""Errors of agents, models and tools. Each carries facts; its text is built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class AgentError(Exception):
    """Base class of this package's errors."""


@dataclass(frozen=True, slots=True)
class FileFault:
    """One fault of an agents file: table, key and reason. ``line``: where it is, if that is known."""

    table: str
    key: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.table} {self.key}" if self.key else self.table
        return f"{place}: {self.reason}"


class AgentsFileError(AgentError):
    """The agents file has faults; nothing of it was loaded."""

    def __init__(self, path: str, faults: list[FileFault]) -> None:
        self.path, self.faults = path, faults
        shown = (str(fault) if fault.line is None else f"line {fault.line}: {fault}" for fault in faults)
        super().__init__(f"{path}: " + "; ".join(shown))


ProviderFault = Literal[
    "unavailable", "refused_request", "context_too_long", "declined", "timeout", "broken_stream", "configuration"
]
"""``refused_request``: the request was invalid; ``declined``: a guardrail of the vendor rejected its content."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Facts about a provider's error response, without any text of a user or a vendor.

    ``code``: the vendor's error code, made of short tokens. ``retry_after``: the seconds it asked for. ``attempts``: the
    number of requests. ``after_output``: part of the message had arrived. ``host``: of the address that was asked.
    """

    status: int | None = None
    code: str = ""
    retry_after: float | None = None
    attempts: int = 1
    after_output: bool = False
    host: str = ""


class ProviderError(AgentError):
    """The model's provider failed. ``detail`` is masked and for the log only, never for a client."""

    def __init__(self, fault: ProviderFault, detail: str = "", answered: Answered = Answered()) -> None:
        self.fault, self.detail, self.answered = fault, detail, answered
        super().__init__(f"provider {fault}: {detail}" if detail else f"provider {fault}")


class ToolFailed(AgentError):
    """A tool has no result. ``reason`` is short and can be shown to the model and the client."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class RunLost(AgentError):
    """The turn no longer belongs to this run: it was cancelled, ended or taken over."""
