"""Terminals in the admin: what runs, what they show as text, and their end."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agents_app import exact_json
from sessions_app.admin import terminals as pages
from sessions_app.core.base import journal_keys
from sessions_app.core.log import journal
from sessions_app.core.tenancy import tenants
from sessions_app.models import AuditRecord, Tenant, Terminal, TerminalScreen
from tests.faces.admin.conversations import make_session
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)

CLEAR = "\x1b[2J\x1b]0;owned\x07\x1b]52;c;c3RvbGVu\x07\x1b[31m"


def make_terminal(tenant: Tenant, name: str, *parts: dict[str, Any], **given: Any) -> Terminal:
    fields: dict[str, Any] = {
        "claim": exact_json.dumps({"client": "laptop"}),
        "line": 1,
        "cols": 80,
        "rows": 24,
        "state": "running",
        "requested_at": timezone.now(),
    }
    row = Terminal.objects.create(tenant=tenant, public_id=f"term_{name}", uri=f"t:/{name}", **{**fields, **given})
    TerminalScreen.objects.create(
        terminal=row, content=exact_json.dumps(list(parts)), detects=any("command" in each for each in parts)
    )
    journal.create_tail(journal_keys.of_terminal(row.pk))
    return row


def shown(operator: Client, row: Terminal) -> str:
    return html(operator.get(url("terminal", "change", row)))


def listed(operator: Client, **query: str) -> set[str]:
    page = html(operator.get(url("terminal", "changelist"), query))
    return {name for name in Terminal.objects.values_list("public_id", flat=True) if name in page}


def test_the_list_shows_what_runs_and_is_filtered(eve: Client, acme: Tenant) -> None:
    other, _ = tenants.create("globex")
    shell = make_terminal(acme, "shell", title=f"{CLEAR}my <b>shell")
    command = make_terminal(other, "command", command="make test", state="exited", exit_code=2)
    waiting = make_terminal(acme, "waiting", state="requested")
    page = html(eve.get(url("terminal", "changelist")))
    for text in ("my &lt;b&gt;shell", "make test", "exited: 2", "client laptop", "requested"):
        assert text in page
    assert "\x1b" not in page
    assert listed(eve, tenant="globex") == {command.public_id}
    assert listed(eve, kind="shell") == {shell.public_id, waiting.public_id}
    assert listed(eve, kind="command") == {command.public_id}
    assert listed(eve, state="running") == {shell.public_id}
    assert listed(eve, q="t:/waiting") == {waiting.public_id}
    assert listed(eve, q=command.public_id) == {command.public_id}
    Terminal.objects.filter(pk=shell.pk).update(disposed_at=timezone.now())
    assert listed(eve, kind="shell") == {waiting.public_id}


def test_the_screen_is_text_with_commands_and_codes_and_no_sequence_reaches_the_browser(eve: Client, acme: Tenant) -> None:
    session = make_session(acme)
    row = make_terminal(
        acme,
        "one",
        {"text": f"{CLEAR}welcome <script>alert(1)</script>\u202e\n"},
        {
            "text": f"{CLEAR}broken\r\n",
            "command": "1",
            "line": "make <b>",
            "at": 1_700_000_000_000,
            "done": True,
            "code": 2,
            "ms": 1500,
        },
        {"text": "fine\r\n", "command": "2", "line": "true", "at": 1_700_000_002_000, "done": True, "code": 0, "ms": 3},
        {"text": "", "command": "3", "line": "sleep 99", "at": 1_700_000_003_000, "done": False},
        claim=exact_json.dumps({"session": "s:/1", "turn": "t", "call": "c9"}),
        claim_session=session.pk,
    )
    page = shown(eve, row)
    for text in (
        "welcome &lt;script&gt;alert(1)&lt;/script&gt;",
        "make &lt;b&gt;",
        '<span class="ah-badge ah-failed">2</span>',
        '<span class="ah-badge ah-done">0</span>',
        '<span class="ah-badge ah-running">running</span>',
        "1.5 s",
        "session, for the call c9",
        session.public_id,
        "broken",
    ):
        assert text in page, text
    for bad in ("\x1b", "\x07", "\u202e", "<script>alert", "owned", "c3RvbGVu", "[31m"):
        assert bad not in page, bad
    record = AuditRecord.objects.get(action="terminal_read")
    assert (record.actor, record.target, record.detail, record.tenant) == ("admin:eve", "terminal term_one", "3 commands", acme)


def test_long_output_is_shown_from_its_end(eve: Client, acme: Tenant) -> None:
    row = make_terminal(acme, "long", {"text": "begin\n" + "x" * pages.OUTPUT_SHOWN + "\nend"})
    page = shown(eve, row)
    assert "begin" not in page
    assert "end</pre>" in page
    assert "10 characters before this are not shown." in page


def test_a_terminal_without_a_screen_is_no_error(eve: Client, acme: Tenant) -> None:
    row = make_terminal(acme, "new", state="requested")
    TerminalScreen.objects.all().delete()
    assert "Nothing was printed yet." in shown(eve, row)


def test_ending_asks_first_and_is_recorded(eve: Client, reader: Client, acme: Tenant) -> None:
    row = make_terminal(acme, "one")
    assert "End…" not in shown(reader, row)
    for send in (reader.get, reader.post):
        assert send(url("terminal", "end", row)).status_code == 403
    assert "are killed" in html(eve.get(url("terminal", "end", row)))
    assert Terminal.objects.filter(pk=row.pk).exists()
    assert "Ended: term_one." in html(eve.post(url("terminal", "end", row), follow=True))
    assert not Terminal.objects.filter(pk=row.pk).exists()
    assert AuditRecord.objects.get(action="terminal_ended").target == "terminal term_one"
    assert eve.get(url("terminal", "change", row)).status_code in (302, 404)
