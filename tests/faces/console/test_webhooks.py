"""The console's pages of webhooks."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone

from sessions_app.core.tenancy import webhooks
from sessions_app.models import AuditRecord, DeliveryState, Role, Tenant, Webhook, WebhookDelivery
from tests.faces.console.conftest import As, text

pytestmark = pytest.mark.django_db(transaction=True)

FIELDS = {"url": "https://hooks.example.com/agents", "types": ["turn.ended", "key.expiring"], "description": "our backend"}


def secret_of(page: str) -> str:
    found = re.search(r'id="secret" type="text" readonly value="(whsec_[^"]+)"', page)
    assert found is not None, page
    return found[1]


def test_a_webhook_is_made_and_rotated_with_secrets_that_are_shown_once(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.DEVELOPER)
    assert "No webhook yet" in text(client.get("/console/acme/webhooks/"))
    first = secret_of(text(client.post("/console/acme/webhooks/new/", FIELDS)))
    row = Webhook.objects.get(tenant=acme)
    assert (row.url, row.types, row.created_by) == (FIELDS["url"], FIELDS["types"], "member:developer")
    address = f"/console/acme/webhooks/{row.public_id}/"
    second = secret_of(text(client.post(f"{address}rotate/")))
    assert webhooks.secrets_of(row.pk) == [second, first]
    page = text(client.get(address))
    assert "the one before signs until" in page
    assert first not in page
    assert second not in page
    acts = AuditRecord.objects.filter(tenant=acme, action__startswith="webhook").order_by("pk")
    assert list(acts.values_list("action", "actor")) == [
        ("webhook_created", "member:developer"),
        ("webhook_changed", "member:developer"),
    ]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"url": "http://hooks.example.com/"}, "Must begin with https://"),
        ({"url": "https://127.0.0.1/"}, "not a public one"),
        ({"url": "javascript:alert(1)"}, 'class="error" role="alert"'),
        ({"types": []}, "This field is required"),
        ({"types": ["all"]}, "Select a valid choice"),
        ({"description": "x" * 201}, "at most 200 characters"),
    ],
)
def test_a_wrong_webhook_is_refused_with_its_reason(acme: Tenant, as_role: As, wrong: dict[str, object], complaint: str) -> None:
    answer = as_role(Role.OWNER).post("/console/acme/webhooks/new/", {**FIELDS, **wrong})
    assert answer.status_code == 422
    assert complaint in text(answer)
    assert not Webhook.objects.exists()


def test_the_events_are_changed_and_a_webhook_is_disabled_and_deleted(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.OWNER)
    row = webhooks.create(acme.pk, url="https://a.example.com/", types=["turn.ended"], description="", actor="x").webhook
    address = f"/console/acme/webhooks/{row.public_id}/"
    assert client.post(f"{address}change/", {**FIELDS, "types": ["quota.reached"]})["Location"] == address
    row.refresh_from_db()
    assert row.types == ["quota.reached"]
    assert row.disabled_at is not None, "the box was not checked"
    assert client.post(f"{address}test/").status_code == 409, "a disabled webhook gets no test"
    client.post(f"{address}change/", {**FIELDS, "enabled": "on"})
    assert client.post(f"{address}test/")["Location"] == address
    assert Webhook.objects.exists()
    assert "audit keeps" in text(client.get(f"{address}delete/"))
    assert client.post(f"{address}delete/")["Location"] == "/console/acme/webhooks/"
    assert not Webhook.objects.exists()


def test_a_delivery_shows_its_answer_as_text_and_is_sent_again(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.DEVELOPER)
    row = webhooks.create(acme.pk, url="https://a.example.com/", types=["turn.ended"], description="", actor="x").webhook
    sent = webhooks.send_test(row)
    WebhookDelivery.objects.filter(pk=sent.pk).update(
        state=DeliveryState.FAILED, attempts=9, status=500, answer="<script>alert(1)</script>", last_at=timezone.now(), took_ms=12
    )
    address = f"/console/acme/webhooks/{row.public_id}/"
    page = text(client.get(address))
    assert "&lt;script&gt;alert(1)" in page
    assert "status 500" in page
    assert "&quot;type&quot;: &quot;test&quot;" in page
    assert client.post(f"{address}deliveries/{sent.public_id}/repeat/")["Location"] == address
    sent.refresh_from_db()
    assert (sent.state, sent.attempts) == (DeliveryState.PENDING, 0)
    other = webhooks.create(acme.pk, url="https://b.example.com/", types=["turn.ended"], description="", actor="x").webhook
    crossed = client.post(f"/console/acme/webhooks/{other.public_id}/deliveries/{sent.public_id}/repeat/")
    assert crossed.status_code == 404, "a delivery of another webhook"
