"""What can go wrong between an agent, its model and its tools. Facts first, text built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class AgentError(Exception):
    """Base of everything this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class FileFault:
    """One thing wrong with an agents file: where (table and key) and why."""

    table: str
    key: str
    reason: str

    def __str__(self) -> str:
        place = f"{self.table} {self.key}" if self.key else self.table
        return f"{place}: {self.reason}"


class AgentsFileError(AgentError):
    """The agents file cannot be used. Nothing of it was taken."""

    def __init__(self, path: str, faults: list[FileFault]) -> None:
        self.path, self.faults = path, faults
        super().__init__(f"{path}: " + "; ".join(str(fault) for fault in faults))


ProviderFault = Literal[
    "unavailable", "refused_request", "context_too_long", "declined", "timeout", "broken_stream", "configuration"
]
"""``refused_request``: it was malformed; ``declined``: a guardrail of the vendor's would not have its content."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a provider answered instead of a message, as facts that hold no text of anybody's.

    ``code`` is the vendor's, made of short tokens; ``retry_after`` what it asked for, in seconds; ``attempts`` how often
    it was asked; ``after_output``: part of the message had arrived.
    """

    status: int | None = None
    code: str = ""
    retry_after: float | None = None
    attempts: int = 1
    after_output: bool = False


class ProviderError(AgentError):
    """The model's provider failed. ``detail`` is for the log, masked; it never reaches a client."""

    def __init__(self, fault: ProviderFault, detail: str = "", answered: Answered = Answered()) -> None:
        self.fault, self.detail, self.answered = fault, detail, answered
        super().__init__(f"provider {fault}: {detail}" if detail else f"provider {fault}")


class ToolFailed(AgentError):
    """A tool did not give a result. ``reason`` is short and fit for the model and the client."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class RunLost(AgentError):
    """The turn no longer belongs to this run: it was cancelled, ended or taken over."""
