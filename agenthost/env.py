"""Typed readers of environment variables; no other module reads the environment.

Instead of the variable NAME, NAME_FILE may name a file that contains the value, as secret stores mount it.
An invalid value stops the start. The error names the variable and the reason, never the value, which may be
a secret.
"""

from __future__ import annotations

import base64
import binascii
import difflib
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

ROLES = ("web", "worker", "terminals", "beat", "migrate", "embedded")

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")


_OWN = "AGENTHOST_"
_OF_OTHERS = ("AGENTHOST_TEST_", "AGENTHOST_URL", "AGENTHOST_KEY")
"""Variables of the tests and of the terminal chat, which may be set in the same shell."""
_read: set[str] = set()


def unknown() -> dict[str, str | None]:
    """Variables that look like settings of this server and were never read, each with the setting of the nearest name."""
    names = {
        name.removesuffix("_FILE")
        for name in os.environ
        # A setting may itself end in _FILE.
        if name.startswith(_OWN) and name not in _read and not name.startswith(_OF_OTHERS[0])
    }
    strange = sorted(names - _read - {*_OF_OTHERS})
    return {name: next(iter(difflib.get_close_matches(name, _read, n=1, cutoff=0.8)), None) for name in strange}


def read(name: str) -> str | None:
    """The variable's text without surrounding white space; None if it is unset or empty."""
    _read.add(name)
    value, path = os.environ.get(name, "").strip(), os.environ.get(f"{name}_FILE", "").strip()
    if value and path:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; set only one of them.")
    if not path:
        return value or None
    try:
        # utf-8-sig, because a byte order mark would become part of the secret.
        return Path(path).read_text(encoding="utf-8-sig").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ImproperlyConfigured(f"{name}_FILE: the file cannot be read: {reason}.") from None


def text(name: str, default: str = "") -> str:
    value = read(name)
    return default if value is None else value


