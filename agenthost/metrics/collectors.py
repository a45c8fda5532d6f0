"""Metrics that are read when they are asked for: the database, Redis, the queue, and MCP servers.

Those of the database and the queue belong to the whole installation, so every process reports the same: take their maximum.
They are read by a thread of their own, at most every few seconds. A scrape waits for it for a moment only, so a database that
does not answer costs its figures, not the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence

from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents_app.mcp.catalogue import catalogue
from agents_app.metrics import OTHER
from sessions_app.core.base import database, redaction
from sessions_app.core.figures import server
from sessions_app.core.log import broadcast
from sessions_app.core.records import queues
from sessions_app.core.records.queues import QueueFigures

log = logging.getLogger(__name__)

READ_EVERY_SECONDS = 5.0
WAIT_SECONDS = 1.0

_GAUGES = {
    "workers": ("agenthost_workers", "Workers whose lease is valid."),
    "database_seconds": ("agenthost_database_seconds", "Time that the database took to answer."),
    "connections": ("agenthost_database_connections", "Connections to the database, of all its clients."),
    "redis": ("agenthost_redis_up", "1 if Redis answers, else 0."),
    "redis_seconds": ("agenthost_redis_seconds", "Time that Redis took to answer."),
}
_STATES = ("queued", "running", "waiting")

MOST_QUEUES = 50
"""All queues beyond it are one."""


class Installation(Collector):
    """The queue, the workers, the database and Redis."""

    def __init__(self) -> None:
        self._due, self._read = threading.Event(), threading.Event()
        self._figures: dict[str, float] | None = None
        self._queues: Sequence[QueueFigures] = ()
        self._read_at = float("-inf")
        self._failing = False
        self._thread: threading.Thread | None = None

    def describe(self) -> Iterator[Metric]:
        """Registering must not read the database."""
        return self._metrics(None)

    def collect(self) -> Iterator[Metric]:
        if time.monotonic() - self._read_at > READ_EVERY_SECONDS:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
                self._thread.start()
            self._read.clear()
            self._due.set()
            self._read.wait(WAIT_SECONDS)
        is_new = time.monotonic() - self._read_at <= READ_EVERY_SECONDS + WAIT_SECONDS
        return self._metrics(self._figures if is_new else None)

    def _serve(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            try:
                self._queues = queues.figures(timezone.now())
                self._figures = server.sample(timezone.now())
                self._failing = False
            except Exception as error:  # an edge: after any failure, the figures are missing
                self._figures = None
                if not self._failing:
                    log.warning("metrics_not_read: %s", redaction.described(error))
                self._failing = True
            finally:
                database.release()
            self._read_at = time.monotonic()
            self._read.set()

    def _metrics(self, figures: dict[str, float] | None) -> Iterator[Metric]:
        yield GaugeMetricFamily("agenthost_database_up", "1 if the database answers, else 0.", 0.0 if figures is None else 1.0)
        turns = GaugeMetricFamily("agenthost_turns", "Turns that have not ended, by state.", labels=["state"])
        for state in _STATES:
            if figures is not None:
                turns.add_metric([state], figures[state])
        yield turns
        yield from _of_queues(() if figures is None else self._queues)
        for name, (metric, text) in _GAUGES.items():
            family = GaugeMetricFamily(metric, text)
            if figures is not None and name in figures:
                family.add_metric([], figures[name])
            yield family


def _of_queues(found: Sequence[QueueFigures]) -> Iterator[Metric]:
    turns = GaugeMetricFamily("agenthost_queue_turns", "Queued and running turns of each queue.", labels=["queue", "state"])
    oldest = GaugeMetricFamily("agenthost_queue_oldest_seconds", "Age of the oldest queued turn.", labels=["queue"])
    workers = GaugeMetricFamily("agenthost_queue_workers", "Live workers that serve the queue.", labels=["queue"])
    shown = list(found[:MOST_QUEUES])
    if others := found[MOST_QUEUES:]:
        queued, running = sum(each.queued for each in others), sum(each.running for each in others)
        # The worst of them, so that an alert finds it.
        worst = max(each.oldest for each in others), min(each.workers for each in others)
        shown.append(QueueFigures(OTHER, queued, running, *worst))
    for each in shown:
        turns.add_metric([each.name, "queued"], each.queued)
        turns.add_metric([each.name, "running"], each.running)
        oldest.add_metric([each.name], each.oldest)
        workers.add_metric([each.name], each.workers)
    yield from (turns, oldest, workers)


class Process(Collector):
    """What this process knows of its announcements and MCP servers."""

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "agenthost_announcements_up", "1 if this process is connected to what carries announcements.", broadcast.pubsub_up()
        )
        yield CounterMetricFamily(
            "agenthost_announcements_dropped", "Announcements that this process could not send.", broadcast.dropped_messages()
        )
        servers, down = catalogue.standing()
        mcp = GaugeMetricFamily("agenthost_mcp_servers", "MCP servers of the agents file, by state.", labels=["state"])
        mcp.add_metric(["up"], servers - down)
        mcp.add_metric(["down"], down)
        yield mcp
