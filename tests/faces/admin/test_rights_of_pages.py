"""Every page of the admin and every kind of account: who gets it. A new page fails here until it has a line of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from sessions_app.core.log import journal
from sessions_app.core.sessions import tenant_deletion
from sessions_app.core.tenancy import keys
from sessions_app.models import (
    AuditRecord,
    Member,
    ModelUse,
    Role,
    Staff,
    StaffRole,
    Tenant,
    Terminal,
    Webhook,
    WebhookDelivery,
    Workspace,
)
from tests.faces.admin.conversations import START, make_session, make_tenant, make_turn, say
from tests.faces.admin.pages import address, patterns
from tests.faces.console.conftest import body

pytestmark = pytest.mark.django_db(transaction=True)

HIDDEN = "zebra-corp"
ROLES = ("superuser", "operator", "reading", "auditor", "limited", "foreign", "member", "nobody")
"""``operator`` and ``auditor`` may not read transcripts, ``reading`` is an operator who may; ``limited``: the same, of the tenant
of the rows alone; ``foreign``: of another tenant; ``member``: owner of the tenant, no staff."""


@pytest.fixture
def rows(transactional_db: None) -> Mapping[str, Any]:
    """A row of each kind, of one tenant, by the name of its model."""
    acme = make_tenant(HIDDEN)
    make_tenant("globex")
    key = keys.issue(acme, name="k", scopes=["*"], expires_at=None, allowed_agents=None, actor="x").key
    session = make_session(acme)
    journal.create_tail(session.pk)
    say(session, "user", "hello", make_turn(session))
    gone = make_tenant("gone-corp")
    deletion = tenant_deletion.begin(gone, actor="x")
    assert tenant_deletion.advance(deletion, 60)
    webhook = Webhook.objects.create(tenant=acme, public_id="wh_1", url="https://x.example/", created_at=START)
    delivery = WebhookDelivery.objects.create(
        tenant=acme, webhook=webhook, event="evt_1", type="turn.ended", body="{}", public_id="del_1", until=START
    )
    terminal = Terminal.objects.create(
        tenant=acme, public_id="term_1", uri="t:/1", claim='{"client":"c"}', line=1, cols=80, rows=24, state="exited",
        requested_at=START,
    )  # fmt: skip
    use = ModelUse.objects.create(
        tenant_id=acme.pk, day="2026-01-01", session=session.public_id, agent="a", model="m", purpose="turn", calls=1,
        input_tokens=1, output_tokens=1, cache_read_tokens=0,
    )  # fmt: skip
    space = Workspace.objects.create(
        tenant=acme, public_id="ws_1", root="file:///a", private=False, used_at=START, changed_at=START, created_at=START
    )
    record = AuditRecord.objects.filter(tenant=acme).first()
    person = User.objects.create_user("person")
    return {
        "tenant": acme, "apikey": key, "session": session, "tenantdeletion": deletion, "webhook": webhook,
        "webhookdelivery": delivery, "terminal": terminal, "modeluse": use, "workspace": space, "auditrecord": record,
        "user": person,
    }  # fmt: skip


@pytest.fixture
def accounts(rows: Mapping[str, Any]) -> Mapping[str, Client]:
    def staff(name: str, role: StaffRole, *, reads: bool, of: Sequence[Tenant] = ()) -> User:
        user = User.objects.create_user(name)
        made = Staff.objects.create(user=user, role=role, reads_transcripts=reads, limited=bool(of))
        made.tenants.set(of)
        return user

    acme = rows["tenant"]
    own = [acme, Tenant.objects.get(pk=rows["tenantdeletion"].tenant_id)]
    member = User.objects.create_user("member")
    Member.objects.create(tenant=acme, user=member, role=Role.OWNER)
    users = {
        "superuser": User.objects.create_superuser("superuser"),
        "operator": staff("operator", StaffRole.OPERATOR, reads=False),
        "reading": staff("reading", StaffRole.OPERATOR, reads=True),
        "auditor": staff("auditor", StaffRole.AUDITOR, reads=False),
        "limited": staff("limited", StaffRole.OPERATOR, reads=True, of=own),
        "foreign": staff("foreign", StaffRole.OPERATOR, reads=True, of=[Tenant.objects.get(slug="globex")]),
        "member": member,
        "nobody": None,
    }
    clients = {}
    for role, user in users.items():
        clients[role] = Client()
        if user is not None:
            clients[role].force_login(user)
    return clients


# --- the table ---
# One character for each staff role, in the order of ROLES: 2 for 200, 3 for 403, 4 for 404, 5 for 405, i for a redirect to the
# index.

_OF_ALL_STAFF, _NEVER, _OF_SUPERUSERS = "222222", "333333", "233333"
_ROW_OF_DJANGO, _ROW, _ACTION, _CONTENT = "22222i", "222224", "222324", "232324"
_MODELS = ("apikey", "auditrecord", "modeluse", "session", "tenant", "tenantdeletion", "terminal", "webhook", "webhookdelivery",
           "workspace")  # fmt: skip
PAGES: Mapping[str, str] = {
    "index": _OF_ALL_STAFF,
    "agents": "222233",
    "agents_check": "555333",
    "jsi18n": _OF_ALL_STAFF,
    "password_change_done": _OF_ALL_STAFF,
    "autocomplete": _NEVER,
    **dict.fromkeys((f"sessions_app_{model}_changelist" for model in _MODELS), _OF_ALL_STAFF),
    **dict.fromkeys((f"sessions_app_{model}_history" for model in _MODELS), _ROW_OF_DJANGO),
    **dict.fromkeys((f"sessions_app_{model}_change" for model in _MODELS), _ROW_OF_DJANGO),
    **dict.fromkeys((f"sessions_app_{model}_{page}" for model in _MODELS for page in ("add", "delete")), _NEVER),
    **dict.fromkeys((f"auth_user_{page}" for page in ("add", "change", "changelist", "delete", "history")), _OF_SUPERUSERS),
    "auth_user_password_change": _OF_SUPERUSERS,
    "sessions_app_apikey_add": "222322",
    "sessions_app_apikey_change": _ROW,
    "sessions_app_apikey_limits": _ACTION,
    "sessions_app_apikey_revoke": _ACTION,
    "sessions_app_apikey_rotate": _ACTION,
    "sessions_app_auditrecord_download": _OF_ALL_STAFF,
    "sessions_app_auditrecord_verify": _OF_ALL_STAFF,
    "sessions_app_session_change": _CONTENT,
    "sessions_app_session_delete-session": _ACTION,
    "sessions_app_session_events": _CONTENT,
    "sessions_app_session_export": _CONTENT,
    "sessions_app_session_fork": _ACTION,
    "sessions_app_session_input": _CONTENT,
    # Without the ticket of an open page nobody.
    "sessions_app_session_live": "333334",
    "sessions_app_session_stop": _ACTION,
    "sessions_app_tenant_add": "222333",
    "sessions_app_tenant_delete-tenant": _ACTION,
    "sessions_app_tenant_export": _CONTENT,
    "sessions_app_tenant_invite": _ACTION,
    "sessions_app_tenant_resume": _ACTION,
    "sessions_app_tenant_suspend": _ACTION,
    "sessions_app_tenantdeletion_certificate": _ROW,
    "sessions_app_tenantdeletion_change": _ROW,
    "sessions_app_terminal_change": _CONTENT,
    "sessions_app_terminal_end": _ACTION,
    "sessions_app_workspace_change": _CONTENT,
    "sessions_app_workspace_export": "535354",
    "sessions_app_workspace_remove": _ACTION,
}
ELSEWHERE = frozenset({"login", "logout", "password_change", "app_list", "view_on_site"})
"""Sign-in, which other tests cover; Django's list of an application, and its redirect to a row's own page, tested below."""
_STATUS = {"2": 200, "3": 403, "4": 404, "5": 405, "i": 302}


def seen(answer: Any) -> tuple[int, str]:
    """The status, and where a redirect leads."""
    return answer.status_code, answer.headers.get("Location", "").partition("?")[0]


def test_every_page_has_a_rule_and_keeps_it_for_every_kind_of_account(
    rows: Mapping[str, Any], accounts: Mapping[str, Client]
) -> None:
    assert set(patterns()) == {*PAGES, *ELSEWHERE}, "give a new page a line in PAGES"
    for name, rule in PAGES.items():
        where = address(name, rows)
        for role, expected in zip(ROLES, rule, strict=False):
            status, to = seen(accounts[role].get(where))
            assert status == _STATUS[expected], (name, role, status, to)
            assert status != 302 or to == "/admin/", (name, role, to)
        for role in ("member", "nobody"):
            assert seen(accounts[role].get(where)) == (302, "/admin/login/"), (name, role)


def test_what_an_account_may_not_see_it_may_not_send_either(rows: Mapping[str, Any], accounts: Mapping[str, Client]) -> None:
    before = AuditRecord.objects.count()
    for name, rule in PAGES.items():
        where = address(name, rows)
        for role, expected in [*zip(ROLES, rule, strict=False), ("member", "3"), ("nobody", "3")]:
            if expected in "34i":
                answer = accounts[role].post(where, {"confirmed": "yes", "name": HIDDEN, "role": "owner", "form": "jsonl"})
                assert answer.status_code in (302, 403, 404, 405), (name, role, answer.status_code)
    assert AuditRecord.objects.count() == before
    assert Tenant.objects.get(slug=HIDDEN).suspended_at is None


def test_staff_of_another_tenant_find_nothing_of_this_one_anywhere(
    rows: Mapping[str, Any], accounts: Mapping[str, Client]
) -> None:
    marks = [HIDDEN, "gone-corp", "wh_1", "del_1", "term_1", "ws_1", rows["session"].public_id, rows["apikey"].prefix]
    foreign = accounts["foreign"]
    for name in PAGES:
        answer = foreign.get(address(name, rows))
        if answer.status_code == 302:
            answer = foreign.get(answer.headers["Location"])
        page = (body(answer) if answer.streaming else answer.content).decode()
        assert [mark for mark in marks if mark in page] == [], name
    for query in ("range=hour", "range=day", "range=week"):
        assert HIDDEN not in foreign.get(f"/admin/?{query}").content.decode()
    ask = {"app_label": "sessions_app", "model_name": "apikey", "field_name": "tenant", "term": "zebra"}
    assert HIDDEN not in foreign.get(reverse("admin:autocomplete"), ask).content.decode()


def test_the_redirect_to_a_rows_own_page_tells_no_row_from_a_missing_one(
    rows: Mapping[str, Any], accounts: Mapping[str, Client]
) -> None:
    for row in rows.values():
        kind = ContentType.objects.get_for_model(row).pk
        there = accounts["foreign"].get(reverse("admin:view_on_site", args=(kind, row.pk)))
        missing = accounts["foreign"].get(reverse("admin:view_on_site", args=(kind, 999_999)))
        assert there.status_code == missing.status_code == 404
        assert there.content.replace(str(row.pk).encode(), b"") == missing.content.replace(b"999999", b"")
    for role in ROLES:
        status, to = seen(accounts[role].get(reverse("admin:app_list", args=("sessions_app",))))
        assert (status, to) == ((302, "/admin/login/") if role in ("member", "nobody") else (200, "")), role


@pytest.mark.django_db(transaction=True)
def test_a_refused_page_is_a_page_for_people_and_a_text_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    auditor = User.objects.create_user("auditor", is_staff=True)
    Staff.objects.create(user=auditor, role=StaffRole.AUDITOR)
    client = Client(raise_request_exception=False)
    client.force_login(auditor)
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = client.get("/admin/auth/user/", headers=browser)
    assert page.status_code == 403
    assert "Your account has no right to it." in page.content.decode()
    assert "default-src 'none'" in page["Content-Security-Policy"]
    assert client.get("/admin/auth/user/", headers={"Accept": "*/*"}).content == b"This is not allowed.\n"
    assert "Nothing is here" in client.get("/admin/nowhere/", headers=browser).content.decode()

    def fail(*args: object, **more: object) -> None:
        raise OperationalError("connection to 10.1.2.3 failed")

    monkeypatch.setattr("sessions_app.admin.overview.overview", fail)
    monkeypatch.setattr("django.db.backends.utils.CursorWrapper.execute", fail)
    down = client.get("/admin/?range=week", headers=browser)
    assert (down.status_code, down["Retry-After"].isdigit()) == (503, True)
    text = down.content.decode()
    assert 'href="/admin/?range=week">Try again</a>' in text
    assert "10.1.2.3" not in text
