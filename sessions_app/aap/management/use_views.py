"""The endpoint of a tenant's use and limits. It needs the scope ``use``, and a key that sees its whole tenant."""

from __future__ import annotations

from datetime import date, timedelta
from typing import cast

from django.http import HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from agents_app.providers import python
from sessions_app.aap.dialect import Document
from sessions_app.aap.management import parameters
from sessions_app.aap.views import Endpoint, caller_of, json_answer
from sessions_app.core import figures
from sessions_app.core.base.caller import USE
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.tenancy.model_use import Grouping, Line

_GROUPS = ("day", "key", "agent", "model")
_USUAL_DAYS, _MOST_DAYS = 30, 400


class UseOfTenant(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD"), USE)
    http_method_names = ["get", "head"]

    def get(self, request: Request) -> HttpResponse:
        groups = tuple(filter(None, request.GET.get("by", "day").split(",")))
        if not groups or len(set(groups)) < len(groups) or not set(groups) <= set(_GROUPS):
            raise ParseError(f"The query `by` must be some of {', '.join(_GROUPS)}, separated by commas, each once.")
        first, last = _period(request)
        found = figures.use_for(caller_of(request), cast("tuple[Grouping, ...]", groups), first, last)
        shown = {
            "first": first.isoformat(),
            "last": last.isoformat(),
            "lines": [_line(groups, line) for line in found.lines],
            "turns": [
                {"day": day.isoformat(), "ended": turns.ended, "errors": turns.errors}
                for day, turns in sorted(found.turns.items())
            ],
            "limits": [{"name": use.name, "used": use.used, "limit": use.limit} for use in found.limits],
        }
        return json_answer(shown)


def _period(request: Request) -> tuple[date, date]:
    last = parameters.day(request.GET, "to") or usage_entries.today()
    first = parameters.day(request.GET, "from") or last - timedelta(days=min(_USUAL_DAYS - 1, (last - date.min).days))
    if not 0 <= (last - first).days < _MOST_DAYS:
        raise InvalidInput([Fault(("from",), f"{first} to {last} must have from 1 to {_MOST_DAYS} days")])
    return first, last


def _line(groups: tuple[str, ...], line: Line) -> Document:
    names = dict(zip(groups, line.groups, strict=True))
    if names.get("model", "").startswith(f"{python.NAME}:"):
        # The import path of a Python agent is internal to the operator.
        names["model"] = python.NAME
    return {
        **names,
        "calls": line.calls,
        "inputTokens": line.input_tokens,
        "outputTokens": line.output_tokens,
        "cacheReadTokens": line.cache_read_tokens,
        "cost": None if line.cost is None else f"{line.cost:f}",
        "unpricedTokens": line.unpriced_tokens,
    }
