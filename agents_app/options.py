"""Values of an agent's options: effective values, validation, and filling of templates. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agents_app.spec import AgentSpec

LONGEST_VALUE = 256 * 1024
"""Characters. Every response that shows the session contains the values."""
UNCHANGED_SECRET = "***"  # noqa: S105 - what clients see, and may send back, in place of a secret
"""A client that sends this value for a secret option leaves the secret unchanged."""

_PLACE = re.compile(r"\{\{([A-Za-z_][\w.-]*)\}\}|\{([^{}]+)\}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def effective(spec: AgentSpec, stored: Mapping[str, str]) -> dict[str, str]:
    """The value of every option of the agent: the stored one if it is valid, else the default.

    A secret that is stored as ``UNCHANGED_SECRET`` was never set, so its default counts too.
    """
    values: dict[str, str] = {}
    for option in spec.options:
        value = stored.get(option.name)
        gone = option.type == "select" and value not in option.options
        untyped = option.type == "secret" and value in ("", UNCHANGED_SECRET)
        values[option.name] = option.default if value is None or gone or untyped else value
    return values


def fill(template: str, values: Mapping[str, str]) -> str:
    """``template`` with each ``{name}`` replaced by its value; placeholders in values are not replaced.

    ``{{name}}`` gives the literal text ``{name}``; braces around anything else stay as they are.
    """

    def replacement(place: re.Match[str]) -> str:
        literal, name = place.groups()
        if literal is not None:
            return f"{{{literal}}}"
        return values.get(name, place.group())

    return _PLACE.sub(replacement, template)


def as_written(text: str, known: Mapping[str, Any] | frozenset[str]) -> str:
    """A template that gives ``text`` unchanged, except for placeholders of known options."""

    def kept(place: re.Match[str]) -> str:
        literal, name = place.groups()
        asks = name in known or not _NAME.fullmatch(name or literal)
        return place.group() if literal is None and asks else f"{{{place.group()}}}"

    return _PLACE.sub(kept, text)


def fill_all(value: Any, values: Mapping[str, str]) -> Any:
    """``fill`` on every string in a JSON value; the names of members stay as they are."""
    if isinstance(value, str):
        return fill(value, values)
    if isinstance(value, Mapping):
        return {name: fill_all(item, values) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_all(item, values) for item in value]
    return value


def places(template: str, known: Mapping[str, Any] | frozenset[str]) -> list[str]:
    """The names of a template's placeholders, in order, each once: known options and anything that looks like one."""
    names: dict[str, None] = {}
    for place in _PLACE.finditer(template):
        name = place.group(2)
        if name is not None and (name in known or _NAME.fullmatch(name)):
            names[name] = None
    return list(names)


def unset_secrets(spec: AgentSpec, templates: Iterable[str]) -> list[str]:
    """The secret options in these templates that have no default, so that only a session can set them."""
    by_name = {option.name: option for option in spec.options}
    found: dict[str, None] = {}
    for template in templates:
        for name in places(template, by_name):
            option = by_name.get(name)
            if option is not None and option.type == "secret" and not option.default:
                found[name] = None
    return list(found)


def faults(spec: AgentSpec, given: Mapping[str, object]) -> list[tuple[str, str]]:
    """The faults of option values that a client sends: (option name, reason). Never repeats a value."""
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        option = spec.option(name)
        if option is None:
            found.append((name, "The agent has no option of this name."))
        elif not isinstance(value, str):
            found.append((name, "An option's value is a string."))
        elif option.type == "select" and value not in option.options:
            found.append((name, "The value is not one of the option's choices."))
        elif len(value) > LONGEST_VALUE:
            found.append((name, f"The value has {len(value):,} characters; the limit is {LONGEST_VALUE:,}."))
    return found
