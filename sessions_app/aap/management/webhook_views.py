"""The endpoints of webhooks. They need the scope ``webhooks``, and a key that sees its whole tenant."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpResponse
from rest_framework.request import Request

from sessions_app.aap.dialect import Document
from sessions_app.aap.management import parameters, types
from sessions_app.aap.views import Endpoint, caller_of, json_answer, no_content
from sessions_app.core.base.caller import WEBHOOKS
from sessions_app.core.tenancy import api_audit, webhooks
from sessions_app.models import DeliveryState, Webhook, WebhookDelivery


class _Endpoint(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD", "POST", "PATCH", "DELETE"), WEBHOOKS)
    http_method_names = ["get", "head", "post", "patch", "delete"]

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        webhooks.require(caller_of(request))

    def tenant(self, request: Request) -> int:
        return caller_of(request).tenant

    def found(self, request: Request, webhook: str) -> Webhook:
        return webhooks.find(self.tenant(request), webhook)

    def by(self, request: Request) -> dict[str, str]:
        """The actor and address of audit records."""
        return api_audit.by(caller_of(request))


class Webhooks(_Endpoint):
    def get(self, request: Request) -> HttpResponse:
        return json_answer({"webhooks": [_shown(row) for row in webhooks.of_tenant(self.tenant(request))]})

    def post(self, request: Request) -> HttpResponse:
        wanted = parameters.body(request, types.NEW_WEBHOOK, types.NewWebhook)
        made = webhooks.create(
            self.tenant(request),
            url=wanted["url"],
            types=wanted["types"],
            description=wanted.get("description", ""),
            **self.by(request),
        )
        answer = _with_secret(made, 201)
        answer["Location"] = f"{request.path}/{made.webhook.public_id}"
        return answer


class OneWebhook(_Endpoint):
    def get(self, request: Request, webhook: str) -> HttpResponse:
        return json_answer(_shown(self.found(request, webhook)))

    def patch(self, request: Request, webhook: str) -> HttpResponse:
        row = self.found(request, webhook)
        wanted = parameters.body(request, types.WEBHOOK_CHANGE, types.WebhookChange)
        changed = webhooks.change(
            row,
            url=wanted.get("url", row.url),
            types=wanted.get("types", row.types),
            description=wanted.get("description", row.description),
            enabled=wanted.get("enabled", row.disabled_at is None),
            **self.by(request),
        )
        return json_answer(_shown(changed))

    def delete(self, request: Request, webhook: str) -> HttpResponse:
        webhooks.delete(self.found(request, webhook), **self.by(request))
        return no_content()


class Rotation(_Endpoint):
    def post(self, request: Request, webhook: str) -> HttpResponse:
        return _with_secret(webhooks.rotate(self.found(request, webhook), **self.by(request)), 200)


class Test(_Endpoint):
    def post(self, request: Request, webhook: str) -> HttpResponse:
        return json_answer(_delivery(webhooks.send_test(self.found(request, webhook))), 202)


class Deliveries(_Endpoint):
    def get(self, request: Request, webhook: str) -> HttpResponse:
        row = self.found(request, webhook)
        found = webhooks.deliveries(row, before=parameters.before(request.GET), most=parameters.PAGE + 1)
        return json_answer(parameters.paged("deliveries", found, _delivery, lambda each: each.pk))


class Repetition(_Endpoint):
    def post(self, request: Request, webhook: str, delivery: str) -> HttpResponse:
        return json_answer(_delivery(webhooks.repeat(self.found(request, webhook), delivery)), 202)


def _with_secret(made: webhooks.Made, status: int) -> HttpResponse:
    answer = json_answer({**_shown(made.webhook), "secret": made.secret}, status)
    answer["Cache-Control"] = "no-store"
    return answer


def _shown(row: Webhook) -> Document:
    shown: types.Webhook = {
        "id": row.public_id,
        "url": row.url,
        "types": row.types,
        "description": row.description,
        "enabled": row.disabled_at is None,
        "disabledReason": row.disabled_reason,
        "failingSince": time_text(row.failing_since),
        "createdAt": time_text(row.created_at) or "",
    }
    return dict(shown)


def _delivery(row: WebhookDelivery) -> Document:
    shown: types.Delivery = {
        "id": row.public_id,
        "event": row.event,
        "type": row.type,
        "state": row.state,
        "attempts": row.attempts,
        "createdAt": time_text(row.created_at) or "",
        "nextAt": time_text(row.next_at) if row.state == DeliveryState.PENDING else None,
        "lastAt": time_text(row.last_at),
        "status": row.status,
        "answer": row.answer,
        "body": row.body,
    }
    return dict(shown)


def time_text(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
