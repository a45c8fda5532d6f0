"""The alert rules: each has a runbook, uses metrics that exist, and fires at its threshold (with Prometheus's own tool)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import ROOT

FOLDER = ROOT / "ops" / "prometheus"
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
NAMES = [rule["alert"] for rule in RULES]
PAGE = (ROOT / "docs" / "alerts.md").read_text()
METRICS = (ROOT / "docs" / "metrics.md").read_text()
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool (apt-get install prometheus)")

FIRING: dict[str, dict[str, str]] = {
    "AgenthostDown": {'up{job="agenthost",instance="a"}': "0x60", 'up{job="agenthost",instance="b"}': "0x60"},
    "AgenthostDatabaseDown": {'agenthost_database_up{job="agenthost"}': "0x60"},
    "AgenthostNoWorker": {'agenthost_workers{job="agenthost"}': "0x60"},
    "AgenthostQueueWithoutWorker": {
        'agenthost_queue_workers{job="agenthost",queue="heavy"}': "0x60",
        'agenthost_queue_turns{job="agenthost",queue="heavy",state="queued"}': "1x60",
        'agenthost_queue_turns{job="agenthost",queue="heavy",state="running"}': "0x60",
        'agenthost_queue_workers{job="agenthost",queue="default"}': "2x60",
        'agenthost_queue_turns{job="agenthost",queue="default",state="queued"}': "9x60",
    },
    "AgenthostQueueStuck": {
        'agenthost_queue_oldest_seconds{job="agenthost",queue="heavy"}': "31x60",
        'agenthost_queue_oldest_seconds{job="agenthost",queue="default"}': "0x60",
    },
    "AgenthostTurnsFail": {
        'agenthost_turns_ended_total{job="agenthost",agent="a",outcome="error"}': "0+3x60",
        'agenthost_turns_ended_total{job="agenthost",agent="a",outcome="done"}': "0+9x60",
    },
    "AgenthostProcessDown": {'up{job="agenthost",instance="a"}': "0x60", 'up{job="agenthost",instance="b"}': "1x60"},
    "AgenthostProviderFails": {
        'agenthost_provider_requests_total{job="agenthost",host="h",outcome="unavailable"}': "0+3x60",
        'agenthost_provider_requests_total{job="agenthost",host="h",outcome="ok"}': "0+2x60",
        'agenthost_provider_requests_total{job="agenthost",host="h",outcome="cancelled"}': "0+50x60",
    },
    "AgenthostRedisDown": {'agenthost_redis_up{job="agenthost"}': "0x60"},
    "AgenthostWritesSlow": {
        'agenthost_journal_barrier_seconds_bucket{job="agenthost",le="0.5"}': "0+1x60",
        'agenthost_journal_barrier_seconds_bucket{job="agenthost",le="1.0"}': "0+10x60",
        'agenthost_journal_barrier_seconds_bucket{job="agenthost",le="+Inf"}': "0+10x60",
    },
    "AgenthostRunsTakenOver": {'agenthost_runs_taken_over_total{job="agenthost"}': "0x50 1x10"},
    "AgenthostMcpServerDown": {'agenthost_mcp_servers{job="agenthost",state="down"}': "1x60"},
}
"""Series a minute apart in which the alert fires at the end, and no other but those of ``WITH``, so often."""
WITH = {"AgenthostDown": {"AgenthostProcessDown": 2}}
QUIET: dict[str, str] = {
    'up{job="agenthost",instance="a"}': "1x55 0 1x5",
    'up{job="agenthost",instance="b"}': "1x60",
    'agenthost_database_up{job="agenthost",instance="a"}': "1x60",
    'agenthost_database_up{job="agenthost",instance="b"}': "0x60",
    'agenthost_workers{job="agenthost"}': "1x60",
    'agenthost_queue_oldest_seconds{job="agenthost",queue="default"}': "29x60",
    'agenthost_queue_workers{job="agenthost",queue="default"}': "1x60",
    'agenthost_queue_turns{job="agenthost",queue="default",state="queued"}': "1x60",
    # Scaled down to nothing, because it has no turns.
    'agenthost_queue_workers{job="agenthost",queue="heavy"}': "0x60",
    'agenthost_queue_turns{job="agenthost",queue="heavy",state="queued"}': "0x60",
    'agenthost_turns_ended_total{job="agenthost",agent="a",outcome="error"}': "0+1x60",
    'agenthost_turns_ended_total{job="agenthost",agent="a",outcome="done"}': "0+9x60",
    'agenthost_provider_requests_total{job="agenthost",host="h",outcome="timeout"}': "0+2x60",
    'agenthost_provider_requests_total{job="agenthost",host="h",outcome="ok"}': "0+3x60",
    'agenthost_provider_requests_total{job="agenthost",host="rare",outcome="timeout"}': "0x58 3x2",
    'agenthost_redis_up{job="agenthost"}': "1x60",
    'agenthost_journal_barrier_seconds_bucket{job="agenthost",le="0.5"}': "0+10x60",
    'agenthost_journal_barrier_seconds_bucket{job="agenthost",le="+Inf"}': "0+10x60",
    'agenthost_runs_taken_over_total{job="agenthost"}': "3x60",
    'agenthost_mcp_servers{job="agenthost",state="down"}': "0x60",
    'agenthost_mcp_servers{job="agenthost",state="up"}': "2x60",
}
"""A healthy installation: one web has lost its database, one turn in ten fails, a provider fails now and then,
and a pool is empty."""


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_an_alert_says_how_urgent_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    page, anchor = rule["annotations"]["runbook"].split("#")
    assert page == "docs/alerts.md"
    assert anchor == rule["alert"].lower()
    section = PAGE.split("## Page")[1].split("## Ticket")[rule["labels"]["severity"] == "ticket"]
    assert f"### {rule['alert']}\n" in section
    used = set(re.findall(r"agenthost_[a-z_]+", rule["expr"]))
    assert all(f"`{re.sub('_bucket$', '', name)}`" in METRICS for name in used), used


def test_every_alert_of_the_page_exists_and_is_tested() -> None:
    assert re.findall(r"^### (\w+)$", PAGE, re.M) == NAMES
    assert list(FIRING) == NAMES


def firing_at(directory: Path, series: dict[str, str], expected: dict[str, int]) -> subprocess.CompletedProcess[str]:
    """Run promtool: after 58 minutes exactly the ``expected`` alerts fire, each as often as it says."""
    assert PROMTOOL is not None
    found = [
        {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)', "eval_time": "58m",
         "exp_samples": [{"labels": "{}", "value": expected.get(name, 0)}]}
        for name in NAMES
    ]  # fmt: skip
    tests = {
        "rule_files": [str(FOLDER / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": found,
            }
        ],
    }
    (directory / "test.yml").write_text(yaml.safe_dump(tests))
    return subprocess.run(
        [PROMTOOL, "test", "rules", str(directory / "test.yml")], capture_output=True, text=True, check=False, timeout=120
    )


@needs_promtool
@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_and_no_other_does(tmp_path: Path, name: str) -> None:
    done = firing_at(tmp_path, FIRING[name], {name: 1, **WITH.get(name, {})})
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    done = firing_at(tmp_path, QUIET, {})
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_accepts_the_configuration() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "config", "prometheus.yml"], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


DASHBOARD: dict[str, Any] = json.loads((ROOT / "ops" / "grafana" / "agenthost.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def test_the_dashboard_shows_every_metric_that_changes() -> None:
    shown = {re.sub("_bucket$", "", name) for query in QUERIES for name in re.findall(r"agenthost_[a-z_]+", query)}
    known = set(re.findall(r"`(agenthost_[a-z_]+)`", METRICS))
    assert shown <= known
    assert known - shown == {
        # Seen in others: starts in ends, states in alerts.
        "agenthost_turns_started_total",
        "agenthost_runs_started_total",
        "agenthost_tool_call_seconds",
        "agenthost_provider_refusals_total",
        "agenthost_mcp_servers",
        "agenthost_journal_flush_units",
        "agenthost_journal_flushes_failed_total",
        "agenthost_announcements_up",
        "agenthost_http_response_seconds",
        "agenthost_ahp_requests_total",
        "agenthost_workers",
        "agenthost_database_up",
        "agenthost_database_connections",
        "agenthost_redis_up",
        "agenthost_process_info",
        # Of the tracing itself, which is off by default.
        "agenthost_trace_spans_total",
    }


@needs_promtool
def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    values = {"$__rate_interval": "1m", "$job": ".*", "$agent": ".*"}
    plain = QUERIES
    for name, value in values.items():
        plain = [query.replace(name, value) for query in plain]
    rules = {"groups": [{"name": "panels", "rules": [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(plain)]}]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    done = subprocess.run([PROMTOOL, "check", "rules", str(tmp_path / "rules.yml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
