"""Times as texts: ISO 8601 with milliseconds and ``Z``. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LONGEST_MS = 10**12
"""A longer duration is cut to this, some 30 years: added to a time of these centuries it gives a time."""


def text_of(at: datetime) -> str:
    at = at.astimezone(UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def text_of_unix(milliseconds: int) -> str | None:
    """A Unix time; None if it is beyond the calendar, as programs can set the times of files."""
    try:
        return text_of(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None


def moment(time: str) -> datetime:
    """A time as a database writes it. SQLite writes UTC without saying so."""
    found = datetime.fromisoformat(time)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def after(time: str, milliseconds: int) -> str:
    """This time and so many milliseconds; the time itself if the sum is beyond the calendar."""
    try:
        start = moment(time)
        start = start.replace(microsecond=start.microsecond // 1000 * 1000)
        return text_of(start + timedelta(milliseconds=max(0, milliseconds)))
    except (ValueError, OverflowError):
        return time


def between(start: datetime, end: datetime) -> int:
    return max(0, int((end - start).total_seconds() * 1000))
