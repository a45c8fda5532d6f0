"""JSON shapes: types declared once, for the type checker, for validation and for JSON Schema (json_schema.py).

A declaration is a ``TypedDict``, a ``Literal``, a union, ``list``, ``dict`` or a plain type, with notes in ``Annotated``: a
string describes the value for people, ``Rule`` is a check beyond the type, ``Unique`` forbids repeated names in a list. A
``Shape`` compiles two checks from it:

* ``read`` validates what a client sent. An explicit null for an optional member counts as absent (R36), ``3.0`` is an
  integer (R35), unknown members are kept or dropped. It returns the value as the server understands it, the same object
  if nothing had to change, or raises ``InvalidInput`` with the faults it found.
* ``faults`` checks strictly what the server is about to send: nulls, floats for integers and unknown members are faults.

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
from sessions_app.core.base.errors import Fault, InvalidInput

T = TypeVar("T")

MOST_FAULTS = 8
"""Faults reported for one value, unless its shape says otherwise."""


# --- notes ---


class Rule:
    """A check beyond the type, for ``Annotated``.

    ``fault`` returns what is wrong with a value of the right type, or None; ``keywords`` are what JSON Schema says of it.
    """

    def __init__(self, fault: Callable[[Any], str | None] | None = None, **keywords: Any) -> None:
        self.fault = fault
        self.keywords = keywords


@dataclass(frozen=True, slots=True)
class Unique:
    """No two objects of a list may have the same string in ``member``; ``detail`` is the fault of the second one."""

    member: str
    detail: str


@dataclass(frozen=True, slots=True)
class Named:
    """The name of this shape in JSON Schema. A ``TypedDict`` has its class's name, or none if that begins with ``_``."""

    name: str


@dataclass(frozen=True, slots=True)
class As:
    """JSON Schema describes the value as ``declared``: a union whose variants only a rule can tell apart."""

    declared: Any


@dataclass(frozen=True, slots=True)
class JSONText:
    """A note for a string that contains JSON of the declared shape."""

    declared: Any


Number = int | float | LongNumber
"""A JSON number as ``exact_json`` reads it."""

NOT_EMPTY = Rule(lambda value: None if value else "must not be empty")
NonEmpty = Annotated[str, NOT_EMPTY]


# --- shapes ---


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object's declaration."""

    declared: Any
    required: bool


class Shape(Generic[T]):
    """A declaration with its readers. Creating one costs nothing; each reader is compiled at its first use.

    ``unknown``: whether members that are not declared are kept or dropped. ``most_faults``: reading stops there.
    """

    def __init__(self, declared: Any, *, unknown: Literal["keep", "drop"] = "keep", most_faults: int = MOST_FAULTS) -> None:
        self.declared = declared
        self._unknown: _Unknown = unknown
        self._most_faults = most_faults

    @cached_property
    def _tolerant(self) -> _Reader:
        return _Compiler(self._unknown).reader(self.declared)

    @cached_property
    def _strict(self) -> _Reader:
        return _Compiler("refuse").reader(self.declared)

    def read(self, value: object, path: tuple[str | int, ...] = ()) -> T:
        """``path``: where in the request the value is; faults are reported from there."""
        faults = _Faults()
        faults.most = self._most_faults
        place: _Place = None
        step: _Step = None
        for each in path:
            place, step = (place, step), each
        try:
            result = self._tolerant(value, place, step, faults)
        except _Enough:
            result = None
        if faults:
            raise InvalidInput(faults)
        return result  # type: ignore[no-any-return]  # the reader has just checked that it is a T

    def faults(self, value: object) -> list[Fault]:
        """The faults a client could find in ``value``."""
        faults = _Faults()
        with contextlib.suppress(_Enough):
            self._strict(value, None, None, faults)
        return list(faults)


_OPEN: set[Any] = set()

Declared = TypeVar("Declared", bound=type)


def open_ended(declared: Declared) -> Declared:
    """The server may send members beyond the declared ones, because another standard defines them."""
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


def bare(declared: Any) -> Any:
    """The declaration without its notes."""
    return get_args(declared)[0] if get_origin(declared) is Annotated else declared


def notes(declared: Any) -> tuple[Any, ...]:
    return get_args(declared)[1:] if get_origin(declared) is Annotated else ()


def variants(declared: Any) -> tuple[Any, ...]:
    """The variants of a union; any other declaration is its own only variant."""
    if get_origin(declared) in (Union, types.UnionType):
        return tuple(get_args(declared))
    return (declared,)


def is_number(declared: Any) -> bool:
    return declared is float or set(variants(declared)) == set(get_args(Number))


# --- compiling ---

