"""Figures of the benchmark: medians, spreads, ratios and goals."""

from __future__ import annotations

import pytest

from ops.benchmark.figures import Figure, collect, pairs, percentile


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([7.0], 0.99) == 7.0


def test_a_ratio_to_the_floor_is_the_median_of_the_runs_own_ratios() -> None:
    (result,) = collect([[Figure("x", "ms", ours, floor)] for ours, floor in ((30.0, 20.0), (36.0, 20.0), (31.0, 25.0))])
    assert (result.ours, result.floor, result.ratio, result.spread) == (31.0, 20.0, 1.5, (30.0, 36.0))


@pytest.mark.parametrize(("ours", "reached"), [(37.0, True), (39.0, False)])
def test_a_goal_may_be_a_distance_from_the_floor(ours: float, reached: bool) -> None:
    (result,) = collect([[Figure("x", "ms", ours, 20.0, over_floor=18)]])
    assert result.reached is reached
    assert result.goal == "<= floor + 18"


def test_a_comparison_takes_each_runs_own_ratio() -> None:
    mine = [[Figure("x", "ms", value, beside_at_most=0.5)] for value in (4.0, 50.0, 5.0)]
    its = [[Figure("x", "ms", value)] for value in (10.0, 100.0, 8.0)]
    (pair,) = pairs(mine, its)
    assert pair.ratios == [0.4, 0.5, 0.625]
    assert pair.reached is True
    assert pair.goal == "<= 0.5 of it"


def test_a_line_that_only_one_checkout_has_is_not_compared() -> None:
    assert pairs([[Figure("x", "ms", 1.0)]], [[Figure("y", "ms", 1.0)]]) == []


def test_a_figure_of_nothing_has_no_ratio_and_no_verdict() -> None:
    (pair,) = pairs([[Figure("x", "ms", 1.0, beside_at_most=0.5)]], [[Figure("x", "ms", 0.0)]])
    assert pair.ratios == []
    assert pair.reached is None
