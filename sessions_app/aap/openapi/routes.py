"""The served versions, read from the routes: a version that is removed there is removed here too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django.urls import URLResolver, get_resolver

from sessions_app.aap.dialect import Dialect
from sessions_app.aap.openapi.description import Description

_BASE = re.compile(r"aap/v(\d+)/")


@dataclass(frozen=True, slots=True)
class Routed:
    """One version: its routes below its base, and the dialect of its views."""

    patterns: list[Any]
    dialect: Dialect

    def description(self) -> Description:
        return self.dialect.description()


def routes() -> dict[int, Routed]:
    """By version, newest first."""
    found: dict[int, Routed] = {}
    resolver = get_resolver("sessions_app.aap.urls")
    for entry in resolver.url_patterns:
        base = _BASE.fullmatch(str(entry.pattern))
        if base is not None and isinstance(entry, URLResolver):
            found[int(base[1])] = Routed(entry.url_patterns, _dialect(entry.url_patterns[0]))
    return dict(sorted(found.items(), reverse=True))


def _dialect(route: Any) -> Dialect:
    view: Any = route.callback
    dialect = view.view_initkwargs.get("dialect", view.view_class.dialect)
    assert isinstance(dialect, Dialect)
    return dialect
