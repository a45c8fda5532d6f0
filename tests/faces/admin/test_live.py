"""Open pages of sessions that go on by themselves, and forks: who gets them, what they contain, how they end."""

from __future__ import annotations

import asyncio
import gc
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as SignIn
from django.core import signing
from django.test import Client
from django.utils import timezone

from sessions_app.admin import live
from sessions_app.core.base import database
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.tenancy import usage_entries
from sessions_app.models import ApiKey, AuditRecord, Message, ModelUse, Session, Staff, Tenant, Turn, TurnState
from tests.faces.admin.conversations import make_session, make_turn, say
from tests.faces.admin.pages import html, url
from tests.sample_tenants import SampleTenants
from tests.sample_tenants import make_session as create

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def talk(acme: Tenant) -> tuple[Session, Turn]:
    session = make_session(acme)
    journal.create_tail(session.pk)
    turn = make_turn(session, TurnState.RUNNING)
    say(session, "user", "hello", turn)
    return session, turn


def append(session: Session, *happenings: Happening) -> None:
    with journal.transaction() as tx:
        for each in happenings:
            tx.append(NewEvent(session.tenant_id, session.pk, each))


def stream_of(page: str) -> str:
    return page.split('data-live="')[1].split('"', maxsplit=1)[0].replace("&amp;", "&")


async def read(answer: Any, upto: str) -> list[tuple[str, Any]]:
    """The events up to the first one with this name."""
    found, rest = [], b""
    async with asyncio.timeout(60):
        async for chunk in answer:
            rest += chunk
            while b"\n\n" in rest:
                whole, rest = rest.split(b"\n\n", 1)
                lines = dict(line.split(": ", 1) for line in whole.decode().splitlines() if not line.startswith(":"))
                if lines.get("event", "at") != "at":
                    found.append((lines["event"], json.loads(lines["data"])))
                    if lines["event"] == upto:
                        return found
    return found


def test_an_open_page_gets_the_output_and_then_the_message_and_is_recorded_once(eve: Client, talk: tuple[Session, Turn]) -> None:
    session, turn = talk
    hostile = "<script>x</script>"
    step = {"turn": turn.public_id, "step": 1}
    append(session, Happening(Kind.STEP_STARTED, step), Happening(Kind.TEXT_DELTA, {**step, "part": "p", "delta": "Hel"}, "p"))
    page = html(eve.get(url("session", "change", session)))
    append(session, Happening(Kind.TEXT_DELTA, {**step, "part": "p", "delta": "lo"}, "p"))
    answer = eve.get(stream_of(page))
    assert answer.headers["Content-Type"] == "text/event-stream"
    say(session, "assistant", hostile, turn, step=1)
    append(session, Happening(Kind.STEP_DONE, step))
    events = asyncio.run(read(answer, "settled"))
    shown = next(shown for name, shown in events if name == "turn")
    assert shown["id"] == turn.public_id
    assert f'id="{turn.public_id}"' in shown["html"]
    assert "&lt;script&gt;" in shown["html"]
    assert "<script" not in shown["html"]
    facts = next(shown for name, shown in events if name == "facts")
    assert "<dt>Messages</dt><dd>2</dd>" in facts
    assert "data-running" in facts
    # Begun before the page was loaded: the page gets the step from its start, or as a message.
    again = asyncio.run(read(eve.get(stream_of(page), headers={"Last-Event-ID": "0"}), "settled"))
    assert again[-1] == ("settled", {})
    records = AuditRecord.objects.filter(action="transcript_read")
    assert [row.detail for row in records] == ["messages, page 1 of 1, and what follows live"]
    database.shut_down()


def test_what_stands_beside_an_open_transcript_is_renewed_with_it(eve: Client, talk: tuple[Session, Turn]) -> None:
    session, turn = talk
    page = html(eve.get(url("session", "change", session)))
    assert f'<a class="button ah-quiet" id="stop" href="{url("session", "stop", session)}"' in page
    assert "<dt>Cost</dt>" not in page
    Session.objects.filter(pk=session.pk).update(created_at=timezone.now())
    answer = eve.get(stream_of(page))
    ModelUse.objects.create(
        tenant_id=session.tenant_id, day=usage_entries.today(), session=session.public_id, agent="demo", model="m",
        purpose="turn", calls=1, input_tokens=7, output_tokens=5, cache_read_tokens=0, cost_nano=2_500_000_000,
    )  # fmt: skip
    Turn.objects.filter(pk=turn.pk).update(state=TurnState.DONE, input_tokens=7000, ended_at=timezone.now())
    append(session, Happening(Kind.TURN_ENDED, {"turn": turn.public_id, "stop_reason": "end_turn"}))
    facts = asyncio.run(read(answer, "facts"))[-1][1]
    assert '<dl class="ah-facts" id="facts">' in facts
    assert "<dt>Live turn</dt><dd>none</dd>" in facts
    assert "<dd>7,000 in, 0 out</dd>" in facts
    assert "<dt>Cost</dt><dd>2.50</dd>" in facts
    database.shut_down()


