"""What the functions that make actions of events get and return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sessions_app.ahp.versions.v0_1.projection import alike
from sessions_app.ahp.versions.v0_1.projection.alike import Made, Payload
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.spelling import chat_uri

__all__ = ["Context", "Made", "Make", "Payload", "as_in_0_1"]


@dataclass(frozen=True, slots=True)
class Context:
    """``session``: the session's URI in states and actions; "" on channels of none."""

    session: str
    face: Face

    @property
    def chat(self) -> str:
        return chat_uri(self.session)


Make = Callable[[Payload, Context], Made | None]


def as_in_0_1(make: alike.Make) -> Make:
    return lambda payload, _: make(payload)
