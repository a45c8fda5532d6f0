"""Values about terminals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents_app import exact_json

LONGEST_TITLE = 500
LONGEST_CLIENT = 256
MOST_CELLS = 1000
"""Columns or rows of a terminal."""
DEFAULT_COLS, DEFAULT_ROWS = 80, 24


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has a terminal: a client, or a session (by its URI), for one of its tool calls or in the background."""

    client: str | None = None
    session: str | None = None
    turn: str | None = None
    call: str | None = None

    @property
    def is_for_call(self) -> bool:
        return self.call is not None

    def document(self) -> dict[str, Any]:
        members = {"client": self.client, "session": self.session, "turn": self.turn, "call": self.call}
        return {name: value for name, value in members.items() if value is not None}

    def text(self) -> str:
        return exact_json.dumps(self.document())

    @staticmethod
    def of(document: Mapping[str, Any]) -> Claim:
        return Claim(document.get("client"), document.get("session"), document.get("turn"), document.get("call"))

    @staticmethod
    def read(text: str) -> Claim:
        return Claim.of(exact_json.loads(text))
