"""The builtin clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agents_app.errors import ToolFailed
from agents_app.tools.clock import current_time


def test_it_tells_the_time_in_any_zone() -> None:
    for zone in ("UTC", "Europe/Zurich", "Asia/Kathmandu"):
        before = datetime.now(UTC)
        told = datetime.fromisoformat(current_time(zone).split(" ")[0])
        assert before - timedelta(seconds=1) <= told <= datetime.now(UTC)
        assert zone in current_time(zone)
    assert current_time().split(" ")[0].endswith("+00:00")


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "Europe", "x" * 5000, "a\x00b", "/etc/passwd", "\ud800"]
)
def test_an_unknown_zone_is_a_plain_failure(zone: str) -> None:
    with pytest.raises(ToolFailed):
        current_time(zone)
