"""Which of the versions 0.9 and 1.0 a module serves, and in which dialect: both versions have the same modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["0.9", "1"]
Dialect = Literal["", "editor", "by provider"]
"""``editor``: the client is an editor of the VS Code family, which dispatches a session's title to its chat. ``by provider``: it
is one that also looks for a session's agent in the scheme of its URI."""


@dataclass(frozen=True, slots=True)
class Face:
    family: Family
    dialect: Dialect = ""

    @property
    def by_provider(self) -> bool:
        """Whether sessions have their agent's name in the scheme."""
        return self.dialect == "by provider"
