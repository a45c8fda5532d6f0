"""The page of model use: token counts and costs by session, model and day, read-only, with filters."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app.admin.filters import Field, FilterForm, day, of_tenant, tenant_field
from sessions_app.admin.pages import ReadOnlyAdmin
from sessions_app.core.tenancy import model_use
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import ModelUse, ModelUsePurpose


class ModelUseFilters(FilterForm):
    names = ("tenant", "agent", "model", "purpose", "since", "until")

    def fields(self) -> list[Field]:
        return [
            tenant_field(self.request),
            Field("agent", "Agent", "text"),
            Field("model", "Model", "text"),
            Field("purpose", "Purpose", "select", [(purpose.value, purpose.label) for purpose in ModelUsePurpose]),
            Field("since", "From (UTC)", "date"),
            Field("until", "Until (UTC)", "date"),
        ]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        match name:
            case "tenant":
                return of_tenant(rows, value)
            case "agent" | "model" | "purpose":
                return rows.filter(**{name: value})
        start = day(value)
        if start is None:
            return rows
        return rows.filter(**{"day__gte" if name == "since" else "day__lte": start.date()})


@admin.register(ModelUse)
class ModelUseAdmin(ReadOnlyAdmin[ModelUse]):
    heading = "Model use"
    sees = Right.SEE_USE
    tenant_path = "tenant_id"
    list_display = ("when", "tenant", "session", "key", "agent", "model", "purpose", "calls", "input", "output", "cached", "cost")
    list_display_links = None
    list_filter = (ModelUseFilters,)
    ordering = ("-pk",)
    scanned = frozenset({"agent", "model", "purpose", "since", "until"})
    search_fields = ("session__exact",)
    search_help_text = "A complete session id"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ModelUse]:
        self._names = model_use.Names()
        return super().get_queryset(request)

    def listed(self, rows: Sequence[ModelUse]) -> None:
        self._names.read({row.tenant_id for row in rows}, {row.key_id for row in rows})

    @admin.display(description="day (UTC)")
    def when(self, row: ModelUse) -> str:
        return row.day.isoformat()

    @admin.display
    def tenant(self, row: ModelUse) -> str:
        return self._names.of("tenant", row.tenant_id)

    @admin.display
    def key(self, row: ModelUse) -> str:
        return self._names.of("key", row.key_id)

    @admin.display(description="input tokens")
    def input(self, row: ModelUse) -> str:
        return f"{row.input_tokens:,}"

    @admin.display(description="from cache")
    def cached(self, row: ModelUse) -> str:
        return f"{row.cache_read_tokens:,}"

    @admin.display(description="output tokens")
    def output(self, row: ModelUse) -> str:
        return f"{row.output_tokens:,}"

    @admin.display
    def cost(self, row: ModelUse) -> str:
        return "no price" if row.cost_nano is None else f"{Decimal(row.cost_nano).scaleb(-9):f}"