def integer(name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
    value = read(name)
    if value is None:
        return default
    if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        raise ImproperlyConfigured(f"{name}: the value must be a whole number.")
    parsed = int(value)
    if parsed < least or (most is not None and parsed > most):
        raise ImproperlyConfigured(f"{name}: the value must be a whole number {_range(least, most)}.")
    return parsed


def limit(name: str) -> int | None:
    """A whole number; None (no limit) if the variable is unset."""
    return None if read(name) is None else integer(name, 0)


def number(name: str, default: float, *, least: float = 0.0, most: float | None = None) -> float:
    value = read(name)
    if value is None:
        return default
    try:
        parsed = float(value)
    except ValueError:
        parsed = math.nan
    if not math.isfinite(parsed):
        raise ImproperlyConfigured(f"{name}: the value must be a number.")
    if parsed < least or (most is not None and parsed > most):
        raise ImproperlyConfigured(f"{name}: the value must be a number {_range(least, most)}.")
    return parsed


def boolean(name: str, *, default: bool) -> bool:
    value = read(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}: yes or no is needed (1, true, yes, on; 0, false, no, off).")


def word(name: str, words: tuple[str, ...]) -> str:
    """One of a few words; the first one by default."""
    value = text(name, words[0]).lower()
    if value not in words:
        raise ImproperlyConfigured(f"{name}: the value must be one of {', '.join(words)}.")
    return value


def duration(name: str, default: float, *, least: float = 0.0) -> float:
    """Seconds; the value is a number of seconds, or has a unit: 500ms, 15s, 10m, 24h, 30d."""
    value = read(name)
    if value is None:
        return default
    match = _DURATION.fullmatch(value.lower())
    if match is None:
        raise ImproperlyConfigured(f"{name}: the value must be a duration in seconds or with a unit (500ms, 15s, 10m, 24h, 30d).")
    seconds = float(match[1]) * _UNITS[match[2] or ""]
    if seconds < least:
        raise ImproperlyConfigured(f"{name}: the duration must be at least {least:g} s.")
    return seconds


def items(name: str, default: list[str]) -> list[str]:
    """Comma-separated values, without empty ones."""
    value = read(name)
    return list(default) if value is None else [part for part in (piece.strip() for piece in value.split(",")) if part]


def parsed_items(name: str, parse: Callable[[str], T], default: list[T], *, most: int | None = None) -> list[T]:
    """Comma-separated values, at most ``most``, each parsed by ``parse``, whose ValueErrors are shown to the operator."""
    values: list[T] = []
    if read(name) is None:
        return list(default)
    for number, item in enumerate(items(name, []), 1):
        try:
            values.append(parse(item))
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: value {number}: {error}.") from None
    if most is not None and len(values) > most:
        raise ImproperlyConfigured(f"{name}: {len(values)} values; at most {most} are allowed.")
    return values


def path(name: str, default: Path | None = None) -> Path | None:
    value = read(name)
    return default if value is None else Path(value).expanduser().absolute()


def absolute_path(text: str) -> Path:
    """An absolute path without ``..``; ``ValueError`` if it is none."""
    found = Path(text)
    if not found.is_absolute() or ".." in found.parts:
        raise ValueError("an absolute path without .. is needed")
    return found


def existing_file(name: str) -> Path | None:
    """The path of a file that exists."""
    file = path(name)
    if file is not None and not file.is_file():
        raise ImproperlyConfigured(f"{name}: the file does not exist.")
    return file


def url(name: str, schemes: tuple[str, ...]) -> str | None:
    """A URL with one of the schemes. Errors never quote it, because it may contain a password."""
    value = read(name)
    if value is None:
        return None
    if _scheme(value) not in schemes:
        raise ImproperlyConfigured(f"{name}: the value must be a URL that begins with {' or '.join(f'{s}://' for s in schemes)}.")
    try:
        # For RabbitMQ the value may be several URLs.
        for part in value.split(";") if value.lower().startswith("amqp") else [value]:
            _ = urlsplit(part).port
    except ValueError:
        raise ImproperlyConfigured(
            f"{name}: the value is not a valid URL. The port must be a number. In user and password, write %2F for /, %40 for @,"
            " %23 for #, %3F for ? and %25 for %."
        ) from None
    return value


def webhook_secret(name: str) -> str:
    """A secret of Standard Webhooks: ``whsec_`` and 24 to 64 bytes in base64. Empty if it is unset."""
    value = read(name)
    if value is None:
        return ""
    try:
        secret = base64.b64decode(value.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not value.startswith("whsec_") or not 24 <= len(secret) <= 64:
        raise ImproperlyConfigured(f"{name}: the value must be whsec_ followed by 24 to 64 bytes in base64.")
    return value


def origins(name: str, default: list[str], *, subdomains: bool = False) -> list[str]:
    """Web origins (scheme, host, port; no path) in the form that browsers send, or * for all.

    ``subdomains``: also accepts ``https://*.example.org``.
    """
    return [_origin(name, item, subdomains=subdomains) for item in items(name, default)]


def _origin(name: str, item: str, *, subdomains: bool) -> str:
    if item == "*":
        return item
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#@]+", item):
        raise ImproperlyConfigured(f"{name}: an origin is * or, for example, https://app.example.org, without a path.")
    origin = item.lower()
    if "*" in origin and not (subdomains and re.fullmatch(r"[^*]+://\*\.[^*]+", origin)):
        raise ImproperlyConfigured(f"{name}: * means all origins and cannot be part of an origin; list each origin in full.")
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        # Browsers omit the default port.
        if origin.startswith(scheme):
            origin = origin.removesuffix(port)
    return origin


def former_secrets(name: str, present: str) -> list[str]:
    """Former values of a secret, comma-separated; empty if the variable is unset."""
    found = items(name, [])
    if present in found:
        raise ImproperlyConfigured(f"{name}: the list contains AGENTHOST_SECRET_KEY itself; list only other keys.")
    if len(set(found)) != len(found):
        raise ImproperlyConfigured(f"{name}: a key is listed twice.")
    return found


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
            raise ImproperlyConfigured(f"{name}: each key must be 32 bytes in base64; newest first, separated by commas.")
        keys.append(key)
    if len(set(keys)) != len(keys):
        raise ImproperlyConfigured(f"{name}: a key is listed twice.")
    return keys


def role(name: str = "AGENTHOST_ROLE") -> str:
    """The process's role, "" for management commands."""
    value = text(name)
    if value and value not in ROLES:
        raise ImproperlyConfigured(f"{name}: the value must be one of {', '.join(ROLES)}.")
    return value


@dataclass(frozen=True, slots=True)
class Database:
    """A parsed database URL. ``options`` are the driver's parameters, from the query part."""

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
        raise ImproperlyConfigured(f"{name}: the URL has no database name.")
    if parts.scheme == "sqlite":
        return Database("sqlite", database_name)
    options = dict(parse_qsl(parts.query))
    return Database(
        "postgresql",
        database_name,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        # The directory of a Unix socket cannot be a URL's host; as in libpq, it is ?host=/run/postgresql.
        host=options.pop("host", "") or unquote(parts.hostname or ""),
        port=options.pop("port", "") or ("" if port is None else str(port)),
        options=options,
    )


def _scheme(value: str) -> str:
    scheme, separator, _rest = value.partition("://")
    return scheme.lower() if separator else ""


def _range(least: float, most: float | None) -> str:
    return f"of at least {least:g}" if most is None else f"from {least:g} to {most:g}"
