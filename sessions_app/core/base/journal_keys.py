"""The numbers under which the journal has the events of tenants, sessions and terminals. Pure.

A session's is its row number; a tenant's own is minus the tenant's. Terminals have a range above all sessions, and between both
each tenant has a number for the reports of its watches.
"""

from __future__ import annotations

_FIRST_TERMINAL = 1 << 62
_FIRST_OF_WATCHES = 1 << 61


def of_tenant(tenant: int) -> int:
    return -tenant


def of_watches(tenant: int) -> int:
    return _FIRST_OF_WATCHES + tenant


def of_terminal(terminal: int) -> int:
    return _FIRST_TERMINAL + terminal


def is_session(key: int) -> bool:
    return 0 < key < _FIRST_OF_WATCHES


def is_terminal(key: int) -> bool:
    return key >= _FIRST_TERMINAL
