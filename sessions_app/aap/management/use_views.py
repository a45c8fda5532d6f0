"""The endpoint of a tenant's use and limits. It needs the scope ``use``, and a key that sees its whole tenant."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import islice
from typing import cast

from django.http import HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from agents_app.providers import python
from sessions_app.aap.dialect import Document
from sessions_app.aap.views import Endpoint, caller_of, json_answer
from sessions_app.core.base.caller import USE
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible
from sessions_app.core.tenancy import model_use, quotas, usage_entries
from sessions_app.core.tenancy.model_use import Grouping, Line
from sessions_app.models import Tenant

_GROUPS = ("day", "key", "agent", "model")
_USUAL_DAYS, _MOST_DAYS, _MOST_LINES = 30, 400, 10_000


class UseOfTenant(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD"), USE)
    http_method_names = ["get", "head"]

    def get(self, request: Request) -> HttpResponse:
        caller = caller_of(request)
        if caller.token or not caller.sight.is_whole:
            raise NotPossible("use is reported for the whole tenant, so a token or a key that is limited to agents cannot see it")
        tenant = Tenant.objects.get(pk=caller.tenant)
        groups = tuple(filter(None, request.GET.get("by", "day").split(",")))
        if not groups or len(set(groups)) < len(groups) or not set(groups) <= set(_GROUPS):
            raise ParseError(f"The query `by` must be some of {', '.join(_GROUPS)}, separated by commas, each once.")
        first, last = _period(request)
        by = cast("tuple[Grouping, ...]", groups)
        lines = list(islice(model_use.report(by, tenant=tenant, first=first, last=last), _MOST_LINES + 1))
        if len(lines) > _MOST_LINES:
            raise InvalidInput([Fault(("by",), f"gives more than {_MOST_LINES:,} lines; name fewer groups, or a shorter period")])
        shown = {
            "first": first.isoformat(),
            "last": last.isoformat(),
            "lines": [_line(groups, line) for line in lines],
            "limits": [{"name": use.name, "used": use.used, "limit": use.limit} for use in quotas.usage(tenant)],
        }
        return json_answer(shown)


def _period(request: Request) -> tuple[date, date]:
    last = _day(request, "to") or usage_entries.today()
    first = _day(request, "from") or last - timedelta(days=min(_USUAL_DAYS - 1, (last - date.min).days))
    if not 0 <= (last - first).days < _MOST_DAYS:
        raise InvalidInput([Fault(("from",), f"{first} to {last} must have from 1 to {_MOST_DAYS} days")])
    return first, last


def _day(request: Request, name: str) -> date | None:
    text = request.GET.get(name)
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ParseError(f"The query `{name}` must be a day such as 2026-11-30.") from None


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
