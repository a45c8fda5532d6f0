"""The range of versions that count as AHP 0.1 (R42, R44)."""

from __future__ import annotations

import re
from collections.abc import Sequence

CURRENT = "0.1.0"
SUPPORTED: tuple[str, ...] = (CURRENT,)
"""For clients that offer no version of the host."""

_PATCH = re.compile(r"0\.1\.(?:0|[1-9][0-9]*)")


def choose(offered: Sequence[str]) -> str | None:
    """The first 0.1.z in the client's order, as it was offered; None if there is none.

    Patch releases are compatible by definition. Entries of another form (a suffix, a leading zero) are ignored.
    """
    return next((version for version in offered if _PATCH.fullmatch(version)), None)
