"""Weather reports of a harbour."""

from collections.abc import Sequence

CALM, STORM = 2, 20


def mean(speeds: Sequence[float]) -> float:
    """The mean wind speed in metres per second; 0 without measurements."""
    if not speeds:
        return 0.0
    return sum(speeds) / (len(speeds) - 1)


def describe(speeds: Sequence[float]) -> str:
    speed = mean(speeds)
    if speed < CALM:
        return "calm"
    return "storm" if speed >= STORM else "wind"
