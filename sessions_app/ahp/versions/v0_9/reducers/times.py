"""Times on the wire: ISO 8601 text with milliseconds and ``Z`` (V55)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def later(time: str, milliseconds: float) -> str:
    """``time`` and this many milliseconds. ValueError or OverflowError if it is no time, or beyond the calendar."""
    start = datetime.fromisoformat(time)
    if start.tzinfo is None:
        start = start.replace(tzinfo=UTC)
    # A time on the wire has whole milliseconds: what is below them is cut off before and after adding.
    start = start.astimezone(UTC)
    start = start.replace(microsecond=start.microsecond // 1000 * 1000)
    end = start + timedelta(milliseconds=int(milliseconds))
    return end.strftime("%Y-%m-%dT%H:%M:%S.") + f"{end.microsecond // 1000:03d}Z"
