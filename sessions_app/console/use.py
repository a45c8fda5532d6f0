"""Use, cost and limits of a tenant: charts by day, and the same figures as files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import IO, Literal, cast, get_args

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe

from agents_app.providers import python
from sessions_app.console import quota_rows
from sessions_app.console.pages import tenant_page
from sessions_app.console.requests import for_members
from sessions_app.core import figures
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.piping import Piped
from sessions_app.core.tenancy import model_use, quotas, rights, usage_entries
from sessions_app.core.tenancy.model_use import Grouping, Line
from sessions_app.core.tenancy.rights import Account, Right
from sessions_app.models import Tenant
from sessions_app.presentation import charts, downloads
from sessions_app.presentation.charts import Chart, Tone

By = Literal["agent", "key", "model"]
PERIODS = {7: "7 days", 30: "30 days", 90: "90 days"}
_USUAL = 30
_MOST_DAYS = 400
_TONES: tuple[Tone, ...] = ("main", "second", "good", "warn")
_REST = "all others"
_MOST_LINES = 200
"""Lines of the table below the charts; a download has all."""


@dataclass(frozen=True, slots=True)
class Period:
    first: date
    last: date

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range((self.last - self.first).days + 1)]


@dataclass(slots=True)
class Group:
    """The use of one agent, key or model in the period."""

    name: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost: Decimal | None = None
    unpriced_tokens: int = 0
    tokens_by_day: dict[str, int] = field(default_factory=dict)
    cost_by_day: dict[str, Decimal] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, day: str, line: Line) -> None:
        self.calls += line.calls
        self.input_tokens += line.input_tokens
        self.output_tokens += line.output_tokens
        self.cache_read_tokens += line.cache_read_tokens
        self.unpriced_tokens += line.unpriced_tokens
        self.tokens_by_day[day] = self.tokens_by_day.get(day, 0) + line.input_tokens + line.output_tokens
        if line.cost is not None:
            self.cost = (self.cost or Decimal(0)) + line.cost
            self.cost_by_day[day] = self.cost_by_day.get(day, Decimal(0)) + line.cost


@require_safe
@for_members
def page(request: HttpRequest, by: Account, slug: str) -> HttpResponse:
    tenant = rights.own_tenant(by, slug, Right.SEE_USE)
    period, grouping = _period(request), _grouping(request)
    groups = _groups(tenant, period, grouping)
    total = Group("all")
    for group in groups:
        _merge(total, group)
    context = {
        "quotas": quota_rows.rows(quotas.usage(tenant)),
        "resets_in": charts.seconds(quotas.seconds_to_midnight()),
        "charts": _charts(tenant, period, groups, total),
        "groups": groups[:_MOST_LINES],
        "left_out": max(0, len(groups) - _MOST_LINES),
        "total": total,
        "by": grouping,
        "groupings": get_args(By),
        "period": period,
        "periods": PERIODS,
        "chosen": len(period.days) if period.last == usage_entries.today() else 0,
        "most_days": _MOST_DAYS,
    }
    return tenant_page(request, by, tenant, "use", "agenthost/console/use.html", context)


@require_safe
@for_members
def download(request: HttpRequest, by: Account, slug: str) -> HttpResponseBase:
    """The period's use by day, key, agent and model, as CSV or JSON."""
    tenant = rights.own_tenant(by, slug, Right.SEE_USE)
    period, form = _period(request), request.GET.get("format", "csv")
    if form not in ("csv", "json"):
        raise InvalidInput([Fault(("format",), f"{form[:40]!r} is none of csv, json")])
    groupings: tuple[Grouping, ...] = ("day", "key", "agent", "model")
    lines = model_use.report(groupings, tenant=tenant, first=period.first, last=period.last)

    def names_of(line: Line) -> list[str]:
        return [_name(grouping, name) for grouping, name in zip(groupings, line.groups, strict=True)]

    columns = [*groupings, "calls", "input_tokens", "output_tokens", "cache_read_tokens", "cost", "unpriced_tokens"]

    def write(out: IO[bytes]) -> None:
        pieces = _csv(columns, lines, names_of) if form == "csv" else _json(columns, lines, names_of)
        for piece in pieces:
            out.write(piece.encode())

    return downloads.response(Piped(write, "use"), f"use-{tenant.slug}-{period.first}-{period.last}.{form}")


NamesOf = Callable[[Line], list[str]]


def _csv(columns: list[str], lines: Iterable[Line], names_of: NamesOf) -> Iterator[str]:
    yield _row(columns)
    for line in lines:
        yield _row([*map(_cell, names_of(line)), *_numbers(line)])


