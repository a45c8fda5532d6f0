"""Sessions in the admin: found among many, read as conversations, never changed."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents_app import exact_json, registry
from agents_app.spec import AgentSpec, OptionSpec
from sessions_app.admin import sessions
from sessions_app.core.records import search_index
from sessions_app.core.tenancy import tenants
from sessions_app.models import (
    AuditRecord,
    CallRunner,
    CallState,
    Compaction,
    Event,
    Message,
    OptionValue,
    Origin,
    Session,
    SessionTail,
    Staff,
    Tenant,
    Turn,
    TurnState,
)
from tests.core.conftest import locked
from tests.faces.admin.conversations import (
    START,
    call,
    call_block,
    make_session,
    make_turn,
    say,
    text_block,
    with_a_tool,
)
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def transcript(operator: Client, session: Session, **query: Any) -> str:
    return html(operator.get(url("session", "change", session), query))


def listed(operator: Client, **query: Any) -> set[str]:
    page = html(operator.get(url("session", "changelist"), query))
    return {public_id for public_id in Session.objects.values_list("public_id", flat=True) if public_id in page}


# --- the list ---


def test_the_list_shows_the_state_of_each_session(eve: Client, acme: Tenant) -> None:
    busy, idle = make_session(acme), make_session(acme)
    make_turn(busy)
    make_turn(busy, TurnState.WAITING)
    page = html(eve.get(url("session", "changelist")))
    assert busy.public_id in page
    assert idle.public_id in page
    row = page[page.index(busy.public_id) :]
    assert "waiting" in row[: row.index("</tr>")]
    assert '<td class="field-turns">2</td>' in row[: row.index("</tr>")]


def test_the_list_is_filtered_by_tenant_agent_state_and_day(eve: Client, acme: Tenant) -> None:
    globex, _ = tenants.create("globex")
    one = make_session(acme)
    two = make_session(globex, agent_name="writer", created_at=START + timedelta(days=2))
    make_turn(two, TurnState.RUNNING)
    for query in (
        {"tenant": "acme"},
        {"agent": "demo"},
        {"state": "idle"},
        {"until": START.date().isoformat()},
        {"tenant": "acme", "agent": "demo", "state": "idle"},
    ):
        assert listed(eve, **query) == {one.public_id}, query
    for query in (
        {"tenant": "globex"},
        {"agent": "writer"},
        {"state": "running"},
        {"since": (START + timedelta(days=1)).date().isoformat()},
    ):
        assert listed(eve, **query) == {two.public_id}, query
    assert listed(eve, state="queued") == set()
    assert listed(eve, tenant="nobody") == set()


@pytest.mark.parametrize(
    "query",
    [{"since": "yesterday"}, {"until": "9999-12-31"}, {"state": "x"}, {"tenant": "\0"}, {"q": "\0"}, {"p": "x"}, {"p": "9"}],
)
def test_invalid_query_parameters_are_ignored(eve: Client, acme: Tenant, query: dict[str, str]) -> None:
    make_session(acme)
    assert eve.get(url("session", "changelist"), query).status_code in (200, 302)


def test_a_session_is_found_by_its_id_the_start_of_it_or_a_turns_id(eve: Client, acme: Tenant) -> None:
    wanted, _ = make_session(acme, public_id="sess_wanted1"), make_session(acme, public_id="sess_other1")
    turn = make_turn(wanted)
    assert listed(eve, q="sess_wanted1") == {"sess_wanted1"}
    assert listed(eve, q=" sess_wan ") == {"sess_wanted1"}
    assert listed(eve, q=turn.public_id) == {"sess_wanted1"}
    assert listed(eve, q="wanted1") == set()
    assert listed(eve, q="sess_%") == set()


def test_a_turns_id_is_searched_in_the_chosen_tenant_only(eve: Client, acme: Tenant) -> None:
    turn = make_turn(make_session(acme, public_id="sess_wanted1"))
    other, _ = tenants.create("other")
    make_session(other, public_id="sess_other1")
    assert listed(eve, q=turn.public_id, tenant=acme.slug) == {"sess_wanted1"}
    assert listed(eve, q=turn.public_id, tenant=other.slug) == set()


def test_a_search_that_takes_too_long_is_stopped_and_says_how_to_search(
    eve: Client, acme: Tenant, on_postgres: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no time limit for statements")
    monkeypatch.setattr(sessions, "_SEARCH_SECONDS", 0.1)
    make_turn(make_session(acme))

    def lock() -> None:
        with connection.cursor() as cursor:
            cursor.execute("lock table sessions_app_turn in access exclusive mode")

    with locked(lock):
        page = html(eve.get(url("session", "changelist"), {"q": "turn_unknown"}))
    assert "stopped after 0.1 s. Choose its tenant, and search again." in page


def test_deleted_sessions_are_neither_listed_nor_read(eve: Client, acme: Tenant) -> None:
    gone = make_session(acme, deleted_at=START)
    assert gone.public_id not in html(eve.get(url("session", "changelist")))
    assert eve.get(url("session", "change", gone), follow=True).status_code == 404
    assert not AuditRecord.objects.filter(action="transcript_read").exists()


def test_a_long_list_is_read_page_by_page_and_never_counted(eve: Client, acme: Tenant) -> None:
    Session.objects.bulk_create(
        Session(tenant=acme, public_id=f"sess_{n}", agent_name="demo", created_at=START, modified_at=START) for n in range(120)
    )
    seen: list[str] = []
    for query in ({}, {"tenant": "acme"}):
        address, found = "?", []
        while address:
            with CaptureQueriesContext(connection) as queries:
                page = html(eve.get(url("session", "changelist") + address, query if address == "?" else None))
            counts = [
                each["sql"] for each in queries if "count(*)" in each["sql"].lower() and "sessions_app_session" in each["sql"]
            ]
            assert all("sessions_app_turn" in sql for sql in counts), counts
            assert len(queries) < 15
            found += re.findall(r">(sess_\d+)<", page)
            later = re.search(r'href="([^"]*)">Next page', page)
            address = "" if later is None else unescape(later[1])
        assert found == [f"sess_{n}" for n in reversed(range(120))]
        seen += found
    assert "sess_0<" in html(eve.get(url("session", "changelist"), {"after": Session.objects.get(public_id="sess_1").pk}))
    assert listed(eve, after="999999") == set()
    assert listed(eve, after="x'") != set()


def test_sessions_are_found_by_words_and_by_key(eve: Client, acme: Tenant) -> None:
    other = make_session(acme)
    wanted = make_session(acme, title="Refund of invoice 4711")
    say(wanted, "user", "please hurry", make_turn(wanted))
    search_index.index_session(wanted.pk)
    for query in ({"words": "invoice"}, {"words": "hurry", "tenant": "acme"}, {"words": "refu*", "agent": "demo"}):
        assert listed(eve, **query) == {wanted.public_id}, query
    for query in ({"words": "hurry", "tenant": "nobody"}, {"words": "unheard"}, {"words": "-"}, {"key": "ah_none"}):
        assert listed(eve, **query) == set(), query
    assert other.public_id in listed(eve)


# --- the other pages of a session ---


def below(operator: Client, session: Session, page: str, **query: Any) -> Any:
    return operator.get(reverse(f"admin:sessions_app_session_{page}", args=(session.pk,)), query)


def test_the_events_of_a_session_are_read_from_any_position(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    evil = "</pre><script>alert(1)</script>"
    for seq in range(1, 251):
        data = exact_json.dumps({"delta": f"text{seq}"}) if seq != 250 else exact_json.dumps({"delta": evil * 1000})
        Event.objects.create(tenant_id=acme.pk, seq=seq, session_id=session.pk, kind="text_delta", data=data)
    last = html(below(eve, session, "events"))
    assert "text249&quot;" in last
    assert "text150&quot;" not in last
    assert "<script>alert" not in last
    assert 'min="1" max="250"' in last
    middle = html(below(eve, session, "events", after="100"))
    assert "text101&quot;" in middle
    assert "text200&quot;" in middle
    assert "text201&quot;" not in middle
    assert "text99&quot;" in html(below(eve, session, "events", before="101"))
    assert "No events here" in html(below(eve, session, "events", after="250"))
    assert AuditRecord.objects.filter(action="transcript_read", detail__startswith="events").count() == 4


def test_the_input_of_each_step_is_shown_as_it_was_then(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = with_a_tool(session)
    first = html(below(eve, session, "input", turn=turn.public_id, step="1"))
    assert "What is 6 times 7?" in first
    assert "Let me see." not in first
    second = html(below(eve, session, "input", turn=turn.public_id, step="2"))
    assert "Let me see." in second
    assert "42" in second
    assert "It is 42." not in second
    assert "Nothing: the model got the whole history." in second


def test_a_summary_stands_for_the_messages_that_were_not_sent(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    with_a_tool(session)
    later = make_turn(session, step=1)
    say(session, "user", "And 7 times 8?", later, origin=Origin.CLIENT)
    answer = say(session, "assistant", "56", later, step=1)
    Compaction.objects.create(
        tenant=acme, session=session, covers_through=4, summary="They multiplied.", created_at=answer.created_at
    )
    page = html(below(eve, session, "input", turn=later.public_id, step="1"))
    sent = page[page.index('id="sent"') :]
    assert "They multiplied." in sent
    assert "And 7 times 8?" in sent
    assert "What is 6 times 7?" not in sent
    assert "?message=1" in sent[sent.index('id="left"') :]
    # The compaction came after the first turn, whose input it did not change.
    assert "They multiplied." not in html(below(eve, session, "input", turn=Turn.objects.earliest("pk").public_id, step="2"))


def test_an_operator_stops_a_turn_and_deletes_a_session_with_a_record_of_both(eve: Client, reader: Client, acme: Tenant) -> None:
    session = make_session(acme)
    SessionTail.objects.create(session_id=session.pk)
    make_turn(session, TurnState.WAITING)
    for page in ("stop", "delete-session"):
        address = reverse(f"admin:sessions_app_session_{page}", args=(session.pk,))
        assert reader.get(address).status_code == 403
        assert reader.post(address).status_code == 403
    assert "waiting" in html(below(eve, session, "stop"))
    eve.post(reverse("admin:sessions_app_session_stop", args=(session.pk,)))
    assert Turn.objects.get().state == TurnState.CANCELLED
    assert "No turn is live" in html(below(eve, session, "stop"))
    assert session.public_id in html(below(eve, session, "delete-session"))
    eve.post(reverse("admin:sessions_app_session_delete-session", args=(session.pk,)))
    assert not Session.objects.exists()
    records = AuditRecord.objects.filter(action__in=["turn_stopped", "session_deleted"]).order_by("pk")
    assert list(records.values_list("action", "actor")) == [
        ("turn_stopped", "admin:eve"),
        ("session_deleted", "admin:eve"),
    ]


# --- the transcript ---


def test_a_transcript_reads_as_a_conversation(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    say(session, "system", "Be brief.")
    turn = with_a_tool(session)
    page = transcript(eve, session)
    told = ["Be brief.", "What is 6 times 7?", "I should calculate.", "Let me see.", "calculator", "6*7", "42", "It is 42."]
    place = page.index("ah-talk")
    for text in told:
        place = page.index(text, place)
    assert turn.public_id in page
    for fact in (
        "seed",
        "done",
        "decided by client",
        "4.2 s",
        "1.5 s",
        "step 2",
        "634 tokens in, 26 out",
        "2 runs",
        "run by the server",
    ):
        assert fact in page, fact
    thinking = page.index("I should calculate.")
    assert "<details" in page[thinking - 200 : thinking]
    # The tool's message stands with its call and not once more.
    assert page.count(">42<") == 1


def test_the_step_that_a_cancel_ended_is_counted(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = make_turn(session, TurnState.CANCELLED, step=0)
    say(session, "user", "Go on", turn)
    say(session, "assistant", "So f", turn, step=1)
    assert "1 step</span>" in transcript(eve, session).replace(" ·", "</span>")


def test_calls_show_what_they_wait_for_and_why_they_were_denied(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = make_turn(session, TurnState.WAITING)
    say(session, "user", "Do it", turn)
    blocks = [call_block(name, name, {}) for name in ("mail", "open", "wipe", "gone")]
    say(session, "assistant", blocks, turn, step=1)
    waiting = {"state": CallState.PENDING, "decided_by": "", "started_at": None, "finished_at": None, "stored": False}
    call(session, turn, "mail", "mail", **waiting)
    call(session, turn, "open", "open", runner=CallRunner.CLIENT, **waiting)
    call(
        session,
        turn,
        "wipe",
        "wipe",
        state=CallState.DENIED,
        reason="never do that",
        decided_by="client",
        result='"Tool call denied"',
    )
    call(session, turn, "gone", "gone", failed=True, result='"Tool execution failed: no luck"')
    page = transcript(eve, session)
    for text in (
        "waits for permission",
        "waits for the client&#x27;s result",
        "never do that",
        "Tool call denied",
        "failed",
        "no luck",
        "waiting for the client",
    ):
        assert text in page, text


def test_the_times_of_a_call_are_shown_in_order(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = make_turn(session)
    say(session, "assistant", [call_block(name, name, {}) for name in ("ours", "theirs", "kept")], turn, step=1)
    call(session, turn, "ours", "ours", decided_at=START + timedelta(seconds=0.5))
    # A client's own result is looked at after its tool has ended.
    looked_at = {"runner": CallRunner.CLIENT, "started_at": None, "decided_at": START + timedelta(minutes=5)}
    call(session, turn, "theirs", "theirs", **looked_at)
    call(session, turn, "kept", "kept", **{**looked_at, "state": CallState.DENIED})
    page = re.sub(r"<[^>]*>", "", transcript(eve, session))
    shown = [
        re.findall(r"[\d:.]+ ([a-z ]+?)(?= →| (?:ours|theirs|kept))", line)
        for line in page.splitlines()
        if " requested →" in line
    ]
    assert shown == [
        ["requested", "decided", "started", "finished"],
        ["requested", "finished", "result released"],
        ["requested", "finished", "result withheld"],
    ]


def test_an_ended_turn_shows_how_it_ended(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    for state, given in (
        (TurnState.ERROR, {"error": "provider_unavailable", "takeovers": 1}),
        (TurnState.ERROR, {"error": "interrupted"}),
        (TurnState.CANCELLED, {"provider_closed_at": START + timedelta(seconds=5)}),
        (TurnState.DONE, {"stop_reason": "max_tokens"}),
        (TurnState.RUNNING, {}),
    ):
        say(session, "user", "hello", make_turn(session, state, **given))
    facts = {"kind": "unavailable", "provider": "openai-chat", "status": 429, "code": "rate_limit_exceeded"}
    failures = [
        {**facts, "attempts": 3, "after_output": False, "retry_after": 20},
        {"kind": "broken_stream", "provider": "anthropic", "attempts": 1, "after_output": True},
        {"kind": "internal", "exception": "KeyError"},
        {"kind": "internal", "exception": "ValueError from OSError", "frames": ["runner.py:7 in run", "planning.py:5 in make"]},
        {"kind": "timeout", "provider": "openai-chat", "host": "models.corp:8443", "attempts": 2, "after_output": False},
    ]
    for failure in failures:
        given = {"error": "provider_failed", "failure": exact_json.dumps(failure)}
        say(session, "user", "hello", make_turn(session, TurnState.ERROR, **given))
    page = transcript(eve, session)
    for text in (
        "openai-chat: not available (status 429, rate_limit_exceeded); before any output; 3 attempts;"
        " the provider asks to retry after 20 s.",
        "anthropic: the response ended early or could not be parsed; after part of the output; 1 attempt, nothing was retried.",
        "The server failed with KeyError.",
        "The server failed with ValueError from OSError, at planning.py:5 in make, runner.py:7 in run. Nothing was retried.",
        "openai-chat at models.corp:8443: did not answer in time; before any output; 2 attempts.",
        "ended when part of an answer had already been shown",
    ):
        assert text in page, text
    for text in ("provider_unavailable", "taken over 1 time", "connection was closed", "token limit", "is running"):
        assert text in page, text


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_html_in_messages_is_escaped(eve: Client, acme: Tenant, role: str) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'>"
    session = make_session(acme, agent_name=evil, client_tools=f'[{{"name": "{evil[:8]}"}}]')
    OptionValue.objects.create(tenant=acme, session=session, name=evil, value=evil, position=1)
    turn = make_turn(session, TurnState.ERROR, error=evil[:60])
    content: Any = evil if role == "system" else [text_block(evil), {"type": "image", "url": f"https://x/{evil}"}, {"type": evil}]
    if role == "assistant":
        content += [{"type": "thinking", "thinking": evil}, call_block(evil, evil, {evil: evil})]
        call(session, turn, evil, evil, decided_by=evil[:90], reason=evil, result='"' + evil.replace('"', '\\"') + '"')
    say(session, role, content, turn, tool_call_id=evil if role == "tool" else None)
    response = eve.get(url("session", "change", session))
    page = html(response)
    assert "<script>" not in page
    assert "<img src=x" not in page
    assert "script-src 'self'" in response["Content-Security-Policy"]
    assert "default-src 'none'" in response["Content-Security-Policy"]


def test_only_small_inline_images_are_loaded(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    urls = [
        PIXEL,
        "https://tracker.example/pixel.png",
        "data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=",
        "data:text/html;base64,PHNjcmlwdD4=",
        "data:image/png;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
        "javascript:alert(1)",
        "data:image/png;base64," + "A" * 190_000,
    ]
    say(session, "user", [{"type": "image", "url": address} for address in urls])
    page = transcript(eve, session)
    assert page.count("<img ") == 1
    assert f'src="{PIXEL}"' in unescape(page)
    assert "https://tracker.example/pixel.png" in page
    assert 'href="https://tracker' not in page
    assert 'href="javascript' not in page


def test_an_edit_of_a_file_is_shown_line_by_line(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = make_turn(session)
    diff = "Edited a.html (+1 -1 lines).\n--- a.html\n+++ a.html\n@@ -1,2 +1,2 @@\n <html>\n-<b>old</b>\n+<script>new</script>"
    for name, edits in (("edit_file", "[]"), ("other_tool", None)):
        say(session, "assistant", [{"type": "tool_use", "toolCallId": name, "name": name, "input": {}}], turn)
        call(session, turn, name, name, result=exact_json.dumps(diff), edits=edits)
        say(session, "tool", diff, turn, tool_call_id=name)
    page = transcript(eve, session)
    assert page.count('<span class="ah-diff-removed">-&lt;b&gt;old&lt;/b&gt;</span>') == 1
    assert page.count('<span class="ah-diff-added">+&lt;script&gt;new&lt;/script&gt;</span>') == 1
    assert page.count('<span class="ah-diff-head">+++ a.html</span>') == 1
    assert "<script>new" not in page


def test_secret_options_are_masked_also_those_that_became_secret_later(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    stored: dict[str, dict[str, Any]] = {
        "language": {"value": "German"},
        "sealed": {"sealed": b"canary-1"},
        "became": {"value": "canary-2"},
    }
    for position, (name, values) in enumerate(stored.items()):
        OptionValue.objects.create(tenant=acme, session=session, name=name, position=position, **values)
    spec = AgentSpec(name="demo", model="demo:guide", options=(OptionSpec("secret", "became", default=""),))
    with registry.use([spec]):
        page = transcript(eve, session)
    assert "German" in page
    assert page.count("***") == 2
    assert "canary" not in page


def test_opaque_provider_data_is_not_shown(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    say(session, "assistant", "hello", make_turn(session), provider_data='{"signature": "canary"}')
    assert "canary" not in transcript(eve, session)


def test_a_long_conversation_comes_in_pages_and_a_turn_may_span_them(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = make_turn(session)
    Message.objects.bulk_create(
        Message(
            tenant=acme,
            session=session,
            turn=turn,
            position=n,
            role="user",
            content=f'"line {n}."',
            origin=Origin.CLIENT,
            created_at=START,
        )
        for n in range(1, 251)
    )
    first, last = transcript(eve, session), transcript(eve, session, page=3)
    assert "Page 1 of 3, 250 messages" in first
    assert "line 100." in first
    assert "line 101." not in first
    assert "line 250." in last
    assert "continued from the previous page" in last
    assert "continued from the previous page" not in first
    assert "Page 3 of 3" in transcript(eve, session, page=99)
    assert "Page 1 of 3" in transcript(eve, session, page="x")


def test_a_transcript_takes_the_same_number_of_queries_at_any_length(eve: Client, acme: Tenant) -> None:
    short, long = make_session(acme), make_session(acme)
    with_a_tool(short)
    for n in range(8):
        turn = make_turn(long)
        say(long, "assistant", [call_block(f"c{n}", "add", {})], turn)
        call(long, turn, f"c{n}", "add")
        say(long, "tool", "1", turn, tool_call_id=f"c{n}")
    with CaptureQueriesContext(connection) as few:
        transcript(eve, short)
    with CaptureQueriesContext(connection) as many:
        transcript(eve, long)
    assert len(many) == len(few) <= 20


def test_a_very_long_text_is_cut_and_shown_complete_on_request(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    say(session, "user", "a" * 30_000 + "the end")
    say(session, "user", "b" * 300_000 + "the end")
    page = transcript(eve, session)
    assert "the end" not in page
    assert "more characters" in page
    assert "too long to show here" in page
    assert "the end" in transcript(eve, session, message=1)
    whole = transcript(eve, session, message=2)
    assert "the end" in whole
    assert "aaaa" not in whole
    assert eve.get(url("session", "change", session), {"message": 3}).status_code == 404


def test_a_result_whose_call_is_on_the_previous_page_is_shown_with_its_tools_name(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = with_a_tool(session)
    result = Message.objects.get(session=session, role="tool")
    page = transcript(eve, session, message=result.position)
    assert "tool: calculator" in page
    assert turn.public_id in page


def test_cut_messages_closing_notes_and_compactions_are_marked(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    turn = make_turn(session)
    say(session, "user", "one", turn)
    say(session, "assistant", "two", turn, cut_at=START)
    say(session, "tool", "closed", turn, tool_call_id="x", origin=Origin.NOTE)
    Compaction.objects.create(tenant=acme, session=session, covers_through=1, created_at=START)
    page = transcript(eve, session)
    for text in ("truncated", "closing note", "the model no longer gets the messages above"):
        assert text in page, text


def test_a_summary_is_shown_after_the_messages_it_replaces(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    say(session, "user", "one", make_turn(session))
    summary = "Summary of the conversation so far:\n\n<b>Ropes</b>"
    Compaction.objects.create(tenant=acme, session=session, covers_through=1, summary=summary, created_at=START)
    page = transcript(eve, session)
    assert "no longer gets the messages above, but this summary" in page
    assert "so far:<br><br>&lt;b&gt;Ropes&lt;/b&gt;" in page


def test_each_reading_is_in_the_audit(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    say(session, "user", "hello")
    transcript(eve, session)
    transcript(eve, session, message=1)
    rows = AuditRecord.objects.filter(action="transcript_read").order_by("id")
    assert [(row.actor, row.address, row.target, row.tenant_id, row.detail) for row in rows] == [
        ("admin:eve", "10.0.0.9", f"session {session.public_id}", acme.pk, "messages, page 1 of 1"),
        ("admin:eve", "10.0.0.9", f"session {session.public_id}", acme.pk, "message 1"),
    ]


def test_nothing_of_a_session_can_be_added_edited_or_deleted(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    with_a_tool(session)
    before = [list(model.objects.order_by("pk").values()) for model in (Session, Message, Turn)]
    eve.post(url("session", "change", session), {"agent_name": "other", "public_id": "sess_x"})
    assert eve.post(url("session", "delete", session), {"post": "yes"}).status_code == 403
    assert eve.get(url("session", "add")).status_code == 403
    eve.post(url("session", "changelist"), {"action": "delete_selected", "_selected_action": [session.pk], "post": "yes"})
    assert [list(model.objects.order_by("pk").values()) for model in (Session, Message, Turn)] == before


def test_an_operator_without_permission_sees_no_sessions(acme: Tenant, reader: Client) -> None:
    session = make_session(acme)
    Staff.objects.update(reads_transcripts=False)
    assert reader.get(url("session", "change", session)).status_code == 403
    Staff.objects.all().delete()
    for page in (url("session", "changelist"), url("session", "change", session)):
        assert reader.get(page, follow=True).status_code == 403
    assert not AuditRecord.objects.filter(action="transcript_read").exists()


def test_an_empty_session_has_a_transcript(eve: Client, acme: Tenant) -> None:
    assert "There are no messages yet." in transcript(eve, make_session(acme))
