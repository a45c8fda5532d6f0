"""Values about terminals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents_app import exact_json

LONGEST_TITLE = 500
LONGEST_CLIENT = 256
MOST_CELLS = 1000
"""Columns or rows of a terminal."""
DEFAULT_COLS, DEFAULT_ROWS = 80, 24
_MEMBERS = ("client", "session", "turn", "call", "id", "agent", "family")


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has a terminal: a client, or a session (by its URI), for one of its tool calls or in the background.

    ``id`` and ``agent`` of the session, and ``family``, of the version of AHP in which a client chose its URI: other versions
    spell that URI in their own way.
    """

    client: str | None = None
    session: str | None = None
    turn: str | None = None
    call: str | None = None
    id: str | None = field(default=None, compare=False)
    agent: str | None = field(default=None, compare=False)
    family: str | None = field(default=None, compare=False)

    @property
    def is_for_call(self) -> bool:
        return self.call is not None

    def document(self) -> dict[str, Any]:
        members = ((name, getattr(self, name)) for name in _MEMBERS)
        return {name: value for name, value in members if value is not None}

    def text(self) -> str:
        return exact_json.dumps(self.document())

    @staticmethod
    def of(document: Mapping[str, Any]) -> Claim:
        return Claim(**{name: document.get(name) for name in _MEMBERS})

    @staticmethod
    def read(text: str) -> Claim:
        return Claim.of(exact_json.loads(text))