def test_a_stream_ends_with_the_sign_in_and_with_the_right(
    eve: Client, talk: tuple[Session, Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "CHECK_SECONDS", 0.05)
    address = stream_of(html(eve.get(url("session", "change", talk[0]))))
    answer = eve.get(address)
    SignIn.objects.all().delete()
    assert asyncio.run(read(answer, "over"))[-1][0] == "over"
    user = User.objects.create_user("operator")
    staff = Staff.objects.create(user=user, role="operator", reads_transcripts=True)
    client = Client()
    client.force_login(user)
    address = stream_of(html(client.get(url("session", "change", talk[0]))))
    answer = client.get(address)
    staff.delete()
    assert asyncio.run(read(answer, "over"))[-1][0] == "over"
    database.shut_down()


def test_a_stream_needs_the_ticket_of_its_page_its_account_and_the_right(
    eve: Client, reader: Client, talk: tuple[Session, Turn]
) -> None:
    session, _ = talk
    address = stream_of(html(eve.get(url("session", "change", session))))
    plain = address.split("?")[0]
    assert eve.get(plain).status_code == 403
    assert reader.get(address).status_code == 403
    other = make_session(session.tenant)
    wrong = live.ticket(User.objects.get(username="eve").pk, other)
    assert eve.get(plain, {"ticket": wrong}).status_code == 403
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signing.time, "time", lambda: (timezone.now() - timedelta(hours=1)).timestamp())  # type: ignore[attr-defined]
        old = live.ticket(User.objects.get(username="eve").pk, session)
    assert eve.get(plain, {"ticket": old}).status_code == 403
    Staff.objects.update(reads_transcripts=False)
    own = live.ticket(User.objects.get(username="reader").pk, session)
    assert reader.get(plain, {"ticket": own}).status_code == 403


def test_an_account_follows_a_limited_number_of_pages(eve: Client, talk: tuple[Session, Turn]) -> None:
    gc.collect()
    address = stream_of(html(eve.get(url("session", "change", talk[0]))))
    opened = [eve.get(address) for _ in range(live.OF_ACCOUNT)]
    assert {answer.status_code for answer in opened} == {200}
    assert eve.get(address).status_code == 503
    for answer in opened:
        answer.close()
    del opened, answer
    gc.collect()
    assert eve.get(address).status_code == 200


def test_a_page_of_a_session_without_a_live_turn_follows_nothing(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    say(session, "user", "hello", make_turn(session))
    assert "data-live" not in html(eve.get(url("session", "change", session)))


# --- forks ---


def test_an_operator_forks_a_session_and_finds_the_copy(eve: Client, sample: SampleTenants, scripted_agents: None) -> None:
    session = create(sample.alice.caller)
    first, second = make_turn(session), make_turn(session)
    say(session, "user", "one", first)
    say(session, "user", "two", second)
    form = html(eve.get(url("session", "fork", session)))
    assert form.index(second.public_id) < form.index(first.public_id)
    answer = eve.post(url("session", "fork", session), {"turn": first.public_id})
    made = Session.objects.exclude(pk=session.pk).get(tenant=sample.alice.tenant)
    assert answer.headers["Location"] == url("session", "change", made)
    assert [row.content for row in Message.objects.filter(session=made)] == ['"one"']
    assert made.created_by_id == session.created_by_id
    record = AuditRecord.objects.get(action="session_forked")
    assert (record.actor, record.target) == ("admin:eve", f"session {session.public_id}")
    assert record.detail == f"into {made.public_id}, up to turn {first.public_id}"
    page = html(eve.get(answer.headers["Location"]))
    assert f"forked from {session.public_id}" in page


def test_a_fork_is_refused_without_the_right_and_without_a_valid_key(
    eve: Client, reader: Client, sample: SampleTenants, scripted_agents: None
) -> None:
    session = create(sample.alice.caller)
    turn = make_turn(session)
    say(session, "user", "one", turn)
    assert reader.post(url("session", "fork", session), {"turn": turn.public_id}).status_code == 403
    assert "not one of the available choices" in html(eve.post(url("session", "fork", session), {"turn": "turn_x"}))
    ApiKey.objects.filter(tenant=sample.alice.tenant).update(revoked_at=timezone.now())
    assert "is not valid any more" in html(eve.post(url("session", "fork", session), {"turn": turn.public_id}))
    assert Session.objects.filter(tenant=sample.alice.tenant).count() == 1
