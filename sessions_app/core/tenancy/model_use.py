"""Token counts and costs of model calls: stored with the message, reported by day, session, key and agent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args

from django.db.models import F, Q, QuerySet, Sum

from agents_app.runtime.interface import Usage
from agents_app.spec import AgentSpec, Price
from sessions_app.core.base import maintenance
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.tenancy import usage_entries
from sessions_app.models import ApiKey, ModelUse, ModelUsePurpose, Tenant

_NANO = 10**9
_PER = 10**6
"""Prices are per this number of tokens."""
_MOST = 2**62
_LONGEST_MODEL = 256

_COUNT = """
insert into sessions_app_modeluse (tenant_id, day, session, key_id, agent, model, purpose, calls, input_tokens, output_tokens,
 cache_read_tokens, cost_nano)
values (%s, %s, %s, coalesce((select api_key_id from sessions_app_turn where id = %s), 0), %s, %s, %s, 1, %s, %s, %s, %s)
on conflict (tenant_id, day, session, key_id, agent, model, purpose) do update set
 calls = sessions_app_modeluse.calls + 1,
 input_tokens = sessions_app_modeluse.input_tokens + excluded.input_tokens,
 output_tokens = sessions_app_modeluse.output_tokens + excluded.output_tokens,
 cache_read_tokens = sessions_app_modeluse.cache_read_tokens + excluded.cache_read_tokens,
 cost_nano = coalesce(sessions_app_modeluse.cost_nano + excluded.cost_nano, sessions_app_modeluse.cost_nano, excluded.cost_nano)
"""


def one_call(
    tenant: int,
    session: str,
    turn: int,
    spec: AgentSpec,
    full_model: str,
    usage: Usage,
    purpose: Literal[ModelUsePurpose.TURN, ModelUsePurpose.SUMMARY] = ModelUsePurpose.TURN,
) -> Statement:
    """The statement that counts one model call of a session, for the key that requested the turn's run."""
    return Statement(
        _COUNT,
        (
            tenant,
            usage_entries.today().isoformat(),
            session,
            turn,
            spec.name,
            full_model[:_LONGEST_MODEL],
            purpose.value,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            cost(spec.prices, full_model, usage),
        ),
    )


def cost(prices: Mapping[str, Price], full_model: str, usage: Usage) -> int | None:
    """The cost of one call in billionths of the price unit; None if the model has no price."""
    price = prices.get(full_model) or prices.get(full_model.partition(":")[2])
    if price is None:
        return None
    cached = min(usage.cache_read_tokens, usage.input_tokens)
    of_cached = price.input if price.cache_read is None else price.cache_read
    spent = (usage.input_tokens - cached) * price.input + cached * of_cached + usage.output_tokens * price.output
    return min(round(spent * (_NANO // _PER)), _MOST)


# --- reports -------------------------------------------------------------------------------------

Grouping = Literal["day", "tenant", "key", "agent", "model", "session", "purpose"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
_COLUMNS: Mapping[Grouping, str] = {"tenant": "tenant_id", "key": "key_id"}
_READ_AT_ONCE = 2_000
_MOST_DAYS = 400
_SUMS = {
    "all_calls": Sum("calls", default=0),
    "all_input": Sum("input_tokens", default=0),
    "all_output": Sum("output_tokens", default=0),
    "all_cached": Sum("cache_read_tokens", default=0),
    "all_cost": Sum("cost_nano"),
    "unpriced": Sum(F("input_tokens") + F("output_tokens"), filter=Q(cost_nano=None), default=0),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report. ``groups``: the values of the requested groupings, in their order."""

    groups: tuple[str, ...]
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cost: Decimal | None
    unpriced_tokens: int
    """Tokens used while the model had no price; ``cost`` does not contain them."""


def report(by: Sequence[Grouping], *, tenant: Tenant | None, first: date | None, last: date | None) -> Iterator[Line]:
    """Sums by these groupings, sorted by them; rows are read from the database while iterating."""
    rows = ModelUse.objects.all()
    if tenant is not None:
        rows = rows.filter(tenant_id=tenant.pk)
    if first is not None:
        rows = rows.filter(day__gte=first)
    if last is not None:
        rows = rows.filter(day__lte=last)
    columns = [_COLUMNS.get(group, group) for group in by]
    shown = Names()
    sums = rows.values(*columns).annotate(**_SUMS).order_by(*columns)
    for row in sums.iterator(chunk_size=_READ_AT_ONCE):
        yield _line(tuple(shown.of(group, row[column]) for group, column in zip(by, columns, strict=True)), row)


def _line(groups: tuple[str, ...], row: Mapping[str, Any]) -> Line:
    return Line(
        groups=groups,
        calls=row["all_calls"],
        input_tokens=row["all_input"],
        output_tokens=row["all_output"],
        cache_read_tokens=row["all_cached"],
        cost=None if row["all_cost"] is None else Decimal(int(row["all_cost"])).scaleb(-9),
        unpriced_tokens=row["unpriced"],
    )


def of_session(tenant: int, session: str, since: datetime) -> Line:
    """The sum of one session's model calls; ``since`` is when it was made."""
    today = usage_entries.today()
    first = max(since.astimezone(UTC).date(), today - timedelta(days=_MOST_DAYS))
    # Each day by itself, because the index of a tenant's rows begins with the day.
    days = [first + timedelta(days=number) for number in range((today - first).days + 2)]
    found = ModelUse.objects.filter(tenant_id=tenant, day__in=days, session=session).aggregate(**_SUMS)
    return _line((), found)


class Names:
    """Cached display names of tenants and keys; a deleted one is shown by its number."""

    def __init__(self) -> None:
        self._known: dict[tuple[Grouping, Any], str] = {}

    def of(self, group: Grouping, value: Any) -> str:
        if group not in _COLUMNS:
            return str(value)
        if (group, value) not in self._known:
            self._known[group, value] = self._found(group, value)
        return self._known[group, value]

    def read(self, tenants: Collection[int], keys: Collection[int]) -> None:
        """Read many names at once."""
        slugs = dict(Tenant.objects.filter(pk__in=tenants).values_list("pk", "slug"))
        self._known |= {("tenant", number): slugs.get(number) or f"#{number}" for number in tenants}
        found = {pk: f"{prefix}… {name}".strip() for pk, prefix, name in _keys(keys).values_list("pk", "prefix", "name")}
        self._known |= {("key", number): found.get(number, f"#{number}" if number else "") for number in keys}

    def _found(self, group: Grouping, number: int) -> str:
        self.read([number] if group == "tenant" else [], [] if group == "tenant" else [number])
        return self._known[group, number]


def _keys(numbers: Collection[int]) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(pk__in=numbers)


def delete_before(day: date) -> int:
    """Delete the rows before this day; returns their number."""
    return maintenance.delete_in_batches(ModelUse.objects.filter(day__lt=day))
