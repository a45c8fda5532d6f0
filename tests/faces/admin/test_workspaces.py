"""Workspaces in the admin: found, browsed, exported and removed; what users wrote never acts in the operator's browser."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agents_app import exact_json
from sessions_app.admin import workspaces as pages
from sessions_app.core.base import journal_keys
from sessions_app.core.log import journal
from sessions_app.core.tenancy import tenants
from sessions_app.core.workspaces import inspection, making, places, trees, volume
from sessions_app.models import AuditRecord, Session, Tenant, Terminal, Workspace
from tests.faces.admin.conversations import make_session
from tests.faces.admin.pages import html, url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def volume_directory(settings: Any, tmp_path: Path) -> Iterator[Path]:
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path
    settings.AGENTHOST_SANDBOX_UID = os.geteuid() or 64_321
    volume.forget()
    yield tmp_path
    volume.forget()


def make_workspace(tenant: Tenant, root: str = "harbour", **files: str | bytes) -> Workspace:
    row = making.shared(tenant.pk, (root,))
    tree = trees.tree_of(places.of_row(row, (root,)), make=True)
    for name, text in files.items():
        tree.write((name.replace("_", "."),), text.encode() if isinstance(text, str) else text)
    return row


def tree_of(row: Workspace) -> Path:
    return places.directory_of(row.tenant_id, row.public_id) / "tree"


def looked_at(operator: Client, row: Workspace, **query: str) -> str:
    return html(operator.get(url("workspace", "change", row), query))


def listed(operator: Client, **query: str) -> set[str]:
    page = html(operator.get(url("workspace", "changelist"), query))
    return {root for root in Workspace.objects.values_list("root", flat=True) if f">{root}<" in page}


def test_the_list_is_filtered_by_tenant_kind_and_state_and_searched_by_uri(eve: Client, acme: Tenant) -> None:
    other, _ = tenants.create("globex")
    session = make_session(acme)
    shared, private, default = make_workspace(acme), making.private_of(session), making.shared(acme.pk, places.DEFAULT)
    gone = making.shared(other.pk, ("gone",))
    Workspace.objects.filter(pk=gone.pk).update(removed_at=timezone.now())
    everything = {row.root for row in (shared, private, default, gone)}
    assert listed(eve) == everything
    assert listed(eve, tenant="globex") == {gone.root}
    assert listed(eve, kind="private") == {private.root}
    assert listed(eve, kind="default") == {default.root}
    assert listed(eve, kind="shared") == {shared.root, gone.root}
    assert listed(eve, state="removed") == {gone.root}
    assert listed(eve, state="used") == everything - {gone.root}
    assert listed(eve, q="file:///har") == {shared.root}
    assert listed(eve, q=session.public_id) == {private.root}
    assert listed(eve, q=private.public_id) == {private.root}
    assert listed(eve, tenant="nobody", kind="odd", state="odd") == set()


def test_a_file_is_shown_as_text_that_does_nothing_and_a_binary_one_is_named(eve: Client, acme: Tenant) -> None:
    row = make_workspace(
        acme,
        page_html="<script>alert(1)</script>\n\x1b[31mred\x1b[0m \u202egnirts\n",
        data_bin=b"\x00\x01<script>",
        empty_txt="",
        long_txt="x" * (pages.BYTES_SHOWN + 7),
    )
    page = looked_at(eve, row)
    assert [name for name in ("data.bin", "empty.txt", "long.txt", "page.html") if f">{name}</a>" in page] == [
        "data.bin",
        "empty.txt",
        "long.txt",
        "page.html",
    ]
    shown = looked_at(eve, row, path="page.html")
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "\\x1b[31mred\\x1b[0m \\u202egnirts" in shown
    assert "\x1b" not in shown
    binary = looked_at(eve, row, path="data.bin")
    assert "binary: application/octet-stream" in binary
    assert "&lt;script" not in binary
    assert "The file is empty." in looked_at(eve, row, path="empty.txt")
    assert "… and 7 more bytes" in looked_at(eve, row, path="long.txt")
    assert eve.get(url("workspace", "change", row)).headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_each_look_is_in_the_audit_log_with_the_files_name(eve: Client, acme: Tenant) -> None:
    row = make_workspace(acme, a_txt="hello")
    looked_at(eve, row)
    looked_at(eve, row, path="a.txt")
    records = AuditRecord.objects.filter(action="workspace_read").order_by("pk")
    assert [(each.actor, each.target, each.detail, each.tenant) for each in records] == [
        ("admin:eve", "workspace file:///harbour", "1 entries", acme),
        ("admin:eve", "workspace file:///harbour/a.txt", "5 of 5 bytes", acme),
    ]


@pytest.mark.parametrize(
    "way", ["../x", "/etc/passwd", "out", "out/passwd", "a.txt/b", "none", "a\0b", "x" * 300, "pipe", "%2e%2e/x"]
)
def test_no_path_leads_out_and_odd_ones_are_no_error_of_the_server(eve: Client, acme: Tenant, way: str) -> None:
    row = make_workspace(acme, a_txt="hello")
    (tree_of(row) / "out").symlink_to("/etc")
    os.mkfifo(tree_of(row) / "pipe")
    answer = eve.get(url("workspace", "change", row), {"path": way})
    assert answer.status_code in (200, 404)
    assert "root:" not in answer.content.decode()


def test_a_directory_of_many_files_is_paged_by_name(eve: Client, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ENTRIES_A_PAGE", 3)
    row = make_workspace(acme, **{f"f{n}": "" for n in range(7)})
    (tree_of(row) / "dir").mkdir()
    (tree_of(row) / "dir" / "<b>").write_text("")
    seen: list[str] = []
    query, pages_read = "", 0
    while True:
        page = html(eve.get(url("workspace", "change", row) + query))
        pages_read += 1
        seen += [name for name in ("dir/", *(f"f{n}" for n in range(7))) if f">{name}</a>" in page]
        if "More ›" not in page:
            break
        before = page[: page.index("More ›")]
        query = unescape(before[before.rindex("?path=") : before.rindex('"')])
    assert (seen, pages_read) == (["dir/", *(f"f{n}" for n in range(7))], 3)
    inside = looked_at(eve, row, path="dir")
    assert "&lt;b&gt;" in inside
    assert "<b></a>" not in inside


def test_a_workspace_that_nobody_has_used_is_empty_and_looking_makes_nothing(
    eve: Client, acme: Tenant, volume_directory: Path
) -> None:
    row = making.shared(acme.pk, ("new",))
    assert "There are no files here." in looked_at(eve, row)
    assert [path for path in volume_directory.rglob("*") if path.is_dir()] == []
    answer = eve.post(url("workspace", "export", row))
    assert answer.status_code == 302
    assert not AuditRecord.objects.filter(action="workspace_exported").exists()


def test_without_its_volume_the_page_says_so(eve: Client, acme: Tenant, settings: Any, tmp_path: Path) -> None:
    row = make_workspace(acme, a_txt="hello")
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "not mounted"
    volume.forget()
    assert "cannot use the volume" in looked_at(eve, row)
    settings.AGENTHOST_WORKSPACES_DIR = None
    assert "cannot use the volume" in looked_at(eve, row)


async def _read(row: Workspace) -> bytes:
    return b"".join([chunk async for chunk in inspection.tar(row)])


def test_an_export_is_a_whole_archive_and_recorded(eve: Client, acme: Tenant) -> None:
    row = make_workspace(acme, a_txt="hello", b_bin=os.urandom(700_000))
    answer = eve.post(url("workspace", "export", row))
    assert answer.headers["Content-Type"] == "application/x-tar"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="acme-{row.public_id}.tar"'
    assert [each.target for each in AuditRecord.objects.filter(action="workspace_exported")] == ["workspace file:///harbour"]
    with tarfile.open(fileobj=io.BytesIO(asyncio.run(_read(row)))) as archive:
        assert sorted(member.name for member in archive) == ["a.txt", "b.bin"]
    assert eve.get(url("workspace", "export", row)).status_code == 405


def test_an_export_that_nobody_reads_on_ends(acme: Tenant) -> None:
    row = make_workspace(acme, b_bin=os.urandom(3_000_000))

    async def read_a_little() -> None:
        stream = inspection.tar(row)
        await anext(stream)
        await stream.aclose()

    before = {thread.ident for thread in threading.enumerate()}
    asyncio.run(read_a_little())
    for thread in threading.enumerate():
        if thread.name == "workspace-export" and thread.ident not in before:
            thread.join(60)
            assert not thread.is_alive()


def test_removing_asks_first_frees_the_uri_and_ends_terminals(eve: Client, acme: Tenant) -> None:
    row = make_workspace(acme, a_txt="hello")
    session = make_session(acme, workspace=row, directory=row.root)
    terminal = Terminal.objects.create(
        tenant=acme,
        public_id="term_1",
        uri="t:/1",
        claim=exact_json.dumps({"client": "c"}),
        line=1,
        workspace=row.pk,
        cols=80,
        rows=24,
        state="running",
        requested_at=timezone.now(),
    )
    journal.create_tail(journal_keys.of_terminal(terminal.pk))
    asked = html(eve.get(url("workspace", "remove", row)))
    assert "cannot be restored" in asked
    assert "1 sessions, 1 terminals" in asked
    assert Workspace.objects.get(pk=row.pk).removed_at is None
    answer = eve.post(url("workspace", "remove", row), follow=True)
    assert "Its 1 terminals were ended." in html(answer)
    row.refresh_from_db()
    assert row.removed_at is not None
    assert Session.objects.get(pk=session.pk).workspace_id is None
    assert not Terminal.objects.filter(pk=terminal.pk).exists()
    assert making.shared(acme.pk, ("harbour",)).pk != row.pk
    record = AuditRecord.objects.get(action="workspace_removed")
    assert (record.actor, record.target) == ("admin:eve", "workspace file:///harbour")
    assert "being deleted" in looked_at(eve, row)
    assert "removed already" in html(eve.post(url("workspace", "remove", row), follow=True))


def test_an_operator_who_may_only_look_cannot_remove(reader: Client, acme: Tenant) -> None:
    row = make_workspace(acme, a_txt="hello")
    assert "Remove" not in looked_at(reader, row)
    for send in (reader.get, reader.post):
        assert send(url("workspace", "remove", row)).status_code == 403
    assert Workspace.objects.get(pk=row.pk).removed_at is None
    assert Client().get(url("workspace", "change", row)).status_code == 302
    assert Client().post(url("workspace", "export", row)).status_code == 302
