"""What becomes of live turns when their key is revoked or their tenant is suspended."""

from __future__ import annotations

import time
from dataclasses import dataclass

_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key or a tenant that is refused from now on."""

    changed: bool
    """False: it was refused before."""
    left: int
    """Turns that other transactions keep locked: still live, and stopped by a worker's sweep."""

    @property
    def remark(self) -> str:
        """What an operator should know about the turns that are left; "" if there are none."""
        return remark(self.left)


def remark(left: int) -> str:
    if not left:
        return ""
    turns = "1 turn is" if left == 1 else f"{left} turns are"
    return f"{turns} locked by other transactions and not stopped yet: a worker stops what is left within seconds of its release."


def deadline() -> float:
    """Until when refusals that begin now wait for locked turns, all of them together (``time.monotonic``)."""
    return time.monotonic() + _PATIENCE_SECONDS
