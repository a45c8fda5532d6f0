"""Exports and deletions in the admin: a session or tenant as a file, a tenant deleted with progress and a certificate."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import zipfile
from typing import IO, Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.core.base.errors import NotPossible
from sessions_app.core.base.piping import Piped
from sessions_app.core.log import journal
from sessions_app.core.sessions import export_files, tenant_deletion
from sessions_app.core.sessions.export_files import Wish
from sessions_app.core.tenancy import certificates, keys
from sessions_app.core.turns import tasks
from sessions_app.core.worker import housekeeping
from sessions_app.models import ApiKey, AuditRecord, Message, Session, Staff, StaffRole, Tenant, TenantDeletion
from tests.faces.admin.conversations import make_session, make_tenant, make_turn, say
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "ask_for_housekeeping", lambda: None)


def body(answer: Any) -> bytes:
    assert answer.status_code == 200, answer.status_code

    async def read() -> bytes:
        return b"".join([chunk async for chunk in answer])

    return asyncio.run(read())


def talk(tenant: Tenant, text: str) -> Session:
    session = make_session(tenant)
    journal.create_tail(session.pk)
    say(session, "user", text, make_turn(session))
    return session


def test_a_session_is_downloaded_as_json_lines_or_as_a_page_and_each_is_recorded(eve: Client, acme: Tenant) -> None:
    session = talk(acme, "<script>alert(1)</script>")
    assert f'href="{url("session", "export", session)}"' in html(eve.get(url("session", "change", session)))
    assert "Secret options are masked" in " ".join(html(eve.get(url("session", "export", session))).split())
    answer = eve.post(url("session", "export", session), {"form": "jsonl", "workspace": "on"})
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{session.public_id}.jsonl"'
    lines = [json.loads(line) for line in body(answer).splitlines()]
    assert [line["type"] for line in lines] == ["export", "session", "turn", "message", "end"]
    assert lines[0]["files"] is True
    answer = eve.post(url("session", "export", session), {"form": "html"})
    assert answer.headers["Content-Disposition"].endswith('.html"')
    page = body(answer).decode()
    assert page.endswith("</html>\n")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    records = AuditRecord.objects.filter(action="session_exported").order_by("pk")
    assert [(row.actor, row.target, row.detail) for row in records] == [
        ("admin:eve", f"session {session.public_id}", form) for form in ("JSON Lines", "HTML")
    ]


def test_a_tenant_is_downloaded_as_an_archive_with_its_sessions_alone(eve: Client, acme: Tenant) -> None:
    first, second = talk(acme, "one"), talk(acme, "two")
    talk(make_tenant("globex"), "three")
    answer = eve.post(url("tenant", "export", acme), {"pages": "on"})
    with zipfile.ZipFile(io.BytesIO(body(answer))) as archive:
        ids = [first.public_id, second.public_id]
        assert archive.namelist() == [f"{name}.{kind}" for name in ids for kind in ("html", "jsonl")] + ["index.jsonl"]
        assert [json.loads(line)["sessionId"] for line in archive.read("index.jsonl").splitlines()] == ids
        assert json.loads(archive.read(f"{ids[0]}.jsonl").splitlines()[-1])["type"] == "end"
    assert AuditRecord.objects.get(action="tenant_exported").detail == "JSON Lines and HTML"
    days = {"since": "2025-03-02", "until": "2025-03-02"}
    with zipfile.ZipFile(io.BytesIO(body(eve.post(url("tenant", "export", acme), days)))) as archive:
        assert archive.namelist() == ["index.jsonl"]
    wrong = html(eve.post(url("tenant", "export", acme), {"since": "2025-03-03", "until": "2025-03-02"}))
    assert "The first day is after the last one." in wrong


def test_an_export_needs_a_reason_where_reading_does(eve: Client, acme: Tenant, settings: Any) -> None:
    settings.AGENTHOST_TRANSCRIPT_REASON = True
    session = talk(acme, "secret words")
    assert "Why do you read" in html(eve.post(url("session", "export", session), {"form": "jsonl"}))
    assert "Why you export" in html(eve.post(url("tenant", "export", acme), {"reason": " "}))
    assert not AuditRecord.objects.filter(action__in=("session_exported", "tenant_exported")).exists()
    assert eve.post(url("session", "export", session), {"reason": "ticket 1"}).status_code == 302
    body(eve.post(url("session", "export", session), {"form": "jsonl"}))
    body(eve.post(url("tenant", "export", acme), {"reason": "ticket 2"}))
    found = AuditRecord.objects.filter(action__in=("session_exported", "tenant_exported")).order_by("pk")
    assert [row.detail for row in found] == ["JSON Lines; reason: ticket 1", "JSON Lines; reason: ticket 2"]


def wait_for_downloads() -> None:
    for thread in threading.enumerate():
        if thread.name == "session-export":
            thread.join(60)
            assert not thread.is_alive()


def test_downloads_that_nobody_reads_end_and_the_next_one_over_the_limit_is_refused(acme: Tenant) -> None:
    session = talk(acme, "x" * 500_000)
    running = [export_files.of_session(session, Wish()) for _ in range(export_files.AT_ONCE)]
    with pytest.raises(NotPossible, match="wait until one is done"):
        export_files.of_session(session, Wish())
    del running
    wait_for_downloads()
    export_files.of_session(session, Wish()).close()
    wait_for_downloads()


def test_a_download_that_fails_in_the_middle_does_not_look_complete() -> None:
    def write(out: IO[bytes]) -> None:
        out.write(b"begun")
        raise OSError("the disk is gone")

    async def read() -> bytes:
        found = b""
        async for chunk in Piped(write, "test-download"):
            found += chunk
        return found

    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(read())


def test_whoever_has_read_a_download_to_its_end_can_begin_the_next() -> None:
    seen = threading.Event()
    given_back: list[bool] = []

    async def read() -> None:
        # Its place is given back while the reader still waits for the end.
        piped = Piped(lambda out: out.write(b"x"), "test-download", lambda: given_back.append(not seen.wait(0.2)))
        assert [chunk async for chunk in piped] == [b"x"]
        seen.set()

    asyncio.run(read())
    assert given_back == [True]


# --- deletion ---


def delete(operator: Client, tenant: Tenant, name: str) -> Any:
    return operator.post(url("tenant", "delete-tenant", tenant), {"name": name})


def test_a_tenant_is_deleted_by_typing_its_name_and_ends_in_a_certificate(eve: Client, acme: Tenant) -> None:
    talk(acme, "hello")
    talk(acme, "good day")
    keys.issue(acme, name="k", scopes=["*"], expires_at=None, allowed_agents=None, actor="x")
    asked = html(eve.get(url("tenant", "delete-tenant", acme)))
    assert "Type the tenant&#x27;s name" in asked
    assert "Kept: the records of the audit" in asked
    assert "Nothing was deleted" in html(delete(eve, acme, "Acme"))
    assert not TenantDeletion.objects.exists()
    progress = delete(eve, acme, "acme").headers["Location"]
    page = html(eve.get(progress))
    assert "2 sessions left" in page
    assert 'data-reload="3"' in page
    assert eve.get(progress + "../certificate/").status_code == 404
    assert "being deleted" in html(eve.get(url("tenant", "changelist")))
    # Asked a second time, it leads to the progress.
    assert delete(eve, acme, "acme").headers["Location"] == progress
    housekeeping.delete_tenants()
    page = html(eve.get(progress))
    assert "data-reload" not in page
    assert re.search(r'<th scope="row">session</th><td>2</td>', page)
    assert (Message.objects.count(), ApiKey.objects.count(), Session.with_deleted.count()) == (0, 0, 0)
    answer = eve.get(url("tenantdeletion", "certificate", TenantDeletion.objects.get()))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="acme.certificate.json"'
    assert certificates.fault(answer.content.decode()) is None
    done = [(row.action, row.actor) for row in AuditRecord.objects.filter(action__startswith="tenant_delet").order_by("pk")]
    assert done == [("tenant_deletion_begun", "admin:eve"), ("tenant_deleted", "server")]
    left = html(eve.get(url("tenant", "change", acme)))
    assert "Everything of this tenant was deleted" in left
    for gone in ("Resume…", "Issue a key", "Invite…", "Delete…", "Export…"):
        assert gone not in left


def test_only_operators_with_the_right_export_and_delete_and_auditors_take_the_certificate(reader: Client, acme: Tenant) -> None:
    session = talk(acme, "hello")
    for page in (url("session", "export", session), url("tenant", "export", acme), url("tenant", "delete-tenant", acme)):
        assert reader.get(page).status_code == 403
        assert reader.post(page, {"name": "acme", "form": "jsonl"}).status_code == 403
    left = html(reader.get(url("tenant", "change", acme)))
    assert "Delete…" not in left
    assert "Export…" not in left
    Staff.objects.update(role=StaffRole.OPERATOR, reads_transcripts=False)
    assert reader.post(url("session", "export", session), {"form": "jsonl"}).status_code == 403
    assert reader.post(url("tenant", "export", acme)).status_code == 403
    deletion = tenant_deletion.begin(acme, actor="admin:eve")
    assert tenant_deletion.advance(deletion, 60)
    Staff.objects.update(role=StaffRole.AUDITOR)
    assert "acme" in html(reader.get(url("tenantdeletion", "changelist")))
    assert reader.get(url("tenantdeletion", "certificate", deletion)).status_code == 200
    Staff.objects.update(limited=True)
    assert "acme" not in html(reader.get(url("tenantdeletion", "changelist")))
    assert reader.get(url("tenantdeletion", "certificate", deletion)).status_code == 404
    assert User.objects.count() == 1
