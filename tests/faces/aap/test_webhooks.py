"""Webhooks over HTTP, at /api/webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import AuditRecord, Webhook, WebhookDelivery
from tests.faces.aap.conftest import Person, key_of, pointers, problem
from tests.faces.aap.test_tokens import api, minted

URL = "https://app.example.com/hook"


def make(person: Person, **more: Any) -> dict[str, Any]:
    response = api(person).post("/webhooks", {"url": URL, "types": ["turn.ended"], **more})
    assert response.status_code == 201, response.content
    found: dict[str, Any] = response.json()
    return found


def test_a_webhook_is_made_shown_changed_and_deleted(alice: Person) -> None:
    made = make(alice, description="ours")
    assert made["secret"].startswith("whsec_")
    path = f"/webhooks/{made['id']}"
    shown = api(alice).get(path).json()
    assert "secret" not in shown
    assert shown == {name: value for name, value in made.items() if name != "secret"}
    assert api(alice).get("/webhooks").json() == {"webhooks": [shown]}
    changed = api(alice).request("PATCH", path, {"enabled": False, "types": ["turn.waiting", "turn.ended"]}).json()
    assert (changed["enabled"], changed["disabledReason"]) == (False, "disabled by its owner")
    assert changed["types"] == ["turn.ended", "turn.waiting"]
    assert changed["description"] == "ours"
    assert api(alice).request("PATCH", path, {"enabled": True}).json()["enabled"] is True
    rotated = api(alice).post(f"{path}/rotate").json()
    assert rotated["secret"] != made["secret"]
    assert api(alice).delete(path).status_code == 204
    problem(api(alice).get(path), 404)
    actions = list(AuditRecord.objects.filter(action__startswith="webhook").order_by("pk").values_list("action", flat=True))
    assert actions == ["webhook_created", *["webhook_changed"] * 3, "webhook_deleted"]
    assert not AuditRecord.objects.filter(detail__contains="whsec_").exists()


def test_a_test_is_listed_and_repeated(alice: Person) -> None:
    path = f"/webhooks/{make(alice)['id']}"
    sent = api(alice).post(f"{path}/test")
    assert sent.status_code == 202
    [listed] = api(alice).get(f"{path}/deliveries").json()["deliveries"]
    assert listed == sent.json()
    assert (listed["type"], listed["state"], listed["status"]) == ("test", "pending", None)
    WebhookDelivery.objects.update(state="failed")
    assert api(alice).post(f"{path}/deliveries/{listed['id']}/repeat").json()["state"] == "pending"
    problem(api(alice).post(f"{path}/deliveries/dlv_other/repeat"), 404)
    problem(api(alice).get(f"{path}/deliveries?before=x"), 400)


def test_a_long_list_of_deliveries_has_pages(alice: Person) -> None:
    path = f"/webhooks/{make(alice)['id']}"
    for _ in range(52):
        api(alice).post(f"{path}/test")
    first = api(alice).get(f"{path}/deliveries").json()
    second = api(alice).get(f"{path}/deliveries?before={first['next']}").json()
    ids = [each["id"] for page in (first, second) for each in page["deliveries"]]
    assert (len(first["deliveries"]), len(ids), len(set(ids))) == (50, 52, 52)
    assert "next" not in second


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({}, {"/url", "/types"}),
        ({"url": URL, "types": []}, {"/types"}),
        ({"url": URL, "types": ["turn.begun"]}, {"/types"}),
        ({"url": "https://127.0.0.1/", "types": ["turn.ended"]}, {"/url"}),
        ({"url": URL, "types": ["turn.ended"], "description": "x" * 201}, {"/description"}),
    ],
)
def test_a_bad_webhook_is_refused_by_name(alice: Person, body: dict[str, Any], places: set[str]) -> None:
    assert pointers(api(alice).post("/webhooks", body)) == places


def test_another_tenants_webhook_does_not_exist(alice: Person, bob: Person) -> None:
    path = f"/webhooks/{make(alice)['id']}"
    delivery = api(alice).post(f"{path}/test").json()["id"]
    for response in (
        api(bob).get(path),
        api(bob).request("PATCH", path, {"enabled": False}),
        api(bob).delete(path),
        api(bob).post(f"{path}/rotate"),
        api(bob).post(f"{path}/test"),
        api(bob).get(f"{path}/deliveries"),
        api(bob).post(f"{path}/deliveries/{delivery}/repeat"),
    ):
        problem(response, 404)
    own = f"/webhooks/{make(bob)['id']}"
    problem(api(bob).post(f"{own}/deliveries/{delivery}/repeat"), 404)
    assert api(bob).get("/webhooks").json()["webhooks"][0]["id"] == own.rpartition("/")[2]


def test_managing_webhooks_needs_its_scope_and_the_whole_tenant(alice: Person) -> None:
    writer = Person(key_of("alice", scopes=["sessions:read", "sessions:write"]))
    assert "webhooks" in problem(api(writer).get("/webhooks"), 403)["detail"]
    limited = Person(key_of("alice", allowed=["pilot"]))
    problem(api(limited).get("/webhooks"), 409)
    browser = Person(minted(alice, alice.create())["token"], "/api")
    problem(browser.get("/webhooks"), 403)
    manager = Person(key_of("alice", scopes=["webhooks"]))
    assert api(manager).get("/webhooks").status_code == 200
    problem(manager.get("/sessions"), 403)
    assert not Webhook.objects.exists()
