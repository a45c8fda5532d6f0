"""A session's seed messages as turns: each user message begins one. They have no rows; their ids are positions.

A session that is created over AAP may start with a history ("seed"). AHP clients see it as completed turns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents_app import exact_json
from sessions_app.models import Message, Origin, Session

_ID = re.compile(r"seed-([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class SeedTurn:
    """A turn made of seed messages. ``first`` and ``last`` are the positions of its messages."""

    first: int
    last: int

    @property
    def id(self) -> str:
        return f"seed-{self.first}"


def of(session: Session) -> list[SeedTurn]:
    """The session's seed turns, oldest first."""
    lines = Message.objects.filter(session=session, turn=None, origin=Origin.SEED, cut_at=None).exclude(role="system")
    found: list[SeedTurn] = []
    first: int | None = None
    last = 0
    for position, role in lines.order_by("position").values_list("position", "role"):
        if first is not None and role == "user":
            found.append(SeedTurn(first, last))
            first = None
        first = position if first is None else first
        last = position
    if first is not None:
        found.append(SeedTurn(first, last))
    return found


def find(session: Session, turn: str) -> SeedTurn | None:
    """The seed turn with this id, if there is one."""
    return next((each for each in of(session) if each.id == turn), None) if _ID.fullmatch(turn) else None


def lines_of(session: Session, turns: Sequence[SeedTurn]) -> list[list[tuple[int, str, Any]]]:
    """The messages (position, role, content) of each of these consecutive turns, without system messages."""
    if not turns:
        return []
    rows = Message.objects.filter(
        session=session, turn=None, origin=Origin.SEED, position__gte=turns[0].first, position__lte=turns[-1].last
    ).exclude(role="system")
    lines = [
        (position, role, exact_json.loads(content))
        for position, role, content in rows.order_by("position").values_list("position", "role", "content")
    ]
    return [[line for line in lines if turn.first <= line[0] <= turn.last] for turn in turns]
