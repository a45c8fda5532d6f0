"""Shapes of JSON values, declared once as types and checked by readers compiled from them.

A shape is a ``TypedDict``, a ``Literal``, a union or a container of those, so the same declaration serves the type checker
and the wire. A ``Shape`` does two things with it:

* ``read`` takes what a peer sent, tolerantly: unknown members are kept, an explicit null for an optional member is dropped
  (R36), ``3.0`` is an integer. It answers the value as the host understands it, the very same object if there was nothing
  to change, or raises ``Misfit`` with every fault found (the first few, if there are many).
* ``faults`` judges what the host is about to send, strictly: nulls, floats for integers and unknown members are faults.

Details of faults name places and expectations, never the value that was found there: it may be a secret.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from agents_app.exact_json import LongNumber

T = TypeVar("T")

Number = int | float | LongNumber
"""A JSON number as ``exact_json`` reads it."""

NonEmpty = Annotated[str, "not empty"]
"""A string that says something."""

MOST_FAULTS = 8
"""A message of a million wrong items is not worth a million sentences."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at one place of a JSON value."""

    path: tuple[str | int, ...]
    detail: str

    def describe(self, root: str) -> str:
        where = root
        for step in self.path:
            where += f"[{step}]" if isinstance(step, int) else f".{step[:64]}"
        return f"{where} {self.detail}"


class Misfit(ValueError):
    """A value does not have the shape that was asked for."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.describe("the value"))

    def describe(self, root: str) -> str:
        """One line for people; ``root`` names the whole value, such as ``params``."""
        return "; ".join(fault.describe(root) for fault in self.faults)


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object's declaration."""

    declared: Any
    required: bool


class Shape(Generic[T]):
    """A declaration with its readers. Making one costs nothing; each reader is compiled at its first use."""

    def __init__(self, declared: Any) -> None:
        self.declared = declared

    @cached_property
    def _tolerant(self) -> _Reader:
        return _Compiler(strict=False).reader(self.declared)

    @cached_property
    def _strict(self) -> _Reader:
        return _Compiler(strict=True).reader(self.declared)

    def read(self, value: object) -> T:
        faults: list[Fault] = []
        try:
            understood = self._tolerant(value, None, None, faults)
        except _Enough:
            understood = None
        if faults:
            raise Misfit(faults)
        return understood  # type: ignore[no-any-return]  # the reader has just checked that it is a T

    def faults(self, value: object) -> list[Fault]:
        """What a peer could hold against ``value``; empty if nothing."""
        faults: list[Fault] = []
        with contextlib.suppress(_Enough):
            self._strict(value, None, None, faults)
        return faults


_OPEN: set[Any] = set()

Declared = TypeVar("Declared", bound=type)


def open_ended(declared: Declared) -> Declared:
    """The host may say members beyond the declared ones: another standard owns them."""
    _OPEN.add(declared)
    return declared


