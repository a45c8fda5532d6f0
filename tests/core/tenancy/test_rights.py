"""Rights of roles: one table, applied to tenants that an account is a member or staff of."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, User

from sessions_app.core.base.errors import RightMissing, TenantNotFound
from sessions_app.core.tenancy import rights
from sessions_app.core.tenancy.rights import OF_THE_SERVER, RIGHTS, Right
from sessions_app.models import Member, Role, Staff, StaffRole, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return Tenant.objects.create(slug="acme")


@pytest.fixture
def other(transactional_db: None) -> Tenant:
    return Tenant.objects.create(slug="other")


def account(name: str = "ann") -> rights.Account:
    return rights.account_of(User.objects.get(username=name))


def test_roles_of_members_include_each_other() -> None:
    assert RIGHTS[Role.READER] < RIGHTS[Role.DEVELOPER] < RIGHTS[Role.OWNER]
    assert not RIGHTS[Role.OWNER] & (OF_THE_SERVER | {Right.CHANGE_TENANT, Right.DELETE_TENANT})


def test_an_auditor_changes_nothing_and_no_staff_role_reads_transcripts_by_itself() -> None:
    assert all(right.startswith(("see_", "export_audit")) for right in RIGHTS[StaffRole.AUDITOR])
    assert not any(Right.READ_TRANSCRIPTS in RIGHTS[role] for role in StaffRole)
    assert not any(Right.MANAGE_ACCOUNTS in held for held in RIGHTS.values())


def test_a_member_has_the_rights_of_the_role_in_that_tenant_only(acme: Tenant, other: Tenant) -> None:
    Member.objects.create(tenant=acme, user=User.objects.create_user("ann"), role=Role.READER)
    ann = account()
    rights.require(ann, Right.READ_TRANSCRIPTS, acme)
    with pytest.raises(RightMissing):
        rights.require(ann, Right.MANAGE_KEYS, acme)
    with pytest.raises(TenantNotFound):
        rights.require(ann, Right.SEE_TENANT, other)
    with pytest.raises(TenantNotFound):
        rights.own_tenant(ann, "other")
    with pytest.raises(TenantNotFound):
        rights.own_tenant(ann, "nowhere")
    assert not ann.is_staff


def test_limited_staff_have_no_right_of_the_server_and_none_in_other_tenants(acme: Tenant, other: Tenant) -> None:
    staff = Staff.objects.create(user=User.objects.create_user("ann"), role=StaffRole.OPERATOR, limited=True)
    staff.tenants.set([acme])
    ann = account()
    rights.require(ann, Right.CHANGE_TENANT, acme)
    with pytest.raises(TenantNotFound):
        rights.require(ann, Right.SEE_TENANT, other)
    for right in OF_THE_SERVER:
        with pytest.raises(RightMissing):
            rights.require(ann, right)
    assert list(rights.of_staff(ann, Right.SEE_TENANT, Tenant.objects.all(), "pk")) == [acme]


def test_staff_limited_to_no_tenant_see_none_and_not_all(acme: Tenant) -> None:
    Staff.objects.create(user=User.objects.create_user("ann"), role=StaffRole.OPERATOR, limited=True)
    assert not rights.of_staff(account(), Right.SEE_TENANT, Tenant.objects.all(), "pk").exists()


def test_staff_read_and_export_transcripts_only_with_that_right(acme: Tenant) -> None:
    staff = Staff.objects.create(user=User.objects.create_user("ann"), role=StaffRole.OPERATOR)
    for right in (Right.READ_TRANSCRIPTS, Right.EXPORT_SESSIONS):
        with pytest.raises(RightMissing):
            rights.require(account(), right, acme)
    Staff.objects.filter(pk=staff.pk).update(reads_transcripts=True)
    for right in (Right.READ_TRANSCRIPTS, Right.EXPORT_SESSIONS):
        rights.require(account(), right, acme)


def test_a_staff_role_is_no_membership(acme: Tenant) -> None:
    User.objects.create_superuser("root")
    root = account("root")
    assert root.staff == frozenset(Right)
    with pytest.raises(TenantNotFound):
        rights.own_tenant(root, "acme")


def test_disabled_and_anonymous_accounts_have_no_rights(acme: Tenant) -> None:
    root = User.objects.create_superuser("root", is_active=False)
    assert rights.account_of(root) is rights.NOBODY
    assert rights.account_of(AnonymousUser()) is rights.NOBODY
