"""The metrics' names, labels and documentation, and the limits of their labels."""

from __future__ import annotations

import re

import pytest
from prometheus_client import REGISTRY
from prometheus_client.core import Metric

from agenthost.metrics import requests as requests  # noqa: PLC0414 - declares metrics
from agenthost.metrics.collectors import MOST_QUEUES, Installation, Process, _of_queues
from agenthost.metrics.server import PATH
from agenthost.tracing import exporter as exporter  # noqa: PLC0414 - declares metrics
from agents_app.metrics import OTHER, Names
from sessions_app.core.base import metrics as core  # noqa: F401 - declares metrics
from sessions_app.core.records.queues import QueueFigures
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text()
OWN = "agenthost_"
SAMPLES = re.compile(r"`(agenthost_[a-z_]+)`")


def declared() -> dict[str, Metric]:
    """The names as Prometheus shows them; histograms without their suffixes."""
    families = [*REGISTRY.collect(), *Installation().describe(), *Process().collect()]
    names = {f"{each.name}_total" if each.type == "counter" else each.name: each for each in families}
    return {name: each for name, each in names.items() if name.startswith(OWN)}


def test_every_metric_is_on_the_page_and_the_page_names_no_other() -> None:
    assert set(SAMPLES.findall(PAGE)) == set(declared())
    assert PATH in PAGE


def test_names_follow_the_conventions() -> None:
    for name, metric in declared().items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name), name
        assert metric.documentation, name
        assert not re.search(r"_(ms|milliseconds|minutes|kib|mib)(_|$)", name), name


@pytest.mark.parametrize("label", ["tenant", "session", "key", "turn", "user", "path", "address"])
def test_no_metric_has_a_label_without_a_limit(label: str) -> None:
    labels = {each for collector in REGISTRY._collector_to_names for each in getattr(collector, "_labelnames", ())}
    assert "agent" in labels
    assert label not in labels


def test_queues_beyond_the_limit_are_one_that_shows_the_worst_of_them() -> None:
    found = [QueueFigures(f"q{n:02}", queued=1, running=2, oldest=float(n), workers=n) for n in range(MOST_QUEUES + 3)]
    samples = {
        (sample.name, sample.labels["queue"], sample.labels.get("state")): sample.value
        for metric in _of_queues(found)
        for sample in metric.samples
    }
    assert len({queue for _, queue, _ in samples}) == MOST_QUEUES + 1
    assert samples["agenthost_queue_turns", OTHER, "queued"] == 3
    assert samples["agenthost_queue_turns", OTHER, "running"] == 6
    assert samples["agenthost_queue_oldest_seconds", OTHER, None] == MOST_QUEUES + 2
    assert samples["agenthost_queue_workers", OTHER, None] == MOST_QUEUES


def test_a_label_has_no_more_values_than_its_limit() -> None:
    label = Names(2)
    assert [label(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
