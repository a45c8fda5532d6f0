"""Typed readers of the environment; no other module reads it.

Each variable NAME may be given as NAME_FILE instead, the path of a file that holds the value, as secret
stores mount it. A value that cannot be read stops the start and names the variable. What was wrong is
said, the value never: any of them may be a secret.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")

ROLES = ("web", "worker", "beat", "migrate", "embedded")

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


def given(name: str) -> str | None:
    """The variable's text without surrounding white space; None if it is unset or empty."""
    value, path = os.environ.get(name, "").strip(), os.environ.get(f"{name}_FILE", "").strip()
    if value and path:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; give one of them.")
    if not path:
        return value or None
    try:
        # utf-8-sig: an editor's byte order mark would otherwise become part of a secret.
        return Path(path).read_text(encoding="utf-8-sig").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ImproperlyConfigured(f"{name}_FILE: the file it names cannot be read: {reason}.") from None


def text(name: str, default: str = "") -> str:
    value = given(name)
    return default if value is None else value


def integer(name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
    value = given(name)
    if value is None:
        return default
    if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        raise ImproperlyConfigured(f"{name}: a whole number is needed.")
    number_given = int(value)
    if number_given < least or (most is not None and number_given > most):
        raise ImproperlyConfigured(f"{name}: a whole number {_span(least, most)} is needed.")
    return number_given


def limit(name: str) -> int | None:
    """A whole number; None, no limit, if the variable is unset."""
    return None if given(name) is None else integer(name, 0)


def number(name: str, default: float, *, least: float = 0.0, most: float | None = None) -> float:
    value = given(name)
    if value is None:
        return default
    try:
        number_given = float(value)
    except ValueError:
        number_given = math.nan
    if not math.isfinite(number_given):
        raise ImproperlyConfigured(f"{name}: a number is needed.")
    if number_given < least or (most is not None and number_given > most):
        raise ImproperlyConfigured(f"{name}: a number {_span(least, most)} is needed.")
    return number_given


def boolean(name: str, *, default: bool) -> bool:
    value = given(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}: yes or no is needed (1, true, yes, on; 0, false, no, off).")


def duration(name: str, default: float, *, least: float = 0.0) -> float:
    """Seconds; the value is a number of them or carries a unit: 500ms, 15s, 10m, 24h, 30d."""
    value = given(name)
    if value is None:
        return default
    match = _DURATION.fullmatch(value.lower())
    if match is None:
        raise ImproperlyConfigured(f"{name}: a time is needed, in seconds or with a unit (500ms, 15s, 10m, 24h, 30d).")
    seconds = float(match[1]) * _UNITS[match[2] or ""]
    if seconds < least:
        raise ImproperlyConfigured(f"{name}: a time of at least {least:g} s is needed.")
    return seconds


def items(name: str, default: list[str]) -> list[str]:
    """Values between commas, without empty ones."""
    value = given(name)
    return list(default) if value is None else [part for part in (piece.strip() for piece in value.split(",")) if part]


def each(name: str, read: Callable[[str], T], default: list[T]) -> list[T]:
    """Values between commas, each as ``read`` gives it; what it says in a ValueError is shown."""
    found: list[T] = []
    if given(name) is None:
        return list(default)
    for number, item in enumerate(items(name, []), 1):
        try:
            found.append(read(item))
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: value {number}: {error}.") from None
    return found


def path(name: str, default: Path | None = None) -> Path | None:
    value = given(name)
    return default if value is None else Path(value).expanduser().absolute()


def existing_file(name: str) -> Path | None:
    """A path that must name a file."""
    found = path(name)
    if found is not None and not found.is_file():
        raise ImproperlyConfigured(f"{name}: there is no such file.")
    return found


def url(name: str, schemes: tuple[str, ...]) -> str | None:
    """An address with one of the schemes; what stands in it (passwords) is never repeated in an error."""
    value = given(name)
    if value is None:
        return None
    if _scheme(value) not in schemes:
        raise ImproperlyConfigured(f"{name}: an address is needed that begins with {' or '.join(f'{s}://' for s in schemes)}.")
    try:
        # RabbitMQ's may be several.
        for each in value.split(";") if value.lower().startswith("amqp") else [value]:
            _ = urlsplit(each).port
    except ValueError:
        raise ImproperlyConfigured(
            f"{name}: it cannot be read as an address. The port is a number; in a user or password / is written %2F, @ %40,"
            " # %23, ? %3F and % %25."
        ) from None
    return value


def origins(name: str, default: list[str], *, subdomains: bool = False) -> list[str]:
    """Web origins (scheme, host, port; no path) as browsers write them, or * for all.

    ``subdomains``: ``https://*.example.org`` means something to whoever reads them.
    """
    return [_origin(name, given, subdomains=subdomains) for given in items(name, default)]


def _origin(name: str, given: str, *, subdomains: bool) -> str:
    if given == "*":
        return given
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#@]+", given):
        raise ImproperlyConfigured(f"{name}: an origin is * or like https://app.example.org, without a path.")
    origin = given.lower()
    if "*" in origin and not (subdomains and re.fullmatch(r"[^*]+://\*\.[^*]+", origin)):
        raise ImproperlyConfigured(f"{name}: * stands for every origin and cannot be a part of one; list each origin in full.")
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        # A browser leaves the usual port out of the origin it names.
        if origin.startswith(scheme):
            origin = origin.removesuffix(port)
    return origin


def sealing_keys(name: str) -> list[bytes]:
    """Keys of 32 bytes in base64 (either alphabet), newest first; empty if the variable is unset."""
    return decode_keys(name, text(name))


def decode_keys(name: str, encoded: str) -> list[bytes]:
    keys = []
    for part in filter(None, (piece.strip() for piece in encoded.split(","))):
        plain = part.rstrip("=").replace("-", "+").replace("_", "/")
        try:
            key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != 32:
            raise ImproperlyConfigured(f"{name}: each key must be the base64 of 32 bytes; newest first, commas between.")
        keys.append(key)
    if len(set(keys)) != len(keys):
        raise ImproperlyConfigured(f"{name}: a key stands there twice.")
    return keys


def role(name: str = "AGENTHOST_ROLE") -> str:
    """The process's role, "" for management commands."""
    value = text(name)
    if value and value not in ROLES:
        raise ImproperlyConfigured(f"{name}: one of {', '.join(ROLES)} is needed.")
    return value


@dataclass(frozen=True, slots=True)
class Database:
    """What a database address says. ``options`` are the driver's own parameters, from its query part."""

    vendor: str
    name: str
    user: str = ""
    password: str = field(default="", repr=False)
    host: str = ""
    port: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def database(name: str) -> Database | None:
    """postgres://user:password@host:port/name?sslmode=require, or sqlite:///relative or sqlite:////absolute."""
    value = url(name, ("postgres", "postgresql", "sqlite"))
    if value is None:
        return None
    parts = urlsplit(value)
    port = parts.port
    database_name = unquote(parts.path.removeprefix("/"))
    if not database_name:
        raise ImproperlyConfigured(f"{name}: it names no database.")
    if parts.scheme == "sqlite":
        return Database("sqlite", database_name)
    options = dict(parse_qsl(parts.query))
    return Database(
        "postgresql",
        database_name,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        # A socket's directory cannot stand where a host stands; libpq's own way is ?host=/run/postgresql.
        host=options.pop("host", "") or unquote(parts.hostname or ""),
        port=options.pop("port", "") or ("" if port is None else str(port)),
        options=options,
    )


def _scheme(value: str) -> str:
    scheme, separator, _rest = value.partition("://")
    return scheme.lower() if separator else ""


def _span(least: float, most: float | None) -> str:
    return f"of at least {least:g}" if most is None else f"from {least:g} to {most:g}"
