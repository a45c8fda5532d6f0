"""The words in which a version of the protocol describes itself (versions/): what its endpoints take and answer.

Values alone. What the running code knows better is not said here but taken from it (document.py): addresses and
methods from the routes, keys and scopes from the views, refusals from the table in problems.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sessions_app.aap.openapi.refusals import Refusal

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Example:
    """A request that works and what is answered to it by the demo agent; a test sends it.

    ``answer``: a JSON value, or the text of a stream; ids in it stand for others of their form. ``after``: the
    example of a turn that its session has had just before. Without one the session is new.
    """

    name: str
    summary: str
    answer: Any = None
    status: int = 200
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    after: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the address, or a header, with the type of its value."""

    name: str
    place: Literal["path", "query", "header"]
    declared: Any
    text: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that is no refusal. ``forms``: the declared type for each media type; none if there is no body.

    ``headers``: names from document.HEADERS, those with a question mark are not always there.
    """

    meaning: str
    forms: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address. ``refusals`` are those of its own: what every operation refuses is known."""

    name: str
    group: str
    summary: str
    text: str
    answers: Mapping[int, Answer]
    refusals: tuple[Refusal, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    body_required: bool = True
    examples: tuple[Example, ...] = ()

    def example(self, name: str) -> Example:
        return next(each for each in self.examples if each.name == name)


@dataclass(frozen=True, slots=True)
class Description:
    """A whole version. ``operations`` by method and address below the version's base.

    ``replaced``: version 3's types whose place other ones take.
    """

    version: int
    text: str
    groups: Mapping[str, str]
    operations: Mapping[tuple[str, str], Operation]
    replaced: Mapping[Any, Any] = field(default_factory=dict)
