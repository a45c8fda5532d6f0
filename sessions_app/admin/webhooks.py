"""The pages of webhooks and of what was sent to them. An operator can send a delivery again."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app.admin.filters import Field, FilterForm, of_tenant, since, tenant_field, until
from sessions_app.admin.pages import ReadOnlyAdmin, badge
from sessions_app.core.base.errors import DomainError
from sessions_app.core.tenancy import webhooks
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import DeliveryState, Webhook, WebhookDelivery


class WebhookFilters(FilterForm):
    names = ("tenant",)

    def fields(self) -> list[Field]:
        return [tenant_field(self.request)]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:  # noqa: ARG002 - FilterForm's signature
        return of_tenant(rows, value)


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin[Webhook]):
    heading = "Webhooks"
    sees = Right.SEE_WEBHOOKS
    list_display = ("public_id", "tenant", "url", "events", "works", "disabled_reason")
    list_filter = (WebhookFilters,)
    list_select_related = ("tenant",)
    ordering = ("-pk",)
    search_fields = ("public_id__exact",)
    search_help_text = "A complete webhook id"
    fields = (
        "public_id",
        "tenant",
        "url",
        "description",
        "types",
        "created_at",
        "created_by",
        "failing_since",
        "disabled_at",
        "disabled_reason",
    )

    @admin.display
    def events(self, row: Webhook) -> str:
        return ", ".join(row.types)

    @admin.display(description="state")
    def works(self, row: Webhook) -> str:
        if row.disabled_at is not None:
            return badge("error", "disabled")
        return badge("waiting", "failing") if row.failing_since is not None else badge("done", "enabled")


class DeliveryFilters(FilterForm):
    names = ("tenant", "state", "since", "until")

    def fields(self) -> list[Field]:
        return [
            tenant_field(self.request),
            Field("state", "State", "select", [(state.value, state.label) for state in DeliveryState]),
            Field("since", "From (UTC)", "date"),
            Field("until", "until", "date"),
        ]

    def apply(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        match name:
            case "tenant":
                return of_tenant(rows, value)
            case "since":
                return since(rows, "created_at", value)
            case "until":
                return until(rows, "created_at", value)
            case _:
                return rows.filter(state=value)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyAdmin[WebhookDelivery]):
    heading = "Deliveries of webhooks"
    sees = Right.SEE_WEBHOOKS
    changes = Right.MANAGE_WEBHOOKS
    list_display = ("public_id", "tenant", "webhook", "type", "outcome", "attempts", "status", "last_at", "next_attempt")
    list_filter = (DeliveryFilters,)
    list_select_related = ("tenant", "webhook")
    ordering = ("-pk",)
    scanned = frozenset({"state", "since", "until"})
    search_fields = ("public_id__exact", "event__exact")
    search_help_text = "A complete id of a delivery or of an event"
    actions = ("send_again",)
    fields = (
        *("public_id", "tenant", "webhook", "event", "type", "body", "state", "attempts", "created_at", "next_at", "until"),
        *("last_at", "status", "answer", "took_ms"),
    )

    @admin.display(description="state")
    def outcome(self, row: WebhookDelivery) -> str:
        kind = {DeliveryState.DELIVERED: "done", DeliveryState.FAILED: "error"}.get(DeliveryState(row.state), "waiting")
        return badge(kind, row.state)

    @admin.display(description="next attempt", empty_value="–")
    def next_attempt(self, row: WebhookDelivery) -> Any:
        return row.next_at if row.state == DeliveryState.PENDING else None

    def has_send_again_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "change")

    @admin.action(description="Send again", permissions=["send_again"])
    def send_again(self, request: HttpRequest, rows: QuerySet[WebhookDelivery]) -> None:
        sent = 0
        for row in rows.select_related("webhook")[:100]:
            try:
                webhooks.repeat(row.webhook, row.public_id)
                sent += 1
            except DomainError as error:
                self.message_user(request, f"{row.public_id}: {error}.", messages.ERROR)
        self.message_user(request, f"{sent} deliveries will be sent again.", messages.SUCCESS)
