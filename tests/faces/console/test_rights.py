"""Who may open which page of the console and do what there: every URL and method by every kind of account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver, reverse

from sessions_app.core.tenancy import invitations, keys, webhooks
from sessions_app.core.tenancy.rights import RIGHTS, Right
from sessions_app.models import Member, Role, SessionTail, Staff, StaffRole, Tenant
from tests.faces.admin.conversations import make_session, make_tenant
from tests.faces.console.conftest import body

pytestmark = pytest.mark.django_db(transaction=True)

METHODS = ("get", "post")

Values = dict[str, Any]
"""The arguments of a URL, by their names."""


@dataclass(frozen=True)
class Rule:
    """What one method of a page needs, and what it answers to a member who has the right.

    ``make``: makes what the URL names in the tenant, and returns the arguments of the URL. ``fields``: the form's.
    """

    right: Right
    status: int = 200
    make: Callable[[Tenant], Values] = lambda _tenant: {}
    fields: dict[str, Any] = field(default_factory=dict)


def _member(tenant: Tenant) -> Values:
    other = User.objects.create_user(f"other of {tenant.slug}")
    return {"member_id": Member.objects.create(tenant=tenant, user=other, role=Role.READER).pk}


def _invitation(tenant: Tenant) -> Values:
    return {"invitation_id": invitations.issue(tenant, Role.READER, actor="x", address="").invitation.pk}


def _key(tenant: Tenant) -> Values:
    issued = keys.issue(tenant, name="app", scopes=["meta:read"], expires_at=None, allowed_agents=None, actor="x")
    return {"number": issued.key.pk}


def _session(tenant: Tenant) -> Values:
    session = make_session(tenant)
    SessionTail.objects.create(session_id=session.pk)
    return {"session": session.public_id}


WEBHOOK = {"url": "https://hooks.example.com/x", "types": ["turn.ended"]}


def _webhook(tenant: Tenant) -> Values:
    made = webhooks.create(tenant.pk, url="https://hooks.example.com/y", types=["turn.ended"], description="", actor="x")
    return {"webhook": made.webhook.public_id}


def _delivery(tenant: Tenant) -> Values:
    values = _webhook(tenant)
    return {**values, "delivery": webhooks.send_test(webhooks.find(tenant.pk, values["webhook"])).public_id}


RULES: dict[tuple[str, str], Rule] = {
    ("tenant", "get"): Rule(Right.SEE_TENANT),
    ("playground", "get"): Rule(Right.READ_TRANSCRIPTS),
    # Without the header that browsers send.
    ("playground_token", "post"): Rule(Right.READ_TRANSCRIPTS, 409),
    ("keys", "get"): Rule(Right.SEE_KEYS),
    ("new_key", "get"): Rule(Right.MANAGE_KEYS),
    ("new_key", "post"): Rule(Right.MANAGE_KEYS, 200, fields={"name": "mine", "scopes": ["meta:read"], "expires": "7d"}),
    ("key", "get"): Rule(Right.SEE_KEYS, 200, _key),
    ("key_limits", "get"): Rule(Right.MANAGE_KEYS, 200, _key),
    ("key_limits", "post"): Rule(Right.MANAGE_KEYS, 302, _key, {"max_sessions": "5"}),
    ("rotate_key", "get"): Rule(Right.MANAGE_KEYS, 200, _key),
    ("rotate_key", "post"): Rule(Right.MANAGE_KEYS, 200, _key, {"overlap": "1h"}),
    ("revoke_key", "get"): Rule(Right.MANAGE_KEYS, 200, _key),
    ("revoke_key", "post"): Rule(Right.MANAGE_KEYS, 302, _key),
    ("sessions", "get"): Rule(Right.SEE_SESSIONS),
    ("session", "get"): Rule(Right.READ_TRANSCRIPTS, 200, _session),
    # Without the header that browsers send.
    ("session_token", "post"): Rule(Right.READ_TRANSCRIPTS, 409, _session),
    ("export_session", "get"): Rule(Right.EXPORT_SESSIONS, 200, _session),
    ("export_session", "post"): Rule(Right.EXPORT_SESSIONS, 200, _session, {"form": "lines"}),
    ("stop_session", "get"): Rule(Right.STOP_TURNS, 200, _session),
    ("stop_session", "post"): Rule(Right.STOP_TURNS, 302, _session),
    ("delete_session", "get"): Rule(Right.DELETE_SESSIONS, 200, _session),
    ("delete_session", "post"): Rule(Right.DELETE_SESSIONS, 302, _session),
    ("export_tenant", "get"): Rule(Right.EXPORT_SESSIONS),
    ("export_tenant", "post"): Rule(Right.EXPORT_SESSIONS),
    ("webhooks", "get"): Rule(Right.SEE_WEBHOOKS),
    ("new_webhook", "get"): Rule(Right.MANAGE_WEBHOOKS),
    ("new_webhook", "post"): Rule(Right.MANAGE_WEBHOOKS, 200, fields=WEBHOOK),
    ("webhook", "get"): Rule(Right.SEE_WEBHOOKS, 200, _webhook),
    ("change_webhook", "get"): Rule(Right.MANAGE_WEBHOOKS, 200, _webhook),
    ("change_webhook", "post"): Rule(Right.MANAGE_WEBHOOKS, 302, _webhook, WEBHOOK),
    ("rotate_webhook", "get"): Rule(Right.MANAGE_WEBHOOKS, 200, _webhook),
    ("rotate_webhook", "post"): Rule(Right.MANAGE_WEBHOOKS, 200, _webhook),
    ("test_webhook", "post"): Rule(Right.MANAGE_WEBHOOKS, 302, _webhook),
    ("delete_webhook", "get"): Rule(Right.MANAGE_WEBHOOKS, 200, _webhook),
    ("delete_webhook", "post"): Rule(Right.MANAGE_WEBHOOKS, 302, _webhook),
    ("repeat_delivery", "post"): Rule(Right.MANAGE_WEBHOOKS, 302, _delivery),
    ("use", "get"): Rule(Right.SEE_USE),
    ("use_file", "get"): Rule(Right.SEE_USE),
    ("members", "get"): Rule(Right.SEE_MEMBERS),
    ("audit", "get"): Rule(Right.SEE_AUDIT),
    ("audit_file", "post"): Rule(Right.EXPORT_AUDIT),
    ("invite", "post"): Rule(Right.MANAGE_MEMBERS, fields={"role": "reader"}),
    ("withdraw", "post"): Rule(Right.MANAGE_MEMBERS, 302, _invitation),
    ("member", "post"): Rule(Right.MANAGE_MEMBERS, 302, _member, {"role": "developer"}),
}
"""Every page of a tenant: the name of its URL and a method. A method that is not here must be refused with 405."""


def names() -> Iterator[str]:
    for pattern in get_resolver("sessions_app.console.urls").url_patterns:
        name = getattr(pattern, "name", None)
        assert name, f"{pattern} has no name, so no rule either"
        yield name


def client_of(user: User | None) -> Client:
    client = Client(REMOTE_ADDR="192.0.2.1")
    if user is not None:
        client.force_login(user)
    return client


def send(client: Client, name: str, method: str, values: Values, fields: dict[str, Any]) -> Any:
    answer = getattr(client, method)(reverse(f"console:{name}", kwargs=values), fields)
    if answer.streaming:
        body(answer)
    return answer


def test_every_page_of_the_console_has_a_rule() -> None:
    assert {name for name, _ in RULES} == set(names()) - {"home", "nothing"}


@pytest.mark.parametrize(("name", "method"), RULES)
def test_each_role_gets_what_its_rights_allow(name: str, method: str) -> None:
    rule = RULES[name, method]
    for role in Role:
        tenant = make_tenant(f"of-{role}")
        Member.objects.create(tenant=tenant, user=User.objects.create_user(f"first {role}"), role=Role.OWNER)
        viewer = User.objects.create_user(role)
        Member.objects.create(tenant=tenant, user=viewer, role=role)
        answer = send(client_of(viewer), name, method, {"slug": tenant.slug, **rule.make(tenant)}, rule.fields)
        expected = rule.status if rule.right in RIGHTS[role] else 403
        assert answer.status_code == expected, f"{role}: {answer.status_code} {answer!r}"
        assert "default-src 'none'" in answer["Content-Security-Policy"] or answer.status_code == 302


@pytest.mark.parametrize(("name", "method"), RULES)
def test_nobody_else_learns_that_the_page_exists(name: str, method: str) -> None:
    rule = RULES[name, method]
    tenant, other = make_tenant("acme"), make_tenant("other")
    stranger = User.objects.create_user("stranger")
    Member.objects.create(tenant=other, user=stranger, role=Role.OWNER)
    operator = User.objects.create_user("operator", is_staff=True)
    Staff.objects.create(user=operator, role=StaffRole.OPERATOR)
    values = {"slug": "acme", **rule.make(tenant)}
    users = {
        "a member of another tenant": stranger,
        "staff": operator,
        "a superuser": User.objects.create_superuser("root"),
        "an account without a tenant": User.objects.create_user("nobody"),
    }
    for what, user in users.items():
        answer = send(client_of(user), name, method, values, rule.fields)
        assert answer.status_code == 404, f"{what}: {answer.status_code}"
    # What the URL names belongs to another tenant than the one in the URL.
    if len(values) > 1:
        answer = send(client_of(stranger), name, method, {**values, "slug": "other"}, rule.fields)
        assert answer.status_code == 404, f"an object of another tenant: {answer.status_code}"
    anonymous = send(client_of(None), name, method, values, rule.fields)
    assert anonymous["Location"].startswith("/accounts/login/?next=/console/acme/")


@pytest.mark.parametrize("name", sorted({name for name, _ in RULES}))
def test_other_methods_are_refused(name: str) -> None:
    tenant = make_tenant("acme")
    owner = User.objects.create_user("owner")
    Member.objects.create(tenant=tenant, user=owner, role=Role.OWNER)
    rule = next(RULES[name, method] for method in METHODS if (name, method) in RULES)
    values = {"slug": "acme", **rule.make(tenant)}
    for method in ("get", "post", "put", "patch", "delete"):
        if (name, method) not in RULES:
            assert send(client_of(owner), name, method, values, {}).status_code == 405, method
