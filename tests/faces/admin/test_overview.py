"""The first page of the admin: whether the server is well, and what waits for somebody."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from sessions_app.core import figures
from sessions_app.core.base.caller import Caller, Limits
from sessions_app.core.records import live_workers
from sessions_app.core.tenancy import audit_chain, audit_sinks, key_watch, keys, served_agents
from sessions_app.core.tenancy.quotas import Quota
from sessions_app.models import AgentsOfProcess, Staff, StaffRole, Tenant, Turn, TurnState
from tests.faces.admin.conversations import make_session, make_tenant, make_turn
from tests.faces.admin.pages import html

pytestmark = pytest.mark.django_db(transaction=True)


def first_page(operator: Client, **query: str) -> str:
    return html(operator.get(reverse("admin:index"), query))


def test_an_empty_server_says_what_will_appear_and_that_no_worker_is_alive(eve: Client) -> None:
    page = first_page(eve)
    assert "No worker is alive" in page
    assert "ops/entrypoint worker" in page
    assert "There are no samples of the server in this range" in page
    assert page.count("No figures in this range.") == 6


def test_turns_errors_and_the_busiest_are_shown_for_each_range(eve: Client, acme: Tenant) -> None:
    now = live_workers.database_clock()
    began = now - timedelta(minutes=4)
    fields: dict[str, Any] = {"created_at": began, "queued_at": began, "ended_at": now - timedelta(minutes=3)}
    for _ in range(3):
        make_turn(make_session(acme, agent_name="writer"), **fields)
    make_turn(make_session(acme, agent_name="broken"), TurnState.ERROR, failure='{"kind":"timeout"}', **fields)
    figures.keep(60.0)
    for of in ("hour", "day", "week", "nonsense"):
        # Each time: on a slow machine a lease ends while the pages are made.
        live_workers.announce("w1")
        page = first_page(eve, range=of)
        assert "<dt>turns</dt><dd>4</dd>" in page
        assert "<dt>errors</dt><dd>1</dd>" in page
        assert "timeout: at most 1" in page, "the chart's text for screen readers"
        assert "?tenant=acme" in page
        assert "had 1 error in 4 turns" not in page
        assert "had 1 error in 1 turn " in page
        assert "The server is well" in page


def test_the_first_page_shows_the_queues_and_names_those_without_a_worker(eve: Client, acme: Tenant) -> None:
    live_workers.announce("w1", ["default"])
    assert "Queues now" not in first_page(eve)
    long_ago = live_workers.database_clock() - timedelta(seconds=90)
    turn = make_turn(make_session(acme), TurnState.QUEUED, created_at=long_ago, queued_at=long_ago, ended_at=None)
    Turn.objects.filter(pk=turn.pk).update(queue="heavy")
    live_workers.announce("w1", ["default"])
    page = first_page(eve)
    assert "No worker serves heavy: turns of this queue wait." in page
    assert "ops/entrypoint worker --queues heavy" in page
    assert '<th scope="row">heavy</th><td>1</td>' in page
    live_workers.announce("w2", ["heavy"])
    page = first_page(eve)
    assert "No worker serves" not in page
    assert '<th scope="row">heavy</th><td>1</td>' in page


def test_the_first_page_counts_webs_that_are_alive_and_their_streams_now_and_over_time(eve: Client, acme: Tenant) -> None:
    caller = Caller(tenant=acme.pk, key=1, key_prefix="", scopes=frozenset({"*"}))
    slots = [key_watch.Slot(of, caller) for of in (Quota.STREAMS_AT_ONCE, Quota.CONNECTIONS_AT_ONCE)]
    for process, role in (("web-1", "web"), ("web-2", "web"), ("worker-1", "worker")):
        served_agents.note(process, role, served_agents.Load("d", "", is_new=True))
    AgentsOfProcess.objects.filter(process="web-2").update(seen_at=timezone.now() - timedelta(minutes=10))
    figures.keep(60.0)
    page = first_page(eve)
    assert "<dt>webs</dt><dd>1</dd>" in page
    assert "<dt>open streams</dt><dd>2</dd>" in page
    assert "webs: at most 1" in page, "the chart's text for screen readers"
    assert "streams: at most 2" in page
    for slot in slots:
        slot.release()
    served_agents.note("web-1", "web", served_agents.Load("d", "", is_new=False))
    assert "<dt>open streams</dt><dd>0</dd>" in first_page(eve)


def test_the_first_page_shows_whether_the_audit_reaches_other_systems(eve: Client, acme: Tenant, settings: Any) -> None:
    live_workers.announce("w1")
    assert "The audit in other systems" not in first_page(eve)
    settings.AGENTHOST_AUDIT_SYSLOG = "tcp://127.0.0.1:1"
    audit_chain.link_new()
    assert "up to date" in first_page(eve)
    audit_sinks.keep_up(0.1)
    live_workers.announce("w1")
    page = first_page(eve)
    assert "The audit does not reach the syslog." in page
    assert "1 attempt failed:" in page
    assert "Correct AGENTHOST_AUDIT_SYSLOG" in page
    staff = Staff.objects.create(user=User.objects.create_user("lim"), role=StaffRole.OPERATOR, limited=True)
    staff.tenants.set([acme])
    limited = Client()
    limited.force_login(staff.user)
    page = first_page(limited)
    assert "The audit in other systems" not in page
    assert "There are no samples" not in page, "the server's samples are not for staff who are limited to tenants"


def test_what_waits_for_somebody_is_listed_with_links(eve: Client, acme: Tenant) -> None:
    waiting = make_session(acme)
    make_turn(waiting, TurnState.WAITING)
    now = live_workers.database_clock()
    issued = keys.issue(
        acme,
        name="short",
        scopes=["meta:read"],
        expires_at=now + timedelta(days=2),
        allowed_agents=None,
        actor="admin:eve",
        address="",
        limits=Limits(),
    )
    live_workers.announce("w1")
    page = first_page(eve)
    assert waiting.public_id in page
    assert "1 turn waits for a client" in page
    assert issued.key.prefix in page
    assert "The server is well; something waits for somebody." in page


def test_hostile_names_are_text_on_the_first_page(eve: Client, acme: Tenant) -> None:
    now = live_workers.database_clock()
    evil = "<img src=x onerror=alert(1)>\"'"
    fields: dict[str, Any] = {"created_at": now, "queued_at": now, "ended_at": now - timedelta(minutes=3)}
    make_turn(make_session(acme, agent_name=evil), TurnState.ERROR, error=evil, **fields)
    figures.keep(60.0)
    page = first_page(eve)
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page


def test_every_page_of_the_admin_has_the_strict_policy(eve: Client, acme: Tenant) -> None:
    pages = [reverse("admin:index"), reverse("admin:sessions_app_tenant_changelist"), reverse("admin:auth_user_changelist")]
    pages += [reverse("admin:sessions_app_tenant_change", args=(acme.pk,)), "/admin/nowhere/"]
    for response in [*(eve.get(page) for page in pages), Client().get(reverse("admin:login"))]:
        policy = response["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    for page in pages[:4]:
        text = html(eve.get(page))
        assert "<style" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        assert "<script>" not in text


def test_an_account_that_may_not_see_tenants_gets_no_figures(acme: Tenant) -> None:
    client = Client()
    client.force_login(User.objects.create_user("newcomer", is_staff=True))
    assert client.get(reverse("admin:index"), follow=True).status_code == 403


def test_staff_of_some_tenants_get_the_figures_of_these_and_none_of_the_server(acme: Tenant) -> None:
    from django.contrib.auth.models import User

    now = live_workers.database_clock()
    fields: dict[str, Any] = {"created_at": now, "queued_at": now, "ended_at": now - timedelta(minutes=3)}
    for tenant, agent in ((acme, "ours"), (make_tenant("other"), "theirs")):
        make_turn(make_session(tenant, agent_name=agent), TurnState.ERROR, failure='{"kind":"timeout"}', **fields)
    figures.keep(60.0)
    staff = Staff.objects.create(user=User.objects.create_user("lim"), role=StaffRole.OPERATOR, limited=True)
    staff.tenants.set([acme])
    client = Client()
    client.force_login(staff.user)
    page = first_page(client)
    assert "ours" in page
    assert "theirs" not in page
    assert "?tenant=other" not in page
    assert "Workers alive" not in page
