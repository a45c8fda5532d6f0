"""Results and time limit of revoking keys and suspending tenants."""

from __future__ import annotations

import time
from dataclasses import dataclass

_LOCK_WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key that was revoked, or a tenant that was suspended."""

    changed: bool
    """False: it was revoked or suspended before."""
    left: int
    """Turns that are still live because other transactions lock them; a worker's sweep stops them."""

    @property
    def remark(self) -> str:
        """A sentence for operators about the turns that are left; "" if there are none."""
        return remark(self.left)


def remark(left: int) -> str:
    if not left:
        return ""
    turns = "1 turn is" if left == 1 else f"{left} turns are"
    return f"{turns} locked by other transactions and not stopped yet: workers stop such turns within seconds of their release."


def deadline() -> float:
    """The time (``time.monotonic``) until which refusals that begin now wait for locked turns, all of them together."""
    return time.monotonic() + _LOCK_WAIT_SECONDS
