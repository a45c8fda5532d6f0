"""The console's page of use, cost and limits."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sessions_app.core.tenancy import keys, usage_entries
from sessions_app.models import HOUR, ModelUse, Role, Tenant, TurnFigures
from tests.faces.admin.conversations import make_tenant
from tests.faces.console.conftest import As, body, text

pytestmark = pytest.mark.django_db(transaction=True)


def spend(tenant: Tenant, days_ago: int = 0, **given: Any) -> None:
    values = {
        "session": "sess_x",
        "key_id": 0,
        "agent": "demo",
        "model": "openai:gpt",
        "purpose": "turn",
        "calls": 1,
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 5,
        "cost_nano": 1_500_000_000,
    }
    ModelUse.objects.create(tenant_id=tenant.pk, day=usage_entries.today() - timedelta(days=days_ago), **{**values, **given})


def file_of(answer: Any) -> str:
    return body(answer).decode()


def test_the_sums_of_a_period_are_by_agent_key_and_model_and_of_this_tenant_only(acme: Tenant, as_role: As) -> None:
    key = keys.issue(acme, name="billing app", scopes=["*"], expires_at=None, allowed_agents=None, actor="x").key
    spend(acme)
    spend(acme, 1, agent="writer", key_id=key.pk, input_tokens=4000, cost_nano=None)
    spend(acme, 40, agent="long ago")
    spend(make_tenant("other"), agent="foreign")
    client = as_role(Role.READER)
    page = text(client.get("/console/acme/use/"))
    assert [name in page for name in ("demo", "writer", "long ago", "foreign")] == [True, True, False, False]
    assert "4,120" not in page
    assert "no price" in page
    assert "billing app" in text(client.get("/console/acme/use/?by=key"))
    assert "openai:gpt" in text(client.get("/console/acme/use/?by=model&days=90"))
    assert "long ago" in text(client.get("/console/acme/use/?days=90"))
    assert '<svg viewBox="0 0 600 120"' in page
    assert "As a table" in page
    assert "No model was called" in text(client.get("/console/acme/use/?from=2001-01-01&to=2001-01-02"))


def test_the_import_path_of_a_python_agent_is_not_shown(acme: Tenant, as_role: As) -> None:
    spend(acme, model="python:secret_module:agent")
    client = as_role(Role.READER)
    page = text(client.get("/console/acme/use/?by=model")) + file_of(client.get("/console/acme/use/file/?format=csv"))
    assert "secret_module" not in page
    assert "a Python agent" in page


def test_turns_by_day_come_from_the_hours_of_housekeeping(acme: Tenant, as_role: As) -> None:
    at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for number, errors in ((5, 2), (3, 0)):
        TurnFigures.objects.create(
            width=HOUR, at=at, tenant_id=acme.pk, key_id=number, agent="demo", turns=number, errors=errors,
            outcomes="{}", causes="{}", first="{}", took="{}",
        )  # fmt: skip
    page = text(as_role(Role.READER).get("/console/acme/use/?days=7"))
    assert "without an error: 6\nwith an error: 2" in page


def test_the_download_has_every_combination_and_no_formula(acme: Tenant, as_role: As) -> None:
    spend(acme, agent='=HYPERLINK("http://evil.example")')
    spend(acme, model="other", cost_nano=None)
    client = as_role(Role.READER)
    answer = client.get("/console/acme/use/file/?format=csv")
    assert answer["Content-Disposition"].startswith('attachment; filename="use-acme-')
    rows = list(csv.DictReader(io.StringIO(file_of(answer))))
    assert {row["agent"] for row in rows} == {"demo", '\'=HYPERLINK("http://evil.example")'}
    assert [row["cost"] for row in rows if row["agent"] != "demo"] == ["1.500000000"]
    found = json.loads(file_of(client.get("/console/acme/use/file/?format=json")))
    assert sorted(row["model"] for row in found) == ["openai:gpt", "other"]
    assert {row["input_tokens"] for row in found} == {100}
    assert json.loads(file_of(client.get("/console/acme/use/file/?format=json&from=2001-01-01&to=2001-01-01"))) == []


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("from=yesterday", "&#x27;yesterday&#x27; is not a day"),
        ("from=2025-02-01&to=2025-01-01", "2025-02-01 is after 2025-01-01"),
        ("from=2001-01-01", "has more than 400 days"),
        ("from=9999-12-31", "is after"),
    ],
)
def test_a_wrong_period_is_named(acme: Tenant, as_role: As, query: str, complaint: str) -> None:
    answer = as_role(Role.READER).get(f"/console/acme/use/?{query}")
    assert answer.status_code == 422
    assert complaint.lower() in text(answer).lower()


def test_limits_show_their_share_and_when_they_are_free_again(acme: Tenant, as_role: As) -> None:
    Tenant.objects.filter(pk=acme.pk).update(max_tokens_per_day=1000, max_sessions=0)
    page = text(as_role(Role.READER).get("/console/acme/use/"))
    assert "at midnight UTC" in page
    assert "100 %" in page, "a limit of nothing is used up"
    assert "no limit" in page


@pytest.mark.parametrize("path", ["use/", "use/file/"])
def test_a_period_may_end_on_the_first_day_of_the_calendar(acme: Tenant, as_role: As, path: str) -> None:
    assert as_role(Role.READER).get(f"/console/acme/{path}?to=0001-01-10").status_code == 200
