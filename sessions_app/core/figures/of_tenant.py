"""What a client with a key sees of its tenant's use: sums, limits and turns by day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice

from sessions_app.core.base.caller import USE, Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible
from sessions_app.core.figures.attention import Attention, attention
from sessions_app.core.figures.by_day import Turns, turns_by_day
from sessions_app.core.figures.reading import Busy, Range, Series, busiest, series
from sessions_app.core.tenancy import model_use, quotas
from sessions_app.core.tenancy.model_use import Grouping, Line
from sessions_app.models import Tenant

MOST_LINES = 10_000
MOST_AGENTS = 50


@dataclass(frozen=True, slots=True)
class UseOfTenant:
    lines: Sequence[Line]
    limits: Sequence[quotas.Use]
    turns: Mapping[date, Turns]


def use_for(caller: Caller, by: Sequence[Grouping], first: date, last: date) -> UseOfTenant:
    """``by``: what to sum by. InvalidInput for more than ``MOST_LINES`` sums."""
    tenant = _seen_by(caller)
    lines = list(islice(model_use.report(by, tenant=tenant, first=first, last=last), MOST_LINES + 1))
    if len(lines) > MOST_LINES:
        raise InvalidInput([Fault(("by",), f"gives more than {MOST_LINES:,} lines; name fewer groups, or a shorter period")])
    return UseOfTenant(lines, quotas.usage(tenant), turns_by_day(tenant.pk, first, last))


@dataclass(frozen=True, slots=True)
class OverviewOfTenant:
    """``agents``: those with the most turns, at most ``MOST_AGENTS``."""

    series: Series
    attention: Attention
    agents: Sequence[Busy]
    limits: Sequence[quotas.Use]


def overview_for(caller: Caller, of: Range) -> OverviewOfTenant:
    """What happened lately, and what waits for somebody. ``of``: the time that the sums are of."""
    tenant = _seen_by(caller)
    only = [tenant.pk]
    return OverviewOfTenant(series(of, only), attention(only), busiest(of, "agent", MOST_AGENTS, only), quotas.usage(tenant))


def _seen_by(caller: Caller) -> Tenant:
    caller.require(USE)
    if caller.token or not caller.sight.is_whole:
        raise NotPossible("use is reported for the whole tenant, so a token or a key that is limited to agents cannot see it")
    return Tenant.objects.get(pk=caller.tenant)
