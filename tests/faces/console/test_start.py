"""The page at / for signed-in people, and the first page of a tenant."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from sessions_app.core.base.caller import Limits
from sessions_app.core.tenancy import keys
from sessions_app.models import Role, Session, Staff, StaffRole, Tenant, Turn, TurnState
from tests.faces.admin.conversations import make_session, make_turn
from tests.faces.console.conftest import As, text

pytestmark = pytest.mark.django_db(transaction=True)

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_the_address_of_the_server_leads_members_to_the_console_and_machines_to_a_text(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.READER)
    answer = client.get("/", headers=BROWSER)
    assert (answer.status_code, answer["Location"]) == (302, "/console/")
    assert "Cookie" in answer["Vary"]
    machine = client.get("/", headers={"Accept": "*/*"})
    assert (machine.status_code, machine["Content-Type"]) == (200, "text/plain; charset=utf-8")
    operator = User.objects.create_user("op", is_staff=True)
    Staff.objects.create(user=operator, role=StaffRole.OPERATOR)
    staff = Client()
    staff.force_login(operator)
    assert staff.get("/", headers=BROWSER)["Location"] == "/admin/"


def test_an_empty_tenant_says_what_to_do_first(acme: Tenant, as_role: As) -> None:
    page = text(as_role(Role.DEVELOPER).get("/console/acme/"))
    assert "Set up this tenant" in page
    assert 'href="/console/acme/keys/new/">Make one</a>' in page
    assert 'href="/console/acme/playground/">Open the playground</a>' in page
    assert "Nothing. Turns that wait" not in page, "no worker is alive, which is reported"
    assert "No worker of this server is alive" in page
    assert "No session yet" in page
    reader = text(as_role(Role.READER).get("/console/acme/"))
    assert "/keys/new/" not in reader
    assert "Open the playground" not in reader
    Tenant.objects.update(allowed_agents=["none of this server"])
    assert "Ask for the first one" in text(as_role(Role.OWNER).get("/console/acme/"))


def test_what_waits_for_somebody_is_of_this_tenant_only(acme: Tenant, as_role: As) -> None:
    other = Tenant.objects.create(slug="other")
    for tenant in (acme, other):
        session = make_session(tenant, title=f"a title of {tenant.slug}")
        make_turn(session, state=TurnState.WAITING)
        keys.issue(
            tenant,
            name=f"app of {tenant.slug}",
            scopes=["*"],
            expires_at=timezone.now() + timedelta(days=3),
            allowed_agents=None,
            actor="x",
            limits=Limits(),
        )
    Tenant.objects.update(max_turns_at_once=0)
    page = text(as_role(Role.OWNER).get("/console/acme/"))
    mine, theirs = Session.objects.get(tenant=acme), Session.objects.get(tenant=other)
    assert mine.public_id in page
    assert f'href="/console/acme/playground/#{mine.public_id}">Answer in the playground</a>' in page
    assert "a title of acme" in page
    assert "app of acme" in page
    assert "0 of 0 concurrent turns are used (100 %)" in page
    for foreign in (theirs.public_id, "of other"):
        assert foreign not in page
    assert Turn.objects.count() == 2


def test_an_address_that_leads_nowhere_is_a_page_and_one_without_its_slash_is_completed(acme: Tenant, as_role: As) -> None:
    client = as_role(Role.READER)
    assert client.get("/console/acme/keys")["Location"] == "/console/acme/keys/"
    answer = client.get("/console/acme/nowhere/")
    assert answer.status_code == 404
    assert "There is nothing here" in text(answer)
    assert Client().get("/console/acme/nowhere/")["Location"].startswith("/accounts/login/")
