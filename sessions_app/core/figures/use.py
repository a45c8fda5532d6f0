"""Spreads the counts of model calls over time: what was added to a day's model use since the last round.

``ModelUse`` has one row for each session, day, key, agent and model, without times. Its sums are compared with those of the
last round, and the differences are added to the current minute, in one transaction with the new sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Sum

from sessions_app.core.figures import marks
from sessions_app.models import HOUR, MINUTE, ModelUse, Tenant, UseCounted, UseFigures

_MARK = "use"
MOST_A_DAY = 1000
"""Combinations of tenant, key, agent and model that are counted apart on one day; the others are summed for each tenant."""
COLUMNS = ("calls", "input_tokens", "output_tokens", "cache_read_tokens", "cost_nano")

Place = tuple[int, int, str, str]
Amounts = tuple[int, int, int, int, int]
ALL: Place = (0, -1, "", "")
_NOTHING: Amounts = (0, 0, 0, 0, 0)


def count(now: datetime) -> None:
    day = now.date()
    with transaction.atomic():
        is_first = marks.read(_MARK) is None
        added: dict[Place, Amounts] = {}
        # A call that began before midnight may be counted for its day afterwards.
        for each in (day - timedelta(days=1), day):
            _compare(each, added)
        # What an older installation used before its first round belongs to no minute; a new one is in its first hour.
        if not is_first or not Tenant.objects.filter(created_at__lt=now - timedelta(hours=1)).exists():
            _store(marks.start_of(now, MINUTE), added, MINUTE)
            _store(marks.start_of(now, HOUR), added, HOUR)
        UseCounted.objects.filter(day__lt=day - timedelta(days=1)).delete()
        marks.write(_MARK, now)


def _compare(day: date, added: dict[Place, Amounts]) -> None:
    known = {(row.tenant_id, row.key_id, row.agent, row.model): row for row in UseCounted.objects.filter(day=day)}
    now: dict[Place, Amounts] = {}
    number = len(known)
    for place, amounts in _sums(day):
        if place not in known:
            number += 1
            if number > MOST_A_DAY:
                # A place that was summed with others stays there: the set of known places only grows up to the limit.
                place = (place[0], -1, "", "")  # noqa: PLW2901
        now[place] = _plus(now.get(place, _NOTHING), amounts)
    new, changed = [], []
    for place, amounts in now.items():
        row = known.get(place)
        before = _NOTHING if row is None else _amounts(row)
        if amounts == before:
            continue
        difference = tuple(max(0, value - old) for value, old in zip(amounts, before, strict=True))
        added[place] = _plus(added.get(place, _NOTHING), difference)
        if row is None:
            new.append(UseCounted(day=day, **_fields(place), **dict(zip(COLUMNS, amounts, strict=True))))
        else:
            for column, value in zip(COLUMNS, amounts, strict=True):
                setattr(row, column, value)
            changed.append(row)
    UseCounted.objects.bulk_create(new, batch_size=500)
    UseCounted.objects.bulk_update(changed, COLUMNS, batch_size=200)


def _sums(day: date) -> list[tuple[Place, Amounts]]:
    rows = (
        ModelUse.objects.filter(day=day)
        .values_list("tenant_id", "key_id", "agent", "model")
        .annotate(*(Sum(column, default=0) for column in COLUMNS))
        .order_by("tenant_id", "key_id", "agent", "model")
    )
    return [((row[0], row[1], row[2], row[3]), tuple(map(int, row[4:9]))) for row in rows.iterator(chunk_size=2000)]  # type: ignore[misc]


def _store(at: datetime, added: Mapping[Place, Amounts], width: int) -> None:
    total = _NOTHING
    for amounts in added.values():
        total = _plus(total, amounts)
    if not any(total):
        return
    for place, amounts in {**added, ALL: total}.items():
        row, created = UseFigures.objects.get_or_create(
            width=width, at=at, **_fields(place), defaults=dict(zip(COLUMNS, amounts, strict=True))
        )
        if not created:
            grown = {column: F(column) + value for column, value in zip(COLUMNS, amounts, strict=True)}
            UseFigures.objects.filter(pk=row.pk).update(**grown)


def _fields(place: Place) -> dict[str, Any]:
    return dict(zip(("tenant_id", "key_id", "agent", "model"), place, strict=True))


def _amounts(row: UseCounted) -> Amounts:
    return (row.calls, row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cost_nano)


def _plus(one: Amounts, other: tuple[int, ...]) -> Amounts:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], one[4] + other[4])
