"""Marks of the table ``pruned``: up to which number the events of a session may be gone, and two marks for pruning itself."""

from __future__ import annotations

MARK = """
insert into pruned (session_id, through) values (%s, %s) on conflict (session_id)
 do update set through = excluded.through where excluded.through > pruned.through
"""


def tenant_mark(tenant: int) -> int:
    """The key of a tenant's mark for all its sessions, outside the range of sessions and tenants' own tails."""
    return -(1 << 62) - tenant


def skipped_mark(session: int) -> int:
    """The key of a session's mark for old deltas that were skipped because their turn was live."""
    return SKIPPED - session


SKIPPED = -(1 << 61)
"""The marks of skipped deltas are below this number and above the marks of tenants."""
