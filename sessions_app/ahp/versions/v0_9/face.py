"""Which of the versions 0.9 and 1.0 a module serves, and how it spells URIs: both versions have the same modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Face:
    """``by_provider``: sessions have their agent's name in the scheme, for editors that look for it there."""

    family: Literal["0.9", "1"]
    by_provider: bool = False
