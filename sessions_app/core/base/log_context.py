"""Context fields of log lines: the ids of the current request, tenant, session, turn, trace and span.

Public ids and numbers only, never content. The formatter that writes them is in ``agenthost``; the variables are here so
that the core can set them.
"""

from __future__ import annotations

from contextvars import Context, ContextVar

from agents_app import tracing

request_id: ContextVar[str] = ContextVar("agenthost_request_id", default="")
tenant: ContextVar[str] = ContextVar("agenthost_tenant", default="")
session: ContextVar[str] = ContextVar("agenthost_session", default="")
turn: ContextVar[str] = ContextVar("agenthost_turn", default="")

_VARIABLES = {"request": request_id, "tenant": tenant, "session": session, "turn": turn}


def bind(**facts: str | int) -> None:
    """Set the named fields (request, tenant, session, turn) for the rest of this task or thread."""
    for name, value in facts.items():
        _VARIABLES[name].set(str(value))


def adopt(context: Context) -> None:
    """Copy the fields that were set in another context, in which a part of this work ran."""
    for variable in _VARIABLES.values():
        if variable in context:
            variable.set(context[variable])


class about:  # noqa: N801 - used as a function: a class takes less memory than a generator
    """Set the named fields within the block."""

    __slots__ = ("_facts", "_tokens")

    def __init__(self, **facts: str | int) -> None:
        self._facts = facts

    def __enter__(self) -> None:
        self._tokens = [(_VARIABLES[name], _VARIABLES[name].set(str(value))) for name, value in self._facts.items()]

    def __exit__(self, *_error: object) -> None:
        for variable, token in reversed(self._tokens):
            variable.reset(token)


def facts() -> dict[str, str]:
    """The fields that are set now."""
    found = {name: value for name, variable in _VARIABLES.items() if (value := variable.get())}
    if (span := tracing.context()) is not None:
        # The names that OpenTelemetry gives them in logs.
        found["trace_id"], found["span_id"] = span.trace_id, span.span_id
    return found
