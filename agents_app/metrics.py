"""Metrics of model providers and tools, as this process counts them; ``agenthost.metrics`` serves them to Prometheus.

Labels come from the agents file and from servers' answers, so their number is limited: see ``Names``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Counter, Histogram

from agents_app.errors import ToolFailed

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Buckets from a database's round trip to the longest run."""
OTHER = "other"


class Names:
    """A label's values: the first ``most`` names that are seen, and ``other`` for all later ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[str] = set()

    def __call__(self, name: str) -> str:
        if name not in self._seen:
            if len(self._seen) >= self._most:
                return OTHER
            self._seen.add(name)
        return name


agent = Names(200)
host = Names(100)
tool = Names(500)

PROVIDER_REQUESTS = Counter(
    "agenthost_provider_requests_total",
    "Requests to model providers, retries included, by host and how they ended: ok, cancelled, or the kind of the fault.",
    ["host", "outcome"],
)
PROVIDER_STATUSES = Counter(
    "agenthost_provider_refusals_total", "Answers of model providers with another status than 200, by host.", ["host", "status"]
)
PROVIDER_RETRIES = Counter(
    "agenthost_provider_retries_total", "Requests that repeat one that failed before its first output, by host.", ["host"]
)
PROVIDER_FIRST_OUTPUT = Histogram(
    "agenthost_provider_first_output_seconds",
    "Time from a request to a model provider to its first output, by host.",
    ["host"],
    buckets=SECONDS,
)
TOOL_CALLS = Counter(
    "agenthost_tool_calls_total", "Calls of the server's own tools and of MCP servers' tools, by tool.", ["tool", "outcome"]
)
TOOL_SECONDS = Histogram(
    "agenthost_tool_call_seconds", "Duration of calls of the server's tools, by tool.", ["tool"], buckets=SECONDS
)


@contextmanager
def tool_call(name: str) -> Iterator[None]:
    """Count and time a call of a tool: done, failed, or cancelled."""
    began, outcome = time.monotonic(), "cancelled"
    try:
        yield
        outcome = "done"
    except ToolFailed:
        outcome = "failed"
        raise
    finally:
        label = tool(name)
        TOOL_CALLS.labels(label, outcome).inc()
        TOOL_SECONDS.labels(label).observe(time.monotonic() - began)
