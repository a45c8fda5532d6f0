"""Model use in the admin: read and narrowed."""

from __future__ import annotations

from datetime import date

import pytest
from django.test import Client

from sessions_app.models import ModelUse, Tenant
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)


def test_model_use_is_listed_and_filtered(eve: Client, acme: Tenant) -> None:
    for number, agent in ((1, "pilot"), (2, "cook")):
        ModelUse.objects.create(
            tenant_id=acme.pk, day=date(2026, 11, number), session=f"sess_{agent}", agent=agent, model="v:m", purpose="turn",
            calls=1, input_tokens=12_345, output_tokens=1, cache_read_tokens=0, cost_nano=1_500_000_000 if number == 1 else None,
        )  # fmt: skip
    page = url("modeluse", "changelist")
    whole = html(eve.get(page))
    for shown in ("acme", "pilot", "cook", "12,345", "1.500000000", "no price", "2026-11-01"):
        assert shown in whole, shown
    for query in ({"agent": "pilot"}, {"q": "sess_pilot"}, {"until": "2026-11-01"}):
        found = html(eve.get(page, {**query, "tenant": "acme", "model": "v:m", "purpose": "turn", "since": "2026-11-01"}))
        assert "sess_pilot" in found, query
        assert "sess_cook" not in found, query
    assert "sess_pilot" not in html(eve.get(page, {"tenant": "nobody"}))


def test_model_use_cannot_be_added_changed_or_deleted(eve: Client, acme: Tenant) -> None:
    row = ModelUse.objects.create(
        tenant_id=acme.pk, day=date(2026, 11, 1), session="s", agent="a", model="m", purpose="turn",
        calls=1, input_tokens=1, output_tokens=1, cache_read_tokens=0,
    )  # fmt: skip
    assert eve.get(url("modeluse", "add")).status_code == 403
    assert eve.post(url("modeluse", "change", row), {"calls": 9}).status_code == 403
    assert eve.post(url("modeluse", "delete", row), {"post": "yes"}).status_code == 403
    assert ModelUse.objects.get().calls == 1
