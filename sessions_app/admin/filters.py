"""Filters for the admin's lists: one form instead of Django's lists of links.

Django's filters query all distinct values of a column, which is slow in a table of a million rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal

from django.contrib.admin import ListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app.core.tenancy import rights
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import Tenant

_SUGGESTIONS = 300


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form. ``choices``: what a select offers, or what a text field suggests."""

    name: str
    label: str
    kind: Literal["text", "select", "date"]
    choices: Sequence[tuple[str, str]] = ()
    value: str = ""


class FilterForm(ListFilter):
    """The base class of a list's filter form: subclasses define its fields (``fields``) and their effect (``apply``)."""

    title = "filters"
    template = "agenthost/filters.html"
    names: tuple[str, ...] = ()

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        self.request = request
        self.given: dict[str, str] = {}
        for name in self.names:
            values = params.pop(name, None)
            value = (values[-1] if isinstance(values, list) else values or "").strip()
            if value and "\0" not in value:
                self.given[name] = value
        self.used_parameters = dict(self.given)

    def fields(self) -> list[Field]:
        raise NotImplementedError

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        raise NotImplementedError

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        for name, value in self.given.items():
            queryset = self.apply(queryset, name, value)
        return queryset

    def choices(self, changelist: Any) -> Iterator[Any]:
        """The template's values: the form's fields, and the other query parameters to keep."""
        others = [(name, value) for name, value in changelist.params.items() if name not in self.names]
        filled = [
            Field(field.name, field.label, field.kind, field.choices, self.given.get(field.name, "")) for field in self.fields()
        ]
        yield {
            "fields": filled,
            "others": others,
            "active": bool(self.given),
            "clear": changelist.get_query_string(remove=list(self.names)),
        }


def tenant_field(request: HttpRequest) -> Field:
    visible = rights.of_staff(rights.account_of(request.user), Right.SEE_TENANT, Tenant.objects.order_by("slug"), "pk")
    return Field("tenant", "Tenant", "text", list(visible.values_list("slug", "title")[:_SUGGESTIONS]))


def of_tenant(rows: QuerySet[Any], slug: str) -> QuerySet[Any]:
    """Filter by the tenant's number, which is looked up first: with a join the list's index would not be used."""
    tenant = Tenant.objects.filter(slug=slug).values_list("pk", flat=True).first()
    return rows.none() if tenant is None else rows.filter(tenant_id=tenant)


def day(value: str) -> datetime | None:
    """The start of a day in UTC; None if the text is not a date."""
    try:
        return datetime.combine(date.fromisoformat(value), time(), UTC)
    except ValueError:
        return None


def since(rows: QuerySet[Any], column: str, value: str) -> QuerySet[Any]:
    start = day(value)
    return rows if start is None else rows.filter(**{f"{column}__gte": start})


def until(rows: QuerySet[Any], column: str, value: str) -> QuerySet[Any]:
    """Rows up to and including that day."""
    start = day(value)
    if start is None or start.date() == date.max:
        return rows
    return rows.filter(**{f"{column}__lt": start + timedelta(days=1)})
