"""The options of a user who is asked whether a tool may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

ONCE, SESSION, DENY = "allow-once", "allow-in-session", "deny"

OPTIONS: Sequence[Mapping[str, str]] = (
    {"id": ONCE, "label": "Allow once", "kind": "approve"},
    {"id": SESSION, "label": "Allow in this session", "kind": "approve"},
    {"id": DENY, "label": "Deny", "kind": "deny"},
)


def kind_of(option: str) -> Literal["approve", "deny"] | None:
    """Whether an option grants or denies the call; None: there is no such option."""
    found = next((each["kind"] for each in OPTIONS if each["id"] == option), None)
    return None if found is None else ("approve" if found == "approve" else "deny")