@cache
def members(declared: Any) -> Mapping[str, Member]:
    """The members of a ``TypedDict``, inherited ones first."""
    found = {}
    # Not __required_keys__: with annotations kept as strings, those do not know NotRequired.
    for name, hint in get_type_hints(declared, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        found[name] = Member(get_args(hint)[0] if optional else hint, not optional)
    return found


def variants(declared: Any) -> tuple[Any, ...]:
    """The members of a union; a shape that is none is its own only variant."""
    if get_origin(declared) in (Union, types.UnionType):
        return tuple(get_args(declared))
    return (declared,)


def is_number(declared: Any) -> bool:
    return declared is float or set(variants(declared)) == set(get_args(Number))


# --- compiling ---

# A place is (place of the parent, step); it is built only for containers, and turned into a path only for a fault.
_Place = Any
_Step = str | int | None
_Reader = Callable[[Any, _Place, _Step, list[Fault]], Any]


class _Enough(Exception):
    """There are as many faults as anybody wants to read."""


def _add(faults: list[Fault], parent: _Place, step: _Step, detail: str) -> None:
    steps: list[str | int] = []
    place: _Place = (parent, step)
    while place is not None:
        place, step = place
        if step is not None:
            steps.append(step)
    faults.append(Fault(tuple(reversed(steps)), detail))
    if len(faults) >= MOST_FAULTS:
        raise _Enough


class _Compiler:
    """Makes readers. A declaration that contains itself meets its own reader."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._made: dict[Any, _Reader] = {}

    def reader(self, declared: Any) -> _Reader:
        made = self._made.get(declared)
        if made is None:
            made = self._made[declared] = self._compile(declared)
        return made

    def _compile(self, declared: Any) -> _Reader:
        if declared is Any:
            return _anything
        if declared is str:
            return _string
        if declared == NonEmpty:
            return _non_empty
        if declared is bool:
            return _boolean
        if declared is int:
            return _strict_integer if self._strict else _integer
        if is_number(declared):
            return _number
        if declared is None or declared is types.NoneType:
            return _null
        if is_typeddict(declared):
            return self._object(declared)
        origin, arguments = get_origin(declared), get_args(declared)
        if origin is Literal:
            return _literal(arguments)
        if origin is list:
            return _array(self.reader(arguments[0]))
        if origin is dict:
            return self._map(arguments[1])
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        raise TypeError(f"{declared!r} is no shape of JSON")

    def _object(self, declared: Any) -> _Reader:
        # Known before its members are compiled: one of them may contain this very declaration.
        compiled: list[_Reader] = []

        def inner(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
            return compiled[0](value, parent, step, faults)

        self._made[declared] = inner
        names = members(declared)
        table = [
            (name, self.reader(member.declared), member.required, types.NoneType in variants(member.declared))
            for name, member in names.items()
        ]
        strict, is_open = self._strict, declared in _OPEN

        def read(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
            if not isinstance(value, dict):
                _add(faults, parent, step, "must be an object")
                return value
            here = (parent, step)
            understood = value
            for name, reader, required, nullable in table:
                item = value.get(name)
                if item is None:
                    if required:
                        if not nullable or name not in value:
                            _add(faults, here, name, "must not be null" if name in value else "is required")
                    elif name in value and not nullable:
                        if strict:
                            _add(faults, here, name, "must be left out instead of null")
                        if understood is value:
                            understood = dict(value)
                        del understood[name]
                    continue
                got = reader(item, here, name, faults)
                if got is not item:
                    if understood is value:
                        understood = dict(value)
                    understood[name] = got
            if strict and not is_open:
                for name in value:
                    if name not in names:
                        _add(faults, here, name, "is not a member that this version knows")
            return understood

        compiled.append(read)
        return read

    def _map(self, declared: Any) -> _Reader:
        if declared is Any:
            return _any_map
        reader = self.reader(declared)

        def read(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
            if not isinstance(value, dict):
                _add(faults, parent, step, "must be an object")
                return value
            here = (parent, step)
            understood = value
            for name, item in value.items():
                got = reader(item, here, name, faults)
                if got is not item:
                    if understood is value:
                        understood = dict(value)
                    understood[name] = got
            return understood

        return read

    def _union(self, declared: Sequence[Any]) -> _Reader:
        objects = [variant for variant in declared if is_typeddict(variant)]
        objects_reader = self._one_of(objects) if objects else None
        others: dict[type, _Reader] = {}
        expected = ["an object"] if objects else []
        for variant in declared:
            if not is_typeddict(variant):
                kind, words = _SIMPLE[variant]
                others[kind] = self.reader(variant)
                expected.append(words)
        sentence = "must be " + " or ".join(sorted(expected, reverse=True))

        def read(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
            reader = objects_reader if isinstance(value, dict) else others.get(type(value))
            if reader is None:
                _add(faults, parent, step, sentence)
                return value
            return reader(value, parent, step, faults)

        return read

    def _one_of(self, declared: Sequence[Any]) -> _Reader:
        """Chooses among objects: by a member whose constants tell them apart, else by the members only one of them demands."""
        if len(declared) == 1:
            return self.reader(declared[0])
        tag = _tag(declared)
        return self._by_tag(declared, tag) if tag is not None else self._by_members(declared)

    def _by_tag(self, declared: Sequence[Any], tag: str) -> _Reader:
        groups: dict[Any, list[Any]] = {}
        for variant in declared:
            for constant in get_args(members(variant)[tag].declared):
                groups.setdefault(constant, []).append(variant)
        table = {(type(constant), constant): self._one_of(group) for constant, group in groups.items()}
        sentence = _one_of_these(list(groups))

        def read(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
            if not isinstance(value, dict):
                _add(faults, parent, step, "must be an object")
                return value
            word = value.get(tag)
            # With its type: True equals 1, and a list is no key at all.
            reader = table.get((type(word), word)) if isinstance(word, str | bool) else None
            if reader is None:
                _add(faults, (parent, step), tag, "is required" if word is None else sentence)
                return value
            return reader(value, parent, step, faults)

        return read

    def _by_members(self, declared: Sequence[Any]) -> _Reader:
        demanded = [{name for name, member in members(variant).items() if member.required} for variant in declared]
        table = []
        for index, variant in enumerate(declared):
            others = set().union(*(names for place, names in enumerate(demanded) if place != index))
            own = sorted(demanded[index] - others)
            if not own:
                raise TypeError(f"nothing tells {variant!r} from the others")
            table.append((own[0], self.reader(variant)))
        sentence = "must be an object with one of " + ", ".join(name for name, _ in table)

        def read(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
            if isinstance(value, dict):
                for name, reader in table:
                    if name in value:
                        return reader(value, parent, step, faults)
            _add(faults, parent, step, sentence)
            return value

        return read


def _tag(declared: Sequence[Any]) -> str | None:
    """The required member that is a constant in every one of these objects, and tells the most of them apart."""
    best, most = None, 1
    for name in members(declared[0]):
        seen = set()
        for variant in declared:
            member = members(variant).get(name)
            if member is None or not member.required or get_origin(member.declared) is not Literal:
                break
            seen.add(frozenset(get_args(member.declared)))
        else:
            if len(seen) > most:
                best, most = name, len(seen)
    return best


# --- readers of what has no parts ---


def _anything(value: Any, _parent: _Place, _step: _Step, _faults: list[Fault]) -> Any:
    return value


def _string(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if not isinstance(value, str):
        _add(faults, parent, step, "must be a string")
    return value


def _non_empty(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if not isinstance(value, str) or not value:
        _add(faults, parent, step, "must be a string that is not empty")
    return value


def _boolean(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if not isinstance(value, bool):
        _add(faults, parent, step, "must be true or false")
    return value


def _null(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if value is not None:
        _add(faults, parent, step, "must be null")
    return value


def _integer(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if type(value) is int:
        return value
    # To JSON 3.0 is the same number as 3.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    _add(faults, parent, step, "must be an integer")
    return value


def _strict_integer(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if type(value) is not int:
        _add(faults, parent, step, "must be an integer")
    return value


def _number(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | LongNumber):
        _add(faults, parent, step, "must be a number")
    return value


def _any_map(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
    if not isinstance(value, dict):
        _add(faults, parent, step, "must be an object")
    return value


def _literal(constants: Sequence[Any]) -> _Reader:
    allowed = {(type(constant), constant) for constant in constants}
    sentence = _one_of_these(constants)

    def read(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
        if not isinstance(value, str | bool | int) or (type(value), value) not in allowed:
            _add(faults, parent, step, sentence)
        return value

    return read


def _array(reader: _Reader) -> _Reader:
    def read(value: Any, parent: _Place, step: _Step, faults: list[Fault]) -> Any:
        if not isinstance(value, list):
            _add(faults, parent, step, "must be an array")
            return value
        here = (parent, step)
        understood = value
        for index, item in enumerate(value):
            got = reader(item, here, index, faults)
            if got is not item:
                if understood is value:
                    understood = list(value)
                understood[index] = got
        return understood

    return read


_SIMPLE: Mapping[Any, tuple[type, str]] = {
    str: (str, "a string"),
    bool: (bool, "true or false"),
    types.NoneType: (types.NoneType, "null"),
}
"""What may stand beside objects in a union: the Python type of such a value, and its name for people."""

_MOST_WORDS = 12


def _one_of_these(constants: Iterable[Any]) -> str:
    words = ["true" if word is True else "false" if word is False else str(word) for word in constants]
    if len(words) == 1:
        return f"must be {words[0]}"
    return f"must be one of {', '.join(words)}" if len(words) <= _MOST_WORDS else "is none that this version knows"
