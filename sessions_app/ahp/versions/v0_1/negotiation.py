"""Which version of the protocol a connection speaks (R42, R44)."""

from __future__ import annotations

import re
from collections.abc import Sequence

CURRENT = "0.1.0"
SUPPORTED: tuple[str, ...] = (CURRENT, "~0.1.0")
"""What the host tells a client it cannot speak with: its version, and as a SemVer range every 0.1.z."""

_SPOKEN = re.compile(r"0\.1\.(?:0|[1-9][0-9]*)")


def choose(offered: Sequence[str]) -> str | None:
    """The first entry that this host can speak, as it was offered; None if there is none.

    Patch releases are compatible by definition, so any 0.1.z does. Entries of another form (a suffix, a leading zero) are
    passed over.
    """
    return next((version for version in offered if _SPOKEN.fullmatch(version)), None)