# A place is (place of the parent, step); it is built only for containers, and turned into a path only for a fault.
_Place = Any
_Step = str | int | None
_Reader = Callable[[Any, _Place, _Step, "_Faults"], Any]
_Unknown = Literal["keep", "drop", "refuse"]


class _Enough(Exception):
    """The limit of reported faults is reached."""


class _Faults(list[Fault]):
    """The faults found so far, and how many are looked for."""

    most = MOST_FAULTS


def _add(faults: _Faults, parent: _Place, step: _Step, detail: str) -> None:
    steps: list[str | int] = []
    place: _Place = (parent, step)
    while place is not None:
        place, step = place
        if step is not None:
            steps.append(step)
    faults.append(Fault(tuple(reversed(steps)), detail))
    if len(faults) >= faults.most:
        raise _Enough


class _Compiler:
    """Compiles readers. A declaration that contains itself finds its own reader here."""

    def __init__(self, unknown: _Unknown) -> None:
        self._unknown = unknown
        self._strict = unknown == "refuse"
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
        if origin is Annotated:
            return self._noted(*arguments)
        if origin is Literal:
            return _literal(arguments)
        if origin is list:
            return _array(self.reader(arguments[0]))
        if origin is dict:
            return self._map(arguments[1])
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        raise TypeError(f"{declared!r} is no shape of JSON")

    def _noted(self, declared: Any, *notes: Any) -> _Reader:
        unique = next((note for note in notes if isinstance(note, Unique)), None)
        reader = self.reader(declared) if unique is None else _array(self.reader(get_args(declared)[0]), unique)
        checks = [note.fault for note in notes if isinstance(note, Rule) and note.fault is not None]
        if not checks:
            return reader

        def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
            before = len(faults)
            result = reader(value, parent, step, faults)
            if len(faults) == before:
                for check in checks:
                    detail = check(result)
                    if detail is not None:
                        _add(faults, parent, step, detail)
                        break
            return result

        return read

    def _object(self, declared: Any) -> _Reader:
        # Known before its members are compiled: one of them may contain this very declaration.
        compiled: list[_Reader] = []

        def inner(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
            return compiled[0](value, parent, step, faults)

        self._made[declared] = inner
        names = members(declared)
        table = [
            (name, self.reader(member.declared), member.required, types.NoneType in variants(member.declared))
            for name, member in names.items()
        ]
        strict, refuse = self._strict, self._unknown == "refuse" and declared not in _OPEN
        drop = self._unknown == "drop"

        def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
            if not isinstance(value, dict):
                _add(faults, parent, step, "must be an object")
                return value
            here = (parent, step)
            result = value
            for name, reader, required, nullable in table:
                item = value.get(name)
                if item is None:
                    if required:
                        if not nullable or name not in value:
                            _add(faults, here, name, "must not be null" if name in value else "is required")
                    elif name in value and not nullable:
                        if strict:
                            _add(faults, here, name, "must be left out instead of null")
                        if result is value:
                            result = dict(value)
                        del result[name]
                    continue
                got = reader(item, here, name, faults)
                if got is not item:
                    if result is value:
                        result = dict(value)
                    result[name] = got
            if refuse:
                for name in value:
                    if name not in names:
                        _add(faults, here, name, "is not a member that this version knows")
            elif drop and not result.keys() <= names.keys():
                result = {name: item for name, item in result.items() if name in names}
            return result

        compiled.append(read)
        return read

    def _map(self, declared: Any) -> _Reader:
        if declared is Any:
            return _any_map
        reader = self.reader(declared)

        def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
            if not isinstance(value, dict):
                _add(faults, parent, step, "must be an object")
                return value
            here = (parent, step)
            result = value
            for name, item in value.items():
                got = reader(item, here, name, faults)
                if got is not item:
                    if result is value:
                        result = dict(value)
                    result[name] = got
            return result

        return read

    def _union(self, declared: Sequence[Any]) -> _Reader:
        objects = [variant for variant in declared if is_typeddict(bare(variant))]
        objects_reader = self._one_of(objects) if objects else None
        others: dict[type, _Reader] = {}
        expected = ["an object"] if objects else []
        numbers = set(get_args(Number))
        if numbers <= set(declared):
            others.update(dict.fromkeys(numbers, _number))
            expected.append("a number")
            declared = [variant for variant in declared if variant not in numbers]
        for variant in declared:
            plain = bare(variant)
            if not is_typeddict(plain):
                kind, name = _SIMPLE[get_origin(plain) or plain]
                if kind in others:
                    raise TypeError(f"nothing distinguishes {variant!r} from the others")
                others[kind] = self.reader(variant)
                expected.append(name)
        sentence = "must be " + " or ".join(sorted(expected, reverse=True))

        def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
            reader = objects_reader if isinstance(value, dict) else others.get(type(value))
            if reader is None:
                _add(faults, parent, step, sentence)
                return value
            return reader(value, parent, step, faults)

        return read

    def _one_of(self, declared: Sequence[Any]) -> _Reader:
        """Chooses among objects: by a member whose constants differ, else by a member that only one of them requires."""
        if len(declared) == 1:
            return self.reader(declared[0])
        tag = tag_of(declared)
        return self._by_tag(declared, tag) if tag is not None else self._by_members(declared)

    def _by_tag(self, declared: Sequence[Any], tag: str) -> _Reader:
        groups: dict[Any, list[Any]] = {}
        for variant in declared:
            for constant in get_args(members(bare(variant))[tag].declared):
                groups.setdefault(constant, []).append(variant)
        table = {(type(constant), constant): self._one_of(group) for constant, group in groups.items()}
        sentence = _one_of_these(list(groups))

        def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
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
        demanded = [{name for name, member in members(bare(variant)).items() if member.required} for variant in declared]
        table = []
        for index, variant in enumerate(declared):
            others = set().union(*(names for place, names in enumerate(demanded) if place != index))
            own = sorted(demanded[index] - others)
            if not own:
                raise TypeError(f"nothing distinguishes {variant!r} from the others")
            table.append((own[0], self.reader(variant)))
        sentence = "must be an object with one of " + ", ".join(name for name, _ in table)

        def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
            if isinstance(value, dict):
                for name, reader in table:
                    if name in value:
                        return reader(value, parent, step, faults)
            _add(faults, parent, step, sentence)
            return value

        return read


def tag_of(declared: Sequence[Any]) -> str | None:
    """The required member that is a constant in each of these objects and has the most different values in them."""
    best, most = None, 1
    for name in members(bare(declared[0])):
        seen = set()
        for variant in declared:
            member = members(bare(variant)).get(name)
            if member is None or not member.required or get_origin(member.declared) is not Literal:
                break
            seen.add(frozenset(get_args(member.declared)))
        else:
            if len(seen) > most:
                best, most = name, len(seen)
    return best


# --- readers of simple values ---


def _anything(value: Any, _parent: _Place, _step: _Step, _faults: _Faults) -> Any:
    return value


def _string(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
    if not isinstance(value, str):
        _add(faults, parent, step, "must be a string")
    return value


def _boolean(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
    if not isinstance(value, bool):
        _add(faults, parent, step, "must be true or false")
    return value


def _null(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
    if value is not None:
        _add(faults, parent, step, "must be null")
    return value


def _integer(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
    if type(value) is int:
        return value
    # To JSON 3.0 is the same number as 3.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    _add(faults, parent, step, "must be an integer")
    return value


def _strict_integer(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
    if type(value) is not int:
        _add(faults, parent, step, "must be an integer")
    return value


def _number(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | LongNumber):
        _add(faults, parent, step, "must be a number")
    return value


def _any_map(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
    if not isinstance(value, dict):
        _add(faults, parent, step, "must be an object")
    return value


def _literal(constants: Sequence[Any]) -> _Reader:
    allowed = {(type(constant), constant) for constant in constants}
    sentence = _one_of_these(constants)

    def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
        if not isinstance(value, str | bool | int) or (type(value), value) not in allowed:
            _add(faults, parent, step, sentence)
        return value

    return read


def _array(reader: _Reader, unique: Unique | None = None) -> _Reader:
    def read(value: Any, parent: _Place, step: _Step, faults: _Faults) -> Any:
        if not isinstance(value, list):
            _add(faults, parent, step, "must be an array")
            return value
        here = (parent, step)
        result = value
        seen: set[str] = set()
        for index, item in enumerate(value):
            before = len(faults)
            got = reader(item, here, index, faults)
            if unique is not None and len(faults) == before:
                if got[unique.member] in seen:
                    _add(faults, (here, index), unique.member, unique.detail)
                seen.add(got[unique.member])
            if got is not item:
                if result is value:
                    result = list(value)
                result[index] = got
        return result

    return read


_SIMPLE: Mapping[Any, tuple[type, str]] = {
    str: (str, "a string"),
    list: (list, "an array"),
    int: (int, "an integer"),
    bool: (bool, "true or false"),
    types.NoneType: (types.NoneType, "null"),
}
"""What a union may contain besides objects: the Python type of such a value, and its name for people."""

_MOST_WORDS = 12


def _one_of_these(constants: Iterable[Any]) -> str:
    words = ["true" if word is True else "false" if word is False else str(word) for word in constants]
    if len(words) == 1:
        return f"must be {words[0]}"
    return f"must be one of {', '.join(words)}" if len(words) <= _MOST_WORDS else "is not a value that this version knows"
