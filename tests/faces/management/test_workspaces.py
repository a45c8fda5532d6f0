"""The operator's commands for workspaces."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from sessions_app.core.tenancy import tenants
from sessions_app.core.workspaces import volume
from sessions_app.models import AuditRecord, Tenant, Workspace, WorkspaceTotal
from tests.faces.management.test_commands import run

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = "file:///harbour"


@pytest.fixture
def acme(settings: Settings, tmp_path: Path) -> Iterator[Tenant]:
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "volume"
    volume.forget()
    yield tenants.create("acme")[0]
    volume.forget()


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "harbour.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("logs/may.txt", "calm")
        file.writestr("readme.txt", "read me")
    return path


def members(data: bytes) -> dict[str, bytes | None]:
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        return {each.name: found.read() if (found := file.extractfile(each)) else None for each in file}


def exported(*words: str) -> dict[str, bytes | None]:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, write_through=True)
    call_command("export_workspace", *words, stdout=out, stderr=io.StringIO())
    return members(raw.getvalue())


CONTENT = {"logs": None, "logs/may.txt": b"calm", "readme.txt": b"read me"}


def test_an_import_makes_the_workspace_and_an_export_has_the_same_files(acme: Tenant, packed: Path, tmp_path: Path) -> None:
    out, said = run("import_workspace", "acme", ROOT, str(packed))
    assert out == f"{ROOT}\n"
    assert "3 files and directories, 11 bytes" in said
    row = Workspace.objects.get()
    assert (row.root, row.bytes, row.files, row.operations, row.private) == (ROOT, 11, 3, 0, False)
    assert WorkspaceTotal.objects.get().bytes == 11
    assert exported("acme", ROOT) == CONTENT
    assert exported("acme", f"{ROOT}/logs") == {"may.txt": b"calm"}
    file = tmp_path / "out.tar"
    out, said = run("export_workspace", "acme", ROOT, "--output", str(file))
    assert (out, members(file.read_bytes())) == ("", CONTENT)
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.tar"]
    recorded = AuditRecord.objects.filter(action__startswith="workspace_").order_by("pk")
    assert [(each.action, each.target) for each in recorded] == [
        ("workspace_imported", f"workspace {ROOT}"),
        ("workspace_exported", f"workspace {ROOT}"),
        ("workspace_exported", f"workspace {ROOT}/logs"),
        ("workspace_exported", f"workspace {ROOT}"),
    ]
    assert run("import_workspace", "acme", "file:///copy", str(file))[0] == "file:///copy\n"
    assert exported("acme", "file:///copy") == CONTENT


def test_an_import_into_files_needs_a_new_directory(acme: Tenant, packed: Path) -> None:
    run("import_workspace", "acme", ROOT, str(packed))
    with pytest.raises(CommandError, match=r"not empty.*--into"):
        run("import_workspace", "acme", ROOT, str(packed))
    out, _ = run("import_workspace", "acme", ROOT, str(packed), "--into", "old/2025")
    assert out == f"{ROOT}/old/2025\n"
    assert exported("acme", f"{ROOT}/old") == {"2025": None} | {f"2025/{name}": data for name, data in CONTENT.items()}
    with pytest.raises(CommandError, match="old/2025: exists"):
        run("import_workspace", "acme", ROOT, str(packed), "--into", "old/2025")
    with pytest.raises(CommandError, match=r"is inside the workspace file:///harbour.*--into a/b"):
        run("import_workspace", "acme", f"{ROOT}/a/b", str(packed))


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("file:///etc/x", "cannot be the root"),
        ("file:///", "cannot be the root"),
        ("file:///sessions/none", "no session none"),
        ("https://example.org/a", "file"),
        ("harbour", "file"),
    ],
)
def test_a_root_that_no_workspace_can_have_is_refused(acme: Tenant, packed: Path, uri: str, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        run("import_workspace", "acme", uri, str(packed))
    assert said in str(refused.value)
    assert not Workspace.objects.exists()


@pytest.mark.parametrize("into", ["..", "../x", "a/../..", "."])
def test_an_import_stays_in_the_workspace(acme: Tenant, packed: Path, into: str) -> None:
    with pytest.raises(CommandError):
        run("import_workspace", "acme", ROOT, str(packed), "--into", into)
    assert not Workspace.objects.exists()


def test_a_failed_import_leaves_nothing(acme: Tenant, packed: Path, tmp_path: Path, settings: Settings) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"nothing" * 1000)
    with pytest.raises(CommandError, match="cannot be read"):
        run("import_workspace", "acme", ROOT, str(broken))
    settings.AGENTHOST_TENANT_WORKSPACE_BYTES = 5
    with pytest.raises(CommandError, match="AGENTHOST_TENANT_WORKSPACE_BYTES"):
        run("import_workspace", "acme", ROOT, str(packed))
    row = Workspace.objects.get()
    assert (row.bytes, row.files, row.operations) == (0, 0, 0)
    assert exported("acme", ROOT) == {}
    with pytest.raises(CommandError, match=r"cannot read .*none\.zip: No such file"):
        run("import_workspace", "acme", ROOT, str(tmp_path / "none.zip"))
    assert not AuditRecord.objects.filter(action="workspace_imported").exists()


def test_a_failed_export_leaves_no_file(acme: Tenant, packed: Path, tmp_path: Path) -> None:
    run("import_workspace", "acme", ROOT, str(packed))
    for uri, said in ((f"{ROOT}/none", "no directory"), ("file:///other", "in no workspace of acme")):
        with pytest.raises(CommandError, match=said):
            run("export_workspace", "acme", uri, "--output", str(tmp_path / "out.tar"))
    with pytest.raises(CommandError, match="cannot write"):
        run("export_workspace", "acme", ROOT, "--output", str(tmp_path / "none" / "out.tar"))
    assert not list(tmp_path.glob("out*"))


def test_workspaces_of_another_tenant_are_not_exported(acme: Tenant, packed: Path) -> None:
    run("import_workspace", "acme", ROOT, str(packed))
    tenants.create("other")
    with pytest.raises(CommandError, match="in no workspace of other"):
        exported("other", ROOT)


def test_workspaces_are_listed_up_to_a_limit(acme: Tenant, packed: Path) -> None:
    assert run("list_workspaces") == ("", "There are no workspaces.\n")
    for name in ("a", "b"):
        run("import_workspace", "acme", f"file:///{name}", str(packed))
    out, said = run("list_workspaces", "acme")
    lines = out.splitlines()
    assert lines[0].split("  ")[0] == "TENANT"
    assert [line.split()[:5] for line in lines[1:]] == [["acme", f"file:///{name}", "11", "3", "0"] for name in ("a", "b")]
    assert said == ""
    out, said = run("list_workspaces", "--limit", "1")
    assert len(out.splitlines()) == 2
    assert "--limit 1" in said


def test_without_a_volume_the_commands_name_the_setting(acme: Tenant, packed: Path, settings: Settings) -> None:
    settings.AGENTHOST_WORKSPACES_DIR = None
    with pytest.raises(CommandError, match="AGENTHOST_WORKSPACES_DIR"):
        run("import_workspace", "acme", ROOT, str(packed))
