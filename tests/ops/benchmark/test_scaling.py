"""The model of docs/scaling.md reproduces what was measured."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ops.benchmark import scaling
from ops.benchmark.scaling import Load, need
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "scaling.md").read_text()


@pytest.mark.parametrize(("measured", "modelled"), scaling.MEASURED.values(), ids=scaling.MEASURED.keys())
def test_a_measured_point_is_reproduced_within_20_percent(measured: float, modelled: float) -> None:
    assert modelled == pytest.approx(measured, rel=0.2)


def test_every_measured_point_is_on_the_page() -> None:
    assert [name for name in scaling.MEASURED if name not in PAGE] == []


def test_a_turn_and_a_token_cost_less_the_more_there_are_and_never_nothing() -> None:
    rates = [0, 1, 10, 100, 1000, 100_000]
    for cost, least in ((scaling.turn_ms, scaling.TURN_SHARED), (scaling.token_us, scaling.TOKEN_SHARED)):
        costs = [cost(rate) for rate in rates]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] > least


def test_idle_streams_and_watchers_cost_the_web_and_nobody_else() -> None:
    plain, watched = need(Load(10, 300)), need(Load(10, 300, watchers=3, idle=10_000))
    assert watched.cores["web"] > plain.cores["web"]
    assert watched.memory_gib["web"] > plain.memory_gib["web"]
    assert {role: watched.cores[role] for role in ("worker", "postgres", "redis")} == {
        role: plain.cores[role] for role in ("worker", "postgres", "redis")
    }


def test_the_pages_example_is_what_the_command_prints() -> None:
    command = "ops/scale --turns-per-second 20 --tokens 400 --idle-streams 5000"
    given = command.split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "ops.benchmark.scaling", *given], cwd=ROOT, capture_output=True, text=True, check=True
    )
    example = PAGE.split(f"$ {command}\n")[1].split("```")[0]
    assert [line.rstrip() for line in example.splitlines()] == [line.rstrip() for line in done.stdout.splitlines()]