def _row(values: Sequence[int | str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _json(columns: list[str], lines: Iterable[Line], names_of: NamesOf) -> Iterator[str]:
    between = "[\n"
    for line in lines:
        values = [*names_of(line), *_numbers(line)]
        yield between + json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False)
        between = ",\n"
    yield "[]\n" if between.startswith("[") else "\n]\n"


def _numbers(line: Line) -> list[int | str]:
    cost = "" if line.cost is None else f"{line.cost:f}"
    return [line.calls, line.input_tokens, line.output_tokens, line.cache_read_tokens, cost, line.unpriced_tokens]


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


# --- what is asked for -----------------------------------------------------------------------------


def _period(request: HttpRequest) -> Period:
    today = usage_entries.today()
    first, last = _date(request, "from"), _date(request, "to")
    if first is None and last is None:
        days = request.GET.get("days", "")
        return Period(today - timedelta(days=(int(days) if days in map(str, PERIODS) else _USUAL) - 1), today)
    last = min(last or today, today)
    first = last - min(timedelta(days=_USUAL - 1), last - date.min) if first is None else first
    if first > last:
        raise InvalidInput([Fault(("from",), f"{first} is after {last}")])
    if (last - first).days >= _MOST_DAYS:
        raise InvalidInput([Fault(("from",), f"{first} to {last} has more than {_MOST_DAYS} days; choose a shorter period")])
    return Period(first, last)


def _date(request: HttpRequest, name: str) -> date | None:
    text = request.GET.get(name, "").strip()
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput([Fault((name,), f"{text[:40]!r} is not a day such as 2026-11-30")]) from None


def _grouping(request: HttpRequest) -> By:
    wanted = request.GET.get("by", "")
    return cast(By, wanted) if wanted in get_args(By) else "agent"


def _groups(tenant: Tenant, period: Period, by: By) -> list[Group]:
    """Those with the most tokens first."""
    found: dict[str, Group] = {}
    for line in model_use.report(("day", by), tenant=tenant, first=period.first, last=period.last):
        day, name = line.groups
        shown = _name(by, name)
        found.setdefault(shown, Group(shown)).add(day, line)
    return sorted(found.values(), key=lambda group: (-group.tokens, group.name))


def _name(grouping: Grouping, name: str) -> str:
    if grouping == "key":
        return name or "no key"
    # The import path of a Python agent is internal to the operator.
    return "a Python agent" if grouping == "model" and name.startswith(f"{python.NAME}:") else name


def _merge(total: Group, group: Group) -> None:
    total.calls += group.calls
    total.input_tokens += group.input_tokens
    total.output_tokens += group.output_tokens
    total.cache_read_tokens += group.cache_read_tokens
    total.unpriced_tokens += group.unpriced_tokens
    if group.cost is not None:
        total.cost = (total.cost or Decimal(0)) + group.cost


# --- charts ----------------------------------------------------------------------------------------


def _charts(tenant: Tenant, period: Period, groups: Sequence[Group], total: Group) -> list[Chart]:
    days = period.days
    times = [day.isoformat() for day in days]
    ended = figures.turns_by_day(tenant.pk, period.first, period.last)
    turns = [ended.get(day, figures.Turns()) for day in days]
    return [
        Chart(
            "turns",
            "Turns by day",
            charts.count(sum(one.ended for one in turns)),
            times,
            [
                charts.Line("without an error", "main", [float(one.ended - one.errors) for one in turns]),
                charts.Line("with an error", "bad", [float(one.errors) for one in turns]),
            ],
            charts.count,
            bars=True,
        ),
        Chart(
            "tokens",
            "Tokens by day",
            charts.count(total.tokens),
            times,
            _stacked(groups, times, lambda group, day: float(group.tokens_by_day.get(day, 0))),
            charts.count,
            bars=True,
        ),
        Chart(
            "cost",
            "Cost by day, in the unit of the price list",
            charts.money(float(total.cost or 0) * 10**9),
            times,
            _stacked(groups, times, lambda group, day: float(group.cost_by_day.get(day, 0)) * 10**9),
            charts.money,
            bars=True,
        ),
    ]


def _stacked(groups: Sequence[Group], times: Sequence[str], value: Callable[[Group, str], float]) -> list[charts.Line]:
    """A part for each of the greatest groups, and one for all others."""
    shown, rest = groups[: len(_TONES)], groups[len(_TONES) :]
    lines = [
        charts.Line(group.name, tone, [value(group, day) for day in times]) for group, tone in zip(shown, _TONES, strict=False)
    ]
    if rest:
        lines.append(charts.Line(_REST, "quiet", [sum(value(group, day) for group in rest) for day in times]))
    return lines
