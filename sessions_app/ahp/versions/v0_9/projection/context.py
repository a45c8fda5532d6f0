"""What the functions that make actions of events get and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.spelling import chat_uri

Payload = Mapping[str, Any]
Made = tuple[str, dict[str, Any]]
"""The part of an action's type after "/", and its other members."""


@dataclass(frozen=True, slots=True)
class Context:
    """``session``: the session's URI in states and actions; "" on channels of none."""

    session: str
    face: Face

    @property
    def chat(self) -> str:
        return chat_uri(self.session)


Make = Callable[[Payload, Context], Made | None]
