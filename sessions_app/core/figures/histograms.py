"""Histograms of durations that can be merged: counts in buckets that grow by 19 %. Pure.

A histogram is a dictionary from a bucket's number to a count. Bucket n has the durations from 2^(n/4) to 2^((n+1)/4)
milliseconds, so a percentile is at most 10 % off. 120 buckets reach to 12 days; longer durations are in the last one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

Histogram = dict[int, int]

_PER_DOUBLING = 4
_LAST = 119


def bucket(seconds: float) -> int:
    milliseconds = seconds * 1000
    if not milliseconds > 1:
        return 0
    return min(_LAST, int(math.log2(milliseconds) * _PER_DOUBLING))


def add(histogram: Histogram, seconds: float) -> None:
    number = bucket(seconds)
    histogram[number] = histogram.get(number, 0) + 1


def merge(into: Histogram, other: Mapping[int, int]) -> None:
    for number, count in other.items():
        into[number] = into.get(number, 0) + count


def percentile(histogram: Mapping[int, int], share: float) -> float | None:
    """The duration in seconds that ``share`` of the values do not exceed; None if there are no values."""
    total = sum(histogram.values())
    if total == 0:
        return None
    rank, seen = max(1, math.ceil(share * total)), 0
    for number in sorted(histogram):
        seen += histogram[number]
        if seen >= rank:
            return float(2 ** ((number + 0.5) / _PER_DOUBLING)) / 1000
    raise AssertionError("the ranks are within the total")


def bounds(number: int) -> tuple[float, float]:
    """The range of a bucket, in seconds."""
    return 2 ** (number / _PER_DOUBLING) / 1000, 2 ** ((number + 1) / _PER_DOUBLING) / 1000


def stored(histogram: Mapping[int, int]) -> str:
    return json.dumps({str(number): count for number, count in sorted(histogram.items())}, separators=(",", ":"))


def read(text: str) -> Histogram:
    return {int(number): int(count) for number, count in json.loads(text).items()}
