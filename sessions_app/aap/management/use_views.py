"""The endpoints of a tenant's use, limits and latest figures. They need the scope ``use``; the key sees the whole tenant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import cast, get_args

from django.http import HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from agents_app.providers import python
from sessions_app.aap.dialect import Document
from sessions_app.aap.management import parameters, types
from sessions_app.aap.management.webhook_views import time_text
from sessions_app.aap.views import Endpoint, caller_of, json_answer
from sessions_app.core import figures
from sessions_app.core.base.caller import KEYS, READ, USE, Caller
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.tenancy import quotas, usage_entries
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
            "limits": [_limit(use) for use in found.limits],
        }
        return json_answer(shown)


class OverviewOfTenant(Endpoint):
    """What the console's first page of a tenant shows."""

    scopes = dict.fromkeys(("GET", "HEAD"), USE)
    http_method_names = ["get", "head"]

    def get(self, request: Request) -> HttpResponse:
        of = cast(figures.Range, parameters.choice(request.GET, "range", get_args(figures.Range)) or "day")
        caller = caller_of(request)
        return json_answer(dict(_overview(of, figures.overview_for(caller, of), caller)))


def _overview(of: figures.Range, found: figures.OverviewOfTenant, caller: Caller) -> types.OverviewOfTenant:
    """Without the sessions and keys that the caller's scopes do not allow it to see."""
    series, waits = found.series, found.attention
    shown: types.OverviewOfTenant = {
        "range": of,
        "running": waits.running,
        "queued": waits.queued,
        "waiting": waits.waiting,
        "workersAlive": waits.workers > 0,
        "turns": series.total.turns,
        "errors": series.total.errors,
        "firstOutputSeconds": _percentiles(series.first_output),
        "durationSeconds": _percentiles(series.duration),
        "calls": series.use.calls,
        "inputTokens": series.use.input_tokens,
        "outputTokens": series.use.output_tokens,
        "cacheReadTokens": series.use.cache_read_tokens,
        "cost": f"{Decimal(series.use.cost_nano).scaleb(-9).normalize():f}",
        "agents": [{"agent": str(busy.name), "turns": busy.turns, "errors": busy.errors} for busy in found.agents],
        "limits": [_limit(use) for use in found.limits],
    }
    if caller.may(READ):
        shown["waitingLongest"] = [
            {
                "sessionId": turn.session.public_id,
                "agent": turn.session.agent_name,
                "since": time_text(turn.queued_at) or "",
            }
            for turn in waits.waiting_longest
        ]
    if caller.may(KEYS):
        shown["keysThatExpire"] = [
            {"id": str(key.pk), "prefix": key.prefix, "name": key.name, "expiresAt": time_text(key.expires_at) or ""}
            for key in waits.expiring
        ]
    return shown


def _percentiles(value: Callable[[float], float | None]) -> types.Percentiles:
    return {"median": value(0.5), "p95": value(0.95)}


def _limit(use: quotas.Use) -> types.LimitOfTenant:
    return {"name": use.name, "used": use.used, "limit": use.limit}


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
