"""The builtin tool ``current_time``."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from agents_app.errors import ToolFailed


def current_time(timezone: str = "UTC") -> str:
    """Tells the current date and time.

    Args:
        timezone: A time zone's name, for example UTC or Europe/Zurich.
    """
    zone: tzinfo
    try:
        # UTC needs no time zone database, which a small machine may lack.
        zone = UTC if timezone.upper() == "UTC" else ZoneInfo(timezone)
    # Directories of the database, long names and odd characters raise different exceptions.
    except (KeyError, ValueError, OSError):
        raise ToolFailed("there is no time zone of this name") from None
    now = datetime.now(zone)
    return f"{now.isoformat(timespec='seconds')} ({now:%A}, {timezone})"
