"""Histograms of durations: merged without loss, and close to the true percentiles."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as some

from sessions_app.core.figures import histograms
from sessions_app.core.figures.histograms import Histogram

seconds = some.floats(0.002, 10**6)


def of(values: list[float]) -> Histogram:
    found: Histogram = {}
    for value in values:
        histograms.add(found, value)
    return found


@given(some.lists(seconds, min_size=1), some.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_percentile_is_at_most_a_tenth_off(values: list[float], share: float) -> None:
    true = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    found = histograms.percentile(of(values), share)
    assert found is not None
    assert abs(found - true) / true < 0.1


@given(some.lists(seconds), some.lists(seconds))
def test_merged_histograms_are_that_of_all_values(some_values: list[float], others: list[float]) -> None:
    merged = of(some_values)
    histograms.merge(merged, of(others))
    assert merged == of(some_values + others)
    assert histograms.read(histograms.stored(merged)) == merged


def test_extreme_durations_are_in_the_first_and_last_bucket() -> None:
    assert histograms.bucket(0.0) == histograms.bucket(-1.0) == histograms.bucket(float("nan")) == 0
    assert histograms.bucket(1e12) == 119
    assert histograms.percentile({}, 0.5) is None
