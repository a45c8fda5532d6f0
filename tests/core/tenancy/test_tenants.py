"""Tenants, made, changed, suspended and resumed."""

from __future__ import annotations

import pytest

from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput, NotAuthenticated
from sessions_app.core.tenancy import keys, tenants
from sessions_app.models import AuditRecord, Tenant, TenantCounter
from tests.core.conftest import World, turn_of
from tests.core.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def actions() -> list[str]:
    return list(AuditRecord.objects.order_by("id").values_list("action", flat=True))


def test_a_tenant_is_made_with_its_counter() -> None:
    tenant, created = tenants.create("acme", "Acme Ltd.")
    assert created
    assert (tenant.slug, tenant.title) == ("acme", "Acme Ltd.")
    assert TenantCounter.objects.filter(tenant_id=tenant.pk).exists()
    assert actions() == ["tenant_created"]


def test_making_it_again_changes_nothing() -> None:
    first, _ = tenants.create("acme", "Acme Ltd.")
    again, created = tenants.create("acme", "Something else")
    assert (again.pk, again.title, created) == (first.pk, "Acme Ltd.", False)
    assert actions() == ["tenant_created"]


@pytest.mark.parametrize("slug", ["", "Acme", "-acme", "acme-", "a b", "acme\n", "a" * 64, "ä", "a/b"])
def test_a_wrong_slug_is_refused(slug: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        tenants.create(slug)
    assert refusal.value.faults[0].path == ("slug",)
    assert not Tenant.objects.exists()


@pytest.mark.parametrize("title", ["x" * 201, "a\0b"])
def test_a_wrong_title_is_refused(title: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        tenants.create("acme", title)
    assert refusal.value.faults[0].path == ("title",)


def test_two_who_make_it_at_once_get_the_same_tenant() -> None:
    outcomes = at_once(*[lambda: tenants.create("acme")] * 4)
    assert len({tenant.pk for tenant, _ in outcomes}) == 1
    assert sorted(created for _, created in outcomes) == [False, False, False, True]
    assert TenantCounter.objects.count() == 1


def test_what_an_operator_changes_is_in_the_audit_once() -> None:
    tenant, _ = tenants.create("acme")
    assert tenants.change(tenant, title="Acme", allowed_agents=["demo"], actor="admin:eve", address="10.0.0.9")
    assert not tenants.change(tenant, title="Acme", allowed_agents=["demo"], actor="admin:eve")
    row = Tenant.objects.get(pk=tenant.pk)
    assert (row.title, row.allowed_agents) == ("Acme", ["demo"])
    record = AuditRecord.objects.get(action="tenant_changed")
    assert (record.actor, record.address, record.target) == ("admin:eve", "10.0.0.9", "tenant acme")
    assert record.detail == "title '' -> 'Acme'; agents all -> demo"


def test_an_empty_list_of_agents_is_refused() -> None:
    tenant, _ = tenants.create("acme")
    with pytest.raises(InvalidInput):
        tenants.change(tenant, title="", allowed_agents=[], actor="t")


def test_suspending_and_resuming_leave_one_audit_row_each() -> None:
    tenant, _ = tenants.create("acme")
    assert turns.suspend_tenant(tenant, actor="admin:eve", address="10.0.0.9").changed
    assert Tenant.objects.exclude(suspended_at=None).exists()
    assert not turns.suspend_tenant(tenant, actor="admin:eve").changed
    assert tenants.resume(tenant, actor="admin:eve")
    assert not Tenant.objects.exclude(suspended_at=None).exists()
    assert not tenants.resume(tenant, actor="admin:eve")
    assert actions() == ["tenant_created", "tenant_suspended", "tenant_resumed"]


def test_a_suspension_cancels_the_tenants_live_turns_and_no_others(alice: World, bob: World) -> None:
    hers = alice.say(alice.session(), "hello")
    his = bob.say(bob.session(), "hello")
    turns.suspend_tenant(Tenant.objects.get(pk=alice.caller.tenant), actor="t")
    assert turn_of(hers).state in ("cancelled", "error")
    assert turn_of(hers).ended_at is not None
    assert turn_of(his).state == "queued"


def test_suspending_again_ends_what_a_first_suspension_left(alice: World) -> None:
    tenant = Tenant.objects.get(pk=alice.caller.tenant)
    turns.suspend_tenant(tenant, actor="t")
    left = alice.say(alice.session(), "one that was accepted in the same moment")
    assert not turns.suspend_tenant(tenant, actor="t").changed
    assert turn_of(left).ended_at is not None


@pytest.mark.rule("A2")
def test_a_key_issued_while_the_tenant_is_suspended_works_only_after_it_is_resumed() -> None:
    tenant, _ = tenants.create("acme")
    turns.suspend_tenant(tenant, actor="t")
    issued = keys.issue(tenant, name="n", scopes=["*"], expires_at=None, allowed_agents=None, actor="t")
    with pytest.raises(NotAuthenticated):
        keys.authenticate(issued.raw)
    tenants.resume(tenant, actor="t")
    assert keys.authenticate(issued.raw).tenant == tenant.pk
