"""The console's pages of sessions."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from sessions_app.console import paging
from sessions_app.core.records import search_index
from sessions_app.core.tenancy import keys, tokens
from sessions_app.models import AccessToken, AuditRecord, CallState, Role, Session, SessionTail, Tenant, TurnState
from tests.faces.admin.conversations import START, call, make_session, make_tenant, make_turn, say, text_block
from tests.faces.console.conftest import As, body, text

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def acts(tenant: Tenant) -> list[tuple[str, str, str]]:
    return list(
        AuditRecord.objects.filter(tenant=tenant)
        .exclude(action="tenant_created")
        .order_by("id")
        .values_list("actor", "action", "target")
    )


def address(session: Session, rest: str = "") -> str:
    return f"/console/acme/sessions/{session.public_id}/{rest}"


def listed(client: Client, query: str = "") -> list[str]:
    page = text(client.get(f"/console/acme/sessions/{query}"))
    return [row.split("</code>")[0] for row in page.split("<code>")[1:]]


@pytest.fixture
def talk(acme: Tenant) -> Session:
    session = make_session(acme, title="An **invoice**")
    SessionTail.objects.create(session_id=session.pk)
    turn = make_turn(session)
    say(session, "user", "How much is *invoice* 4711?", turn)
    asks = {"type": "tool_use", "toolCallId": "c1", "name": "calculator", "input": {"sum": "6*7"}}
    say(session, "assistant", [{"type": "thinking", "thinking": "six times seven"}, text_block("I **calculate**."), asks], turn)
    call(session, turn, "c1", "calculator", arguments='{"sum":"6*7"}', state=CallState.DONE)
    say(session, "tool", [text_block("42")], turn, tool_call_id="c1")
    say(session, "assistant", [text_block(f"It is 42. {HOSTILE}")], turn)
    return session


def test_a_transcript_is_readable_and_safe_and_reading_it_is_recorded(acme: Tenant, as_role: As, talk: Session) -> None:
    answer = as_role(Role.READER).get(address(talk))
    page = text(answer)
    assert "I <strong>calculate</strong>." in page
    assert '<details class="ah-fold ah-thinking"><summary>Thinking</summary>' in page
    assert "calculator" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert acts(acme) == [("member:reader", "transcript_read", f"session {talk.public_id}")]
    assert "Delete" not in page, "a reader changes nothing"


def test_a_page_that_follows_a_session_is_recorded_once_an_hour(acme: Tenant, as_role: As, talk: Session) -> None:
    client = as_role(Role.READER)
    for _ in range(3):
        assert client.get(address(talk) + "?live=1").status_code == 200
    assert len(acts(acme)) == 1
    assert as_role(Role.OWNER).get(address(talk) + "?live=1").status_code == 200
    assert [actor for actor, _, _ in acts(acme)] == ["member:reader", "member:owner"]


def test_the_token_of_a_page_reads_this_session_only(acme: Tenant, as_role: As, talk: Session) -> None:
    client = as_role(Role.READER)
    answer = client.post(address(talk, "token/"), headers={"Origin": "http://testserver"})
    minted = answer.json()
    caller = tokens.authenticate(minted["token"])
    assert (caller.tenant, caller.session, caller.origin) == (acme.pk, talk.pk, "http://testserver")
    assert caller.scopes == {"sessions:read"}
    foreign = client.post(address(talk, "token/"), headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 409
    assert AccessToken.objects.count() == 1


def test_sessions_are_found_by_words_id_agent_key_state_and_day(acme: Tenant, as_role: As) -> None:
    issued = keys.issue(acme, name="app", scopes=["*"], expires_at=None, allowed_agents=None, actor="x")
    old = make_session(acme, agent_name="other", created_at=START - timedelta(days=5))
    new = make_session(acme, created_by=issued.key, title="paid twice")
    failed = make_session(acme, created_at=START + timedelta(days=1))
    turn = make_turn(new, TurnState.WAITING)
    make_turn(failed, TurnState.ERROR)
    say(new, "user", "a refund of invoice 4711", turn)
    search_index.index_session(new.pk)
    make_session(make_tenant("other"), title="of another tenant")
    client = as_role(Role.READER)
    everything = [failed.public_id, new.public_id, old.public_id]
    assert listed(client) == everything
    assert listed(client, "?words=invoice+4711") == [new.public_id]
    assert listed(client, '?words="invoice+refund"') == []
    assert listed(client, f"?id={new.public_id[:12]}") == [new.public_id]
    assert listed(client, "?agent=other") == [old.public_id]
    assert listed(client, f"?key={issued.key.prefix}…") == [new.public_id]
    assert listed(client, "?state=waiting") == [new.public_id]
    assert listed(client, "?state=error") == [failed.public_id]
    assert listed(client, "?state=idle") == [failed.public_id, old.public_id]
    assert listed(client, "?since=2025-03-01&until=2025-03-01") == [new.public_id]
    for nonsense in ("?since=yesterday", "?state=%00", "?before=99999999999999999999", "?words=%20"):
        assert listed(client, nonsense) == everything, nonsense
    assert listed(client, "?before=1234567") == []
    assert "No session matches" in text(client.get("/console/acme/sessions/?agent=nobody"))


def test_the_list_goes_on_by_keyset_and_asks_few_questions(
    acme: Tenant, as_role: As, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(paging, "A_PAGE", 2)
    made = [make_session(acme, created_at=START) for _ in range(5)]
    client = as_role(Role.READER)
    with django_assert_max_num_queries(10) as asked:
        assert listed(client) == [made[4].public_id, made[3].public_id]
    assert not any("count(" in query["sql"].lower() for query in asked.captured_queries)
    assert listed(client, f"?before={made[3].pk}") == [made[2].public_id, made[1].public_id]
    assert listed(client, f"?before={made[1].pk}") == [made[0].public_id]


def test_a_developer_stops_exports_and_deletes_with_records(acme: Tenant, as_role: As, talk: Session) -> None:
    client = as_role(Role.DEVELOPER)
    turn = make_turn(talk, TurnState.WAITING)
    assert "Stop the turn?" in text(client.get(address(talk, "stop/")))
    assert client.post(address(talk, "stop/"))["Location"] == address(talk)
    turn.refresh_from_db()
    assert turn.state == TurnState.CANCELLED
    lines = body(client.post(address(talk, "export/"), {"form": "lines"}))
    records = [json.loads(line) for line in lines.splitlines()]
    assert records[0]["type"] == "export"
    assert records[-1]["type"] == "end"
    as_page = client.post(address(talk, "export/"), {"form": "page"})
    assert as_page["Content-Disposition"] == f'attachment; filename="{talk.public_id}.html"'
    assert b"It is 42" in body(as_page)
    assert "cannot be undone" in text(client.get(address(talk, "delete/")))
    assert Session.objects.filter(pk=talk.pk).exists(), "asking deletes nothing"
    assert client.post(address(talk, "delete/"))["Location"] == "/console/acme/sessions/"
    assert client.get(address(talk)).status_code == 404
    assert [action for _, action, _ in acts(acme)] == ["turn_stopped", "session_exported", "session_exported", "session_deleted"]
    assert {actor for actor, _, _ in acts(acme)} == {"member:developer"}
