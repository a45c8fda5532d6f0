"""Webhooks and their deliveries in the admin: read, filtered, and sent again."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions_app.core.tenancy import webhooks
from sessions_app.models import Tenant, WebhookDelivery
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def delivery(acme: Tenant) -> WebhookDelivery:
    made = webhooks.create(acme.pk, url="https://a.example.com/", types=["turn.ended"], description="", actor="the tests")
    sent = webhooks.send_test(made.webhook)
    WebhookDelivery.objects.filter(pk=sent.pk).update(state="failed", status=500, answer="<b>no</b>")
    sent.refresh_from_db()
    return sent


def test_a_webhook_and_its_deliveries_are_shown_without_secrets(eve: Client, reader: Client, delivery: WebhookDelivery) -> None:
    for client in (eve, reader):
        listed = html(client.get(url("webhook", "changelist"), {"tenant": "acme"}))
        assert "https://a.example.com/" in listed
        shown = html(client.get(url("webhookdelivery", "change", delivery)))
        assert "500" in shown
        assert "<b>no</b>" not in shown
        assert "whsec_" not in listed + shown
    assert delivery.public_id not in html(eve.get(url("webhookdelivery", "changelist"), {"tenant": "nobody"}))


def test_a_delivery_is_sent_again_by_those_who_may(eve: Client, reader: Client, delivery: WebhookDelivery) -> None:
    action = {"action": "send_again", "_selected_action": [delivery.pk]}
    reader.post(url("webhookdelivery", "changelist"), action)
    assert WebhookDelivery.objects.get().state == "failed"
    eve.post(url("webhookdelivery", "changelist"), action)
    assert WebhookDelivery.objects.get().state == "pending"
