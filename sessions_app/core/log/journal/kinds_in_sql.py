"""SQL about the kinds of events."""

from __future__ import annotations

from sessions_app.core.base.events import STREAM_KINDS

STREAM = ", ".join(f"'{kind.value}'" for kind in sorted(STREAM_KINDS))

PARTITION = (
    f"case when r.kind in ({STREAM}) then coalesce((select p.number from event_partition p where p.is_open), 0) else 0 end"
)
"""The partition of a new event ``r``. Without an open one every event is kept by row, so a missing round loses nothing."""
