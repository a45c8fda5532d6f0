"""Model use in the admin: read and narrowed."""

from __future__ import annotations

import re
from datetime import date
from html import unescape

import pytest
from django.test import Client

from sessions_app.admin import paging
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


def test_a_filter_without_an_index_looks_at_a_part_of_the_rows_and_the_next_page_at_the_older_ones(
    eve: Client, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "WINDOW", 3)
    for number in range(10):
        ModelUse.objects.create(
            tenant_id=acme.pk, day=date(2026, 1, 1), session=f"talk-{number}-", agent="rare" if number == 1 else "usual",
            model="m", purpose="turn", calls=1, input_tokens=1, output_tokens=1, cache_read_tokens=0,
        )  # fmt: skip
    page, looks = url("modeluse", "changelist") + "?agent=rare", 0
    while "talk-1-" not in (shown := html(eve.get(page))):
        assert "among 3 rows; older ones may match as well" in shown
        found = re.search(r'href="([^"]*after=[^"]*)">Next page', shown)
        assert found is not None
        page, looks = url("modeluse", "changelist") + unescape(found[1]), looks + 1
    assert looks == 2
    assert "Next page" not in html(eve.get(url("modeluse", "changelist") + "?agent=none&tenant=acme"))


def test_a_complete_list_ends_though_no_index_answers_its_filter(eve: Client, acme: Tenant) -> None:
    assert "Next page" not in html(eve.get(url("modeluse", "changelist") + "?agent=none"))
