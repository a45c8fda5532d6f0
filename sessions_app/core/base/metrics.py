"""Metrics of the domain, as this process counts them; ``agenthost.metrics`` serves them to Prometheus.

No metric has a tenant, a session or a key as a label: their number has no limit, and who may see metrics may not see tenants.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from agents_app.metrics import SECONDS
from agents_app.metrics import agent as agent  # noqa: PLC0414

_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)

TURNS_STARTED = Counter("agenthost_turns_started_total", "Turns that were accepted, by agent.", ["agent"])
TURNS_ENDED = Counter("agenthost_turns_ended_total", "Turns that ended, by agent and outcome.", ["agent", "outcome"])
TURN_SECONDS = Histogram(
    "agenthost_turn_seconds",
    "Time from a turn's acceptance to its end, waiting for clients included, by agent.",
    ["agent"],
    buckets=SECONDS,
)
FIRST_OUTPUT = Histogram(
    "agenthost_turn_first_output_seconds",
    "Time from a turn's acceptance to its first text, thinking or tool call, by agent.",
    ["agent"],
    buckets=SECONDS,
)
QUEUE_SECONDS = Histogram(
    "agenthost_turn_queue_seconds", "Time from a turn's acceptance to its first claim by a worker.", buckets=SECONDS
)
TOKENS = Counter("agenthost_tokens_total", "Tokens as model providers report them, by agent and kind.", ["agent", "kind"])

RUNS = Gauge("agenthost_runs", "Runs that this worker drives now.")
RUNS_STARTED = Counter("agenthost_runs_started_total", "Runs that this worker has started.")
RUNS_TAKEN_OVER = Counter("agenthost_runs_taken_over_total", "Runs of other workers that this worker has taken over.")
RUNS_STOPPED = Counter(
    "agenthost_runs_stopped_total",
    "Runs that this worker stopped before their end: their turn was cancelled or taken over, or the worker gave it back.",
)

FLUSH_SECONDS = Histogram("agenthost_journal_flush_seconds", "Duration of the journal's writes in workers.", buckets=_SHORT)
FLUSH_UNITS = Histogram("agenthost_journal_flush_units", "Units (deltas, commit points) in one write.", buckets=_SIZES)
FLUSHES_FAILED = Counter(
    "agenthost_journal_flushes_failed_total", "Writes of the journal that did not succeed, by reason.", ["reason"]
)
BARRIER_SECONDS = Histogram(
    "agenthost_journal_barrier_seconds", "Time until the disk has what was committed before.", buckets=_SHORT
)

ANNOUNCEMENTS = Counter("agenthost_announcements_total", "Announcements of stored events that arrived in this process.")
ANNOUNCEMENTS_MISSED = Counter(
    "agenthost_announcements_missed_total",
    "Times that readers read the journal because announcements were late or missing.",
)

STREAMS = Gauge("agenthost_streams", "Open event streams of AAP.")
CONNECTIONS = Gauge("agenthost_connections", "Open connections of AHP.")
AHP_REQUESTS = Counter(
    "agenthost_ahp_requests_total",
    "Requests of AHP clients that were answered: ok, or the code of the error.",
    ["method", "outcome"],
)
REFUSALS = Counter("agenthost_refusals_total", "Requests that were refused by a limit, by limit.", ["limit"])


def turn_ended(agent_name: str, outcome: str, duration_ms: int) -> None:
    """``outcome``: error, cancelled, or the reason with which the agent ended the turn."""
    label = agent(agent_name)
    TURNS_ENDED.labels(label, "done" if outcome == "end_turn" else outcome).inc()
    TURN_SECONDS.labels(label).observe(duration_ms / 1000)


def tokens_used(agent_name: str, sent: int, received: int, cached: int) -> None:
    label = agent(agent_name)
    for kind, number in (("input", sent), ("output", received), ("cache_read", cached)):
        if number:
            TOKENS.labels(label, kind).inc(number)
