"""Watches of trees while hostile programs change them, and writers of several processes."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sessions_app.workspace import inotify
from sessions_app.workspace.errors import FileError, Outside, TooMany
from sessions_app.workspace.paths import Path as Names
from sessions_app.workspace.tree import Tree
from sessions_app.workspace.watching import Watch, Watcher
from tests.paths import ROOT
from tests.workspace.files.conftest import Swapping

only_linux = pytest.mark.skipif(not inotify.is_available(), reason="needs the notifications of Linux")


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    made = Watcher(1000)
    yield made
    made.close()


def watch(tree: Tree, path: Names = (), *, recursive: bool = True, most: int = 1000) -> Watch:
    return Watch(tree, path, recursive=recursive, includes=[], excludes=[], most=most)


def inodes(watcher: Watcher) -> set[int]:
    """Of the directories that the kernel reports."""
    info = Path(f"/proc/self/fdinfo/{watcher.descriptor}").read_text()
    return {int(number, 16) for number in re.findall(r"inotify wd:\S+ ino:(\S+)", info)}


def batch(watcher: Watcher, one: Watch) -> list[tuple[Names, str]]:
    while watcher.read():
        pass
    while one.needs_work:
        watcher.work(one)
        while watcher.read():
            pass
    return [(path, str(kind)) for path, kind in one.batch(lambda _: False)]


@only_linux
def test_a_directory_that_is_exchanged_for_a_link_leads_no_watch_out(
    tree: Tree, inside: Path, outside: Path, swapping: Swapping, watcher: Watcher
) -> None:
    (inside / "dir" / "folder").mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    forbidden = {outside.stat().st_ino, (outside / "folder").stat().st_ino}
    with swapping(inside / "dir", inside / "link"):
        for number in range(150):
            one = watch(tree, () if number % 2 else ("dir",))
            with suppress(FileError):
                watcher.begin(one)
            assert not inodes(watcher) & forbidden
            batch(watcher, one)
            assert not inodes(watcher) & forbidden
            watcher.end(one)
    assert inodes(watcher) == set()


@only_linux
def test_roots_that_lead_out_are_refused_and_leave_nothing(tree: Tree, inside: Path, outside: Path, watcher: Watcher) -> None:
    for name, target in (("absolute", str(outside)), ("relative", "../../../outside"), ("beside", "../new")):
        (inside / name).symlink_to(target)
        for path in ((name,), (name, "folder")):
            with pytest.raises(Outside):
                watcher.begin(watch(tree, path))
    assert inodes(watcher) == set()


@only_linux
def test_what_the_kernel_drops_is_found_by_looking_again(tree: Tree, inside: Path, watcher: Watcher) -> None:
    one = watch(tree)
    watcher.begin(one)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 100):
        (inside / str(number)).write_text("")
        (inside / str(number)).unlink()
    (inside / "new").mkdir()
    assert batch(watcher, one) == [((), "updated")]
    (inside / "new" / "seen").write_text("")
    assert batch(watcher, one) == [(("new", "seen"), "added")]


@only_linux
def test_a_watch_that_grows_over_its_limit_knows_that_it_is_incomplete(tree: Tree, inside: Path, watcher: Watcher) -> None:
    for name in ("a", "b"):
        (inside / name).mkdir()
    with pytest.raises(TooMany):
        watcher.begin(watch(tree, most=2))
    assert inodes(watcher) == set()
    one = watch(tree, most=3)
    watcher.begin(one)
    (inside / "c").mkdir()
    assert batch(watcher, one) == [(("c",), "added")]
    assert one.is_incomplete
    assert len(inodes(watcher)) == 3
    for name in ("a", "b"):
        (inside / name).rmdir()
    batch(watcher, one)
    one.is_stale = True
    batch(watcher, one)
    assert not one.is_incomplete


@only_linux
def test_two_watches_of_a_directory_share_it_and_the_last_one_leaves_nothing(tree: Tree, inside: Path, watcher: Watcher) -> None:
    (inside / "dir").mkdir()
    first, second = watch(tree), watch(tree, ("dir",))
    watcher.begin(first)
    watcher.begin(second)
    assert len(inodes(watcher)) == 2
    watcher.end(first)
    (inside / "dir" / "a").write_text("")
    assert batch(watcher, second) == [(("a",), "added")]
    assert batch(watcher, first) == []
    watcher.end(second)
    assert inodes(watcher) == set()


_APPEND = textwrap.dedent("""
    import pathlib, sys
    from sessions_app.workspace.tree import Tree
    from sessions_app.workspace.writing import Splice
    tree = Tree(pathlib.Path(sys.argv[1]))
    for number in range(40):
        tree.write(("log",), b"%s %d\\n" % (sys.argv[2].encode(), number), splice=Splice(0, from_end=True))
""")


def test_appends_of_several_processes_lose_nothing(tree: Tree, inside: Path) -> None:
    tree.write(("log",), b"")
    commands = [[sys.executable, "-c", _APPEND, str(tree.directory), name] for name in ("one", "two", "three")]
    processes = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    assert [process.wait() for process in processes] == [0, 0, 0]
    expected = {f"{name} {number}" for name in ("one", "two", "three") for number in range(40)}
    assert set((inside / "log").read_text().splitlines()) == expected
