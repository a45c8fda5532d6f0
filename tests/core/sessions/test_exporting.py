"""Exports of sessions: complete, equal to what AAP answers, masked, and safe to open."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from sessions_app.aap import views
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.sessions import deleting, export_page, exporting
from sessions_app.core.tenancy import access
from sessions_app.core.workspaces import making, trees, volume
from sessions_app.models import AuditRecord, Session
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' &amp; </style></main>"
SEED: list[dict[str, Any]] = [
    {"role": "system", "content": f"Be brief. {HOSTILE}"},
    {"role": "user", "content": [{"type": "text", "text": HOSTILE}, {"type": "image", "url": PIXEL}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": HOSTILE},
            {"type": "tool_use", "toolCallId": "c1", "name": "look", "input": {"b": 1.50, "a": HOSTILE}},
        ],
    },
    {"role": "tool", "toolCallId": "c1", "content": HOSTILE},
    {"role": "assistant", "content": "done"},
    {"role": "user", "content": [{"type": "image", "url": 'https://evil.example.com/"onload=x.png'}]},
    {"role": "assistant", "content": "no"},
]
LOOK = {"name": "look", "title": "Look", "description": "", "parameters": {"type": "object"}}


@pytest.fixture
def session(sample: SampleTenants, scripted_agents: None) -> Session:
    return make_session(sample.alice.caller, client_tools=[LOOK], seed=SEED)


def exported(session: Session, **more: Any) -> list[dict[str, Any]]:
    out = io.BytesIO()
    exporting.write_lines(session, out, **more)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def of_type(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if record["type"] == kind]


def test_an_export_has_what_aap_answers_for_every_session(sample: SampleTenants, session: Session) -> None:
    caller = sample.alice.caller
    make_session(caller)
    make_session(caller, "pilot", options={"model_key": "sk-secret-of-a-client"})
    shown = 0
    for row in access.visible(caller):
        records = exported(row)
        assert "sk-secret-of-a-client" not in str(records)
        document: Any = views.session_document(row)
        [own] = of_type(records, "session")
        assert {"sessionId": own["sessionId"], "agent": own["agent"]} == {k: document[k] for k in ("sessionId", "agent")}
        assert own["tools"] == document.get("tools", [])
        history: Any = views.history_document(caller, row, "full")
        messages = [
            {name: record[name] for name in ("role", "toolCallId", "content") if name in record}
            for record in of_type(records, "message")
            if record["cutAt"] is None
        ]
        assert messages == json.loads(json.dumps(history["history"]["full"]))
        shown += len(messages)
    assert shown == len(SEED)


def test_the_last_line_has_the_counts_and_the_digest_of_all_others(session: Session) -> None:
    out = io.BytesIO()
    counts = exporting.write_lines(session, out)
    *lines, last = out.getvalue().splitlines(keepends=True)
    end = json.loads(last)
    assert end == {"type": "end", "counts": counts, "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    assert counts["message"] == len(SEED)


def test_numbers_and_the_order_of_members_are_kept(session: Session) -> None:
    out = io.BytesIO()
    exporting.write_lines(session, out)
    assert b'"input":{"b":1.5,"a":' in out.getvalue().replace(b"1.50", b"1.5")


def test_an_export_of_a_deleted_session_is_refused(sample: SampleTenants, session: Session) -> None:
    deleting.delete(sample.alice.caller, session)
    with pytest.raises(SessionNotFound):
        exported(session)


def test_a_long_session_is_read_a_few_rows_at_a_time(sample: SampleTenants, scripted_agents: None) -> None:
    seed = [{"role": role, "content": f"{number}"} for number in range(50) for role in ("user", "assistant")]
    session = make_session(sample.alice.caller, seed=seed)
    with CaptureQueriesContext(connection) as queries:
        records = exported(session)
    assert [record["content"] for record in of_type(records, "message")] == [message["content"] for message in seed]
    assert any(f"LIMIT {exporting._ROWS}" in query["sql"] for query in queries)


@pytest.fixture
def workspaces(settings: Settings, tmp_path: Path) -> Iterator[None]:
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "volume"
    volume.forget()
    yield
    volume.forget()


def test_files_of_the_workspace_are_in_the_export_in_pieces(
    session: Session, workspaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_PIECE", 4)
    tree = trees.tree_of(making.of_session(session), make=True)
    tree.make_directory(("logs",))
    tree.write(("logs", "may.txt"), b"calm seas\x00\xff")
    tree.write(("empty",), b"")
    session.refresh_from_db()
    pieces = of_type(exported(session), "file")
    content = b"".join(base64.b64decode(each["content"]) for each in pieces if each["path"] == "logs/may.txt")
    assert content == b"calm seas\x00\xff"
    [last] = [each for each in pieces if each["path"] == "logs/may.txt" and each.get("last")]
    assert (last["size"], last["sha256"]) == (11, hashlib.sha256(content).hexdigest())
    assert [each["size"] for each in pieces if each["path"] == "empty"] == [0]
    assert of_type(exported(session, files=False), "file") == []


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_runs_nothing_and_loads_nothing_whatever_the_messages_have(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(title=HOSTILE)
    page = b"".join(export_page.page(exporting.records(session, files=False))).decode()
    tags = Tags()
    tags.feed(page)
    names = {tag for tag, _ in tags.found}
    assert names <= {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "p",
        "h1",
        "h2",
        "dl",
        "dt",
        "dd",
        "details",
        "summary",
        "div",
        "pre",
        "article",
        "span",
        "img",
    }
    attributes = {name for tag, given in tags.found for name in given if tag != "meta"}
    assert attributes <= {"class", "src", "alt", "lang"}
    assert [given["src"] for tag, given in tags.found if tag == "img"] == [PIXEL]
    assert tags.text.count("alert(1)") == 2 * 6
    assert 'content="default-src &#x27;none&#x27;' in page
    assert "done" in tags.text


def test_an_export_is_recorded(session: Session) -> None:
    exporting.begin(session, actor="admin:dana", address="10.0.0.7", form="HTML")
    row = AuditRecord.objects.get(action="session_exported")
    assert (row.actor, row.address, row.target, row.tenant_id) == (
        "admin:dana",
        "10.0.0.7",
        f"session {session.public_id}",
        session.tenant_id,
    )
