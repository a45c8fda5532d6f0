"""Trees that are made with the content of a template."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sessions_app.workspace import templates
from sessions_app.workspace.archive import Limits
from sessions_app.workspace.errors import BadArchive, FileError, NoRoom, TooLarge, TooMany
from sessions_app.workspace.tree import Tree
from tests.workspace.files.conftest import Counted

MAIN = b"print('hello')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "template"
    (made / "src").mkdir(parents=True)
    (made / "src" / "main.py").write_bytes(MAIN)
    (made / "run").write_text("#!/bin/sh\n")
    (made / "run").chmod(0o755)
    (made / "link").symlink_to("src/main.py")
    (made / "out").symlink_to("/etc/passwd")
    return made


@pytest.fixture
def new(tmp_path: Path, ledger: Counted) -> Tree:
    return Tree(tmp_path / "tenant" / "workspace", ledger=ledger)


def _packed(kind: str, folder: Path) -> Path:
    if kind == "folder":
        return folder
    path = folder.with_name(f"template.{kind}")
    (folder / "out").unlink()
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as packed:
            packed.write(folder / "src" / "main.py", "src/main.py")
            packed.write(folder / "run", "run")
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as file:
            file.add(folder, ".")
    return path


@pytest.mark.parametrize("kind", ["folder", "tar", "tar.gz", "zip"])
def test_a_new_tree_has_the_templates_files_and_they_are_counted(kind: str, folder: Path, new: Tree, ledger: Counted) -> None:
    template = _packed(kind, folder)
    templates.check(template, Limits())
    templates.create(new, template)
    assert new.read(("src", "main.py"), most=1000) == MAIN
    assert new.stat(("run",)).executable
    usage = new.usage()
    assert (ledger.size, ledger.files) == (usage.bytes, usage.files)
    new.delete(("src",), recursive=True)
    templates.create(new, template)
    assert not (new.contents / "src").exists(), "it is filled once only"
    assert [*(new.directory / "new").iterdir()] == []


def test_a_link_that_leads_out_of_the_template_leads_nowhere(folder: Path, new: Tree) -> None:
    templates.create(new, folder)
    assert new.read(("link",), most=1000) == MAIN
    with pytest.raises(FileError):
        new.read(("out",), most=1000)


@pytest.mark.parametrize(("limits", "error"), [(Limits(bytes=10), TooLarge), (Limits(files=3), TooMany)], ids=["bytes", "files"])
@pytest.mark.parametrize("kind", ["folder", "tar.gz"])
def test_a_template_over_a_limit_makes_no_tree(
    kind: str, limits: Limits, error: type[FileError], folder: Path, new: Tree, ledger: Counted
) -> None:
    template = _packed(kind, folder)
    with pytest.raises(error):
        templates.check(template, limits)
    with pytest.raises(error):
        templates.create(new, template, limits)
    assert not new.exists()
    assert (ledger.size, ledger.files) == (0, 0)


def test_a_template_over_the_quota_makes_no_tree_until_there_is_room(folder: Path, new: Tree, ledger: Counted) -> None:
    ledger.most = (10**6, 2)
    with pytest.raises(NoRoom):
        templates.create(new, folder)
    assert not new.exists()
    assert (ledger.size, ledger.files) == (0, 0)
    assert [*(new.directory / "new").iterdir()] == []
    ledger.most = (10**6, 100)
    templates.create(new, folder)
    assert new.exists()


def test_an_archive_that_cannot_be_read_makes_no_tree(tmp_path: Path, new: Tree) -> None:
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"\x1f\x8b nothing")
    with pytest.raises(BadArchive):
        templates.check(broken, Limits())
    with pytest.raises(BadArchive):
        templates.create(new, broken)
    with pytest.raises(FileNotFoundError):
        templates.create(new, tmp_path / "none.zip")
    assert not new.exists()


@pytest.mark.parametrize("locks", [True, False], ids=["with locks", "without locks"])
def test_of_many_that_make_a_tree_one_does_and_all_find_it_complete(
    locks: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not locks:
        monkeypatch.setattr("fcntl.flock", _no_locks)
    # With locks, room for one copy is enough: five entries and the root.
    shared = Counted(10**6, 6 if locks else 1000)
    guard = threading.Lock()
    for name in ("take", "give"):
        setattr(shared, name, _guarded(guard, getattr(shared, name)))
    start, found, failed = threading.Barrier(8), [], []

    def make() -> None:
        tree = Tree(tmp_path / "tenant" / "workspace", ledger=shared)
        start.wait()
        try:
            templates.create(tree, folder)
            found.append(tree.read(("src", "main.py"), most=1000))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, found) == ([], [MAIN] * 8)
    usage = Tree(tmp_path / "tenant" / "workspace").usage()
    assert (shared.size, shared.files) == (usage.bytes, usage.files)


def _no_locks(*_arguments: object) -> None:
    raise OSError("no locks here")


def _guarded(lock: threading.Lock, method: Callable[[int, int], None]) -> Callable[[int, int], None]:
    def call(size: int, files: int) -> None:
        with lock:
            method(size, files)

    return call


_DIES = """
import os, pathlib, signal, sys
from sessions_app.workspace import templates
from sessions_app.workspace.tree import Tree

class Ledger:
    calls = 0
    def take(self, size, files):
        self.calls += 1
        if self.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    def give(self, size, files): pass

templates.create(Tree(pathlib.Path(sys.argv[1]), ledger=Ledger()), pathlib.Path(sys.argv[2]))
"""


def test_a_process_that_dies_in_the_middle_leaves_no_tree_and_the_next_one_makes_it(folder: Path, new: Tree) -> None:
    died = subprocess.run([sys.executable, "-c", _DIES, str(new.directory), str(folder)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert not new.exists()
    left = [path for path in (new.directory / "new").rglob("*") if path.is_file()]
    assert left, "it died in the middle"
    templates.create(new, folder)
    assert new.read(("src", "main.py"), most=1000) == MAIN
    for path in (new.directory / "new").iterdir():
        os.utime(path, (0, 0))
    while not new.sweep():
        pass
    assert [*(new.directory / "new").iterdir()] == []


def test_a_folder_with_a_file_that_cannot_be_read_is_refused(folder: Path, new: Tree) -> None:
    if os.geteuid() == 0:
        pytest.skip("root can read everything")
    (folder / "run").chmod(0)
    with pytest.raises((PermissionError, FileError)):
        templates.check(folder, Limits())
    with pytest.raises((PermissionError, FileError)):
        templates.create(new, folder)
    assert not new.exists()
