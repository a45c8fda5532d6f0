"""The classes of which a version's description consists (versions/): its operations, parameters, answers and examples.

Only values. Addresses and methods come from the routes, keys and scopes from the views, refusals from the table in
problems.py, and schemas from the declared types (document.py).
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
    """A valid request and the demo agent's answer; a test sends it.

    ``answer``: a JSON value, or the text of a stream; its ids are samples. ``after``: the example of a turn that must
    come before in the same session. Without it the session is new.
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
    """One successful answer. ``forms``: the declared type for each media type; none if there is no body.

    ``headers``: names from document.HEADERS, those with a question mark are not always there.
    """

    meaning: str
    forms: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address. ``refusals``: its own; those of all operations are added."""

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
