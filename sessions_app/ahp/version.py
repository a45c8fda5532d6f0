"""Which function answers which command, by method and version of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sessions_app.ahp.shapes import Shape

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection


@dataclass(frozen=True, slots=True)
class AsOf:
    """A result that tells of resources at numbers: it stands among the actions where they say.

    ``floors``: for each resource's key, the number up to which the result tells of it. ``known``: those that the
    connection was subscribed to before.
    """

    result: str = field(repr=False)
    """JSON text: states are large, and are encoded by the thread that has read them."""
    floors: Mapping[int, int]
    known: frozenset[int] = frozenset()


Answer = Callable[["Connection", Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Handler:
    """``answer`` gets checked params. ``holds``: its result is an ``AsOf``, so actions are held back while it runs.
    ``opens``: it is a handshake. ``bare``: it may come without params. ``changes``: it needs the right to write (R9)."""

    params: Shape[Any]
    answer: Answer
    holds: bool = False
    opens: bool = False
    bare: bool = False
    changes: bool = False


_HANDLERS: dict[tuple[str, str], Handler] = {}


def register(version: str, method: str, handler: Handler) -> None:
    """``version`` is a line of compatible ones, such as "0.1"."""
    assert (method, version) not in _HANDLERS
    _HANDLERS[method, version] = handler


def find(version: str, method: str) -> Handler | None:
    return _HANDLERS.get((method, version))


def methods(version: str) -> frozenset[str]:
    return frozenset(method for method, known in _HANDLERS if known == version)
