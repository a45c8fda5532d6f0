"""Reading and changing files and directories, and the quota."""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessions_app.workspace import renaming
from sessions_app.workspace.entries import Usage
from sessions_app.workspace.errors import (
    BadUri,
    Exists,
    FileError,
    IntoItself,
    IsADirectory,
    Missing,
    NoRoom,
    NotADirectory,
    NotEmpty,
    TooLarge,
    TooMany,
    Unsupported,
)
from sessions_app.workspace.tree import Tree
from tests.workspace.files.conftest import Counted, everything_in, running

A, B, DIR = ("a",), ("b",), ("dir",)
_APPENDS = """
import sys
file = open(sys.argv[1], "ab", 0)
file.write(b"x")
print("ready", flush=True)
while True:
    if file.tell() < 10**8:
        file.write(b"x" * 50)
"""


@pytest.fixture
def filled(tree: Tree) -> Tree:
    """a, and dir/inner/deep with two files."""
    tree.write(A, b"alpha")
    tree.make_directory(("dir", "inner", "deep"), parents=True)
    tree.write(("dir", "one"), b"1")
    tree.write(("dir", "inner", "two"), b"22")
    return tree


# --- reading ---


def test_a_file_is_read_whole_and_in_ranges(tree: Tree) -> None:
    tree.write(A, b"0123456789")
    assert tree.read(A, most=10) == b"0123456789"
    assert tree.read(A, offset=3, length=4, most=4) == b"3456"
    assert tree.read(A, offset=8, length=100, most=10) == b"89"
    assert tree.read(A, offset=10**15, most=10) == b""
    with pytest.raises(TooLarge, match="10 bytes; the limit is 9"):
        tree.read(A, most=9)


def test_a_tree_that_is_not_made_has_no_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "none")
    assert not tree.exists()
    for call in (lambda: tree.list(()), lambda: tree.write(A, b""), lambda: tree.delete(A), lambda: tree.usage()):
        with pytest.raises(Missing):
            call()


def test_entries_have_kind_size_and_time(filled: Tree, inside: Path) -> None:
    os.utime(inside / "a", ns=(0, 1_700_000_000_123_456_789))
    (inside / "a").chmod(0o755)
    (inside / "good").symlink_to("dir/one")
    (inside / "to_dir").symlink_to("dir")
    (inside / "bad").symlink_to("/etc/passwd")
    os.mkfifo(inside / "fifo")
    found = {entry.name: entry for entry in filled.list(())}
    assert [*found] == ["a", "bad", "dir", "fifo", "good", "to_dir"]
    entry = filled.stat(A)
    assert entry == found["a"]
    assert (entry.kind, entry.size, entry.modified, entry.executable) == ("file", 5, 1_700_000_000_123, True)
    kinds = {name: (entry.kind, entry.leads_to) for name, entry in found.items() if name != "a"}
    assert kinds == {
        "bad": ("link", None),
        "dir": ("directory", "directory"),
        "fifo": ("other", "other"),
        "good": ("link", "file"),
        "to_dir": ("link", "directory"),
    }
    assert filled.stat(("good",)).kind == "link"
    assert filled.stat(("good",), follow=True).kind == "file"
    assert filled.stat(()).kind == "directory"


def test_links_inside_the_tree_are_followed(filled: Tree, inside: Path) -> None:
    (inside / "link").symlink_to("dir/inner")
    (inside / "dir" / "up").symlink_to("../a")
    (inside / "dir" / "inner" / "chain").symlink_to("../up")
    assert filled.read(("link", "two"), most=9) == b"22"
    assert filled.read(("link", "chain"), most=9) == b"alpha"
    assert [entry.name for entry in filled.list(("link",))] == ["chain", "deep", "two"]
    filled.write(("link", "new"), b"n")
    assert (inside / "dir" / "inner" / "new").read_bytes() == b"n"
    filled.write(("dir", "up"), b"through")
    assert (inside / "dir" / "up").is_symlink()
    assert (inside / "a").read_bytes() == b"through"
    (inside / "dangling").symlink_to("dir/made")
    filled.write(("dangling",), b"m")
    assert (inside / "dir" / "made").read_bytes() == b"m"


def test_a_walk_reports_all_below_and_does_not_follow_links(filled: Tree, inside: Path) -> None:
    (inside / "dir" / "loop").symlink_to("..")
    walked = ["/".join(path) for path, _ in filled.walk(())]
    assert walked == ["a", "dir", "dir/inner", "dir/inner/deep", "dir/inner/two", "dir/loop", "dir/one"]
    with pytest.raises(TooMany):
        list(filled.walk((), most=6))
    stopped = filled.walk(())
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]  # a generator


def test_a_listing_has_a_limit(filled: Tree) -> None:
    assert len(filled.list((), most=2)) == 2
    with pytest.raises(TooMany):
        filled.list((), most=1)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.read(("none",), most=1), Missing),
        (lambda t: t.read(("none", "x"), most=1), Missing),
        (lambda t: t.read(("a", "x"), most=1), NotADirectory),
        (lambda t: t.read(DIR, most=1), IsADirectory),
        (lambda t: t.read((), most=1), IsADirectory),
        (lambda t: t.list(("none",)), Missing),
        (lambda t: t.list(A), NotADirectory),
        (lambda t: t.stat(("none",)), Missing),
        (lambda t: t.write(DIR, b""), IsADirectory),
        (lambda t: t.write((), b""), IsADirectory),
        (lambda t: t.write(("none", "x"), b""), Missing),
        (lambda t: t.write(("a", "x"), b""), NotADirectory),
        (lambda t: t.write(A, b"", create_only=True), Exists),
        (lambda t: t.write(DIR, b"", create_only=True), Exists),
        (lambda t: t.make_directory(A), Exists),
        (lambda t: t.make_directory(DIR), Exists),
        (lambda t: t.make_directory(()), Exists),
        (lambda t: t.make_directory(("none", "x")), Missing),
        (lambda t: t.make_directory(("a", "x"), parents=True), NotADirectory),
        (lambda t: t.make_directory(A, parents=True), NotADirectory),
        (lambda t: t.delete(("none",)), Missing),
        (lambda t: t.delete(DIR), NotEmpty),
        (lambda t: t.delete((), recursive=True), Unsupported),
        (lambda t: t.copy(("none",), B), Missing),
        (lambda t: t.copy(A, ("none", "x")), Missing),
        (lambda t: t.copy(A, DIR), IsADirectory),
        (lambda t: t.copy(DIR, A), NotADirectory),
        (lambda t: t.copy(A, DIR, fail_if_exists=True), Exists),
        (lambda t: t.copy(DIR, ("dir", "x")), IntoItself),
        (lambda t: t.copy(DIR, ("dir", "inner", "deep", "x")), IntoItself),
        (lambda t: t.copy(DIR, DIR), IntoItself),
        (lambda t: t.copy(("dir", "inner"), DIR), IntoItself),
        (lambda t: t.copy((), ("x",)), IntoItself),
        (lambda t: t.copy(DIR, ()), Unsupported),
        (lambda t: t.move(("none",), B), Missing),
        (lambda t: t.move(A, DIR), IsADirectory),
        (lambda t: t.move(DIR, A), NotADirectory),
        (lambda t: t.move(A, DIR, fail_if_exists=True), Exists),
        (lambda t: t.move(DIR, ("dir", "x")), IntoItself),
        (lambda t: t.move(("dir", "inner"), DIR), IntoItself),
        (lambda t: t.move((), ("x",)), Unsupported),
        (lambda t: t.read(("..", "x"), most=1), BadUri),
        (lambda t: t.read(("a/b",), most=1), BadUri),
        (lambda t: t.read(("a\0",), most=1), BadUri),
        (lambda t: t.write(("x" * 256,), b""), BadUri),
    ],
)
def test_refusals_change_nothing(filled: Tree, inside: Path, call: Callable[[Tree], object], error: type[FileError]) -> None:
    before = everything_in(inside)
    with pytest.raises(FileError) as raised:
        call(filled)
    assert type(raised.value) is error
    assert str(inside) not in str(raised.value)
    assert everything_in(inside) == before
    assert not any((inside.parent / "new").iterdir())


# --- writing ---


def test_a_replaced_file_keeps_its_mode_without_setuid(tree: Tree, inside: Path) -> None:
    tree.write(A, b"#!/bin/sh")
    assert stat.S_IMODE((inside / "a").stat().st_mode) == 0o644
    (inside / "a").chmod(0o4755)
    tree.write(A, b"#!/bin/bash")
    assert stat.S_IMODE((inside / "a").stat().st_mode) == 0o755
    tree.copy(A, B)
    assert stat.S_IMODE((inside / "b").stat().st_mode) == 0o755


def test_a_reader_sees_the_old_or_the_new_content(tree: Tree) -> None:
    size = 200_000
    tree.write(A, b"a" * size)
    done = threading.Event()
    seen: set[bytes] = set()

    def reads() -> None:
        while not done.is_set():
            data = tree.read(A, most=size)
            seen.add(data[:1] if data == data[:1] * size else b"torn")

    reader = threading.Thread(target=reads)
    reader.start()
    for number in range(60):
        tree.write(A, (b"a", b"b")[number % 2] * size)
    done.set()
    reader.join()
    assert seen <= {b"a", b"b"}


@pytest.fixture(params=["renameat2", "in steps"])
def either_rename(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in steps":
        monkeypatch.setattr(renaming, "_RENAMEAT2", {})


def test_of_two_that_create_one_fails(either_rename: None, tree: Tree) -> None:
    for number in range(10):
        for call in (_create, _make, _copy, _move):
            outcomes: list[str] = []
            begin = threading.Barrier(2)

            def attempt(who: str, call: Callable[[Tree, str, str], None] = call, begin: threading.Barrier = begin) -> None:
                tree.write((f"source {who}",), who.encode())
                begin.wait()
                try:
                    call(tree, who, f"{call.__name__} {number}")  # noqa: B023
                except Exists:
                    outcomes.append("exists")  # noqa: B023
                else:
                    outcomes.append("done")  # noqa: B023

            threads = [threading.Thread(target=attempt, args=(who,)) for who in ("x", "y")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(outcomes) == ["done", "exists"]


def _create(tree: Tree, who: str, name: str) -> None:
    tree.write((name,), who.encode(), create_only=True)


def _make(tree: Tree, who: str, name: str) -> None:
    tree.make_directory((name,))


def _copy(tree: Tree, who: str, name: str) -> None:
    tree.copy((f"source {who}",), (name,), fail_if_exists=True)


def _move(tree: Tree, who: str, name: str) -> None:
    tree.move((f"source {who}",), (name,), fail_if_exists=True)


def test_a_link_in_the_way_is_not_written_through_by_create_only(tree: Tree, inside: Path, either_rename: None) -> None:
    (inside / "link").symlink_to("nowhere")
    with pytest.raises(Exists):
        tree.write(("link",), b"x", create_only=True)
    assert [path.name for path in inside.iterdir()] == ["link"]


def test_new_files_belong_to_the_owner_of_sandboxes(tmp_path: Path, other: Tree) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    tree = Tree(tmp_path / "owned", owner=(12345, 23456))
    tree.create()
    other.make_directory(DIR)
    other.write(("dir", "file"), b"x")
    (other.contents / "dir" / "link").symlink_to("file")
    tree.make_directory(("d", "e"), parents=True)
    tree.write(A, b"x")
    other.copy(DIR, DIR, into=tree)
    owners = {(path.lstat().st_uid, path.lstat().st_gid) for path in [tree.contents, *tree.contents.rglob("*")]}
    assert owners == {(12345, 23456)}
    assert stat.S_IMODE((tree.directory / "new").stat().st_mode) == 0o700


# --- copying and moving ---


def test_a_directory_is_copied_with_all_in_it(filled: Tree, inside: Path) -> None:
    (inside / "dir" / "run").write_bytes(b"#!")
    (inside / "dir" / "run").chmod(0o755)
    (inside / "dir" / "link").symlink_to("inner/two")
    os.mkfifo(inside / "dir" / "fifo")
    (inside / "dir" / b"\xff\n".decode("utf-8", "surrogateescape")).write_bytes(b"odd")
    filled.copy(DIR, ("copy",))
    expected = everything_in(inside / "dir")
    del expected["fifo"]
    assert everything_in(inside / "copy") == expected
    assert (inside / "copy" / "link").readlink() == Path("inner/two")


def test_a_directory_replaces_a_whole_directory(filled: Tree, inside: Path, ledger: Counted) -> None:
    for call in (filled.copy, filled.move):
        filled.make_directory(("old", "left"), parents=True)
        filled.write(("old", "left", "file"), b"gone")
        call(DIR, ("old",))
        assert sorted(path.name for path in (inside / "old").iterdir()) == ["inner", "one"]
    assert not (inside / "dir").exists()
    assert filled.usage() == Usage(ledger.size, ledger.files)


def test_an_entry_is_moved(filled: Tree, inside: Path, either_rename: None) -> None:
    (inside / "link").symlink_to("/outside")
    filled.move(("link",), ("dir", "link"), fail_if_exists=True)
    assert (inside / "dir" / "link").readlink() == Path("/outside")
    filled.move(A, ("dir", "one"))
    assert (inside / "dir" / "one").read_bytes() == b"alpha"
    filled.move(DIR, ("moved",), fail_if_exists=True)
    with pytest.raises(Exists):
        filled.move(("moved",), ("moved",), fail_if_exists=True)
    filled.move(("moved",), ("renamed",))
    filled.move(("renamed", "one"), ("renamed", "one"))
    assert sorted(path.name for path in inside.iterdir()) == ["renamed"]
    assert (inside / "renamed" / "inner" / "two").read_bytes() == b"22"


def test_files_are_copied_and_moved_into_another_tree(filled: Tree, other: Tree, ledger: Counted) -> None:
    filled.copy((), ("all",), into=other)
    assert other.read(("all", "dir", "inner", "two"), most=2) == b"22"
    (filled.contents / "link").symlink_to("a")
    filled.ledger.take(0, 1)
    filled.move(("link",), ("link",), into=other)
    filled.move(DIR, DIR, into=other)
    filled.move(A, A, into=other)
    assert filled.list(()) == []
    assert (ledger.size, ledger.files) == (0, 0)
    assert other.read(("link",), most=5) == b"alpha"
    assert [entry.name for entry in other.list(DIR)] == ["inner", "one"]


@pytest.mark.parametrize("limit", [{"most_files": 3}, {"most_bytes": 2}])
def test_a_copy_over_its_limits_leaves_nothing(filled: Tree, inside: Path, ledger: Counted, limit: dict[str, int]) -> None:
    before = everything_in(inside), ledger.size, ledger.files
    with pytest.raises((TooMany, TooLarge)):
        filled.copy(DIR, ("copy",), **limit)  # type: ignore[arg-type]  # both are keywords of the method
    assert (everything_in(inside), ledger.size, ledger.files) == before
    assert not any((inside.parent / "new").iterdir())


# --- hard links ---


def test_a_hard_link_is_an_own_file_to_writers_and_counts_once(tree: Tree, inside: Path, ledger: Counted) -> None:
    tree.write(A, b"x" * 1000)
    (inside / "b").hardlink_to(inside / "a")
    ledger.take(0, 1)
    assert tree.usage() == Usage(1000, 2)
    tree.write(B, b"changed")
    assert tree.read(A, most=1000) == b"x" * 1000
    (inside / "c").hardlink_to(inside / "a")
    ledger.take(0, 1)
    tree.delete(A)
    assert (ledger.size, ledger.files) == (1007, 2)
    tree.delete(("c",))
    assert tree.usage() == Usage(ledger.size, ledger.files) == Usage(7, 1)


def test_moving_one_name_of_a_file_onto_another_leaves_one(tree: Tree, inside: Path, ledger: Counted) -> None:
    tree.write(A, b"x")
    (inside / "b").hardlink_to(inside / "a")
    ledger.take(0, 1)
    tree.move(A, B)
    assert [path.name for path in inside.iterdir()] == ["b"]
    assert tree.usage() == Usage(ledger.size, ledger.files)


# --- the quota ---


def test_the_ledger_knows_what_is_there(filled: Tree, ledger: Counted) -> None:
    assert filled.usage() == Usage(ledger.size, ledger.files) == Usage(8, 6)
    filled.write(A, b"longer than alpha")
    filled.write(("dir", "one"), b"")
    filled.copy(DIR, ("copy",))
    filled.copy(A, B)
    filled.copy(("dir", "inner", "two"), B)
    filled.move(B, A)
    filled.make_directory(("p", "q"), parents=True)
    filled.make_directory(("p", "q"), parents=True)
    filled.delete(("p", "q"))
    assert filled.usage() == Usage(ledger.size, ledger.files)
    filled.delete(DIR, recursive=True)
    filled.delete(A)
    assert filled.usage() == Usage(ledger.size, ledger.files) == Usage(2, 6)


def test_a_write_over_the_quota_leaves_the_old_content(filled: Tree, inside: Path, ledger: Counted) -> None:
    ledger.most = (20, 7)
    before = everything_in(inside), ledger.size, ledger.files

    def pieces() -> Iterator[bytes]:
        for _ in range(5):
            yield b"12345"

    calls: list[Callable[[], None]] = [
        lambda: filled.write(A, b"x" * 100),
        lambda: filled.write(B, pieces()),
        lambda: filled.copy(DIR, ("copy",)),
        lambda: filled.make_directory(("p", "q"), parents=True),
    ]
    for call in calls:
        with pytest.raises(NoRoom):
            call()
    assert [path.name for path in (inside / "p").iterdir()] == []
    filled.delete(("p",))
    assert (everything_in(inside), ledger.size, ledger.files) == before
    assert not any((inside.parent / "new").iterdir())


def test_a_file_can_be_replaced_when_the_quota_is_full(filled: Tree, ledger: Counted) -> None:
    ledger.most = (ledger.size, ledger.files)
    filled.write(A, b"ALPHA")
    filled.write(A, b"al")
    filled.write(A, b"alpha")
    with pytest.raises(NoRoom):
        filled.write(A, b"alphas")
    filled.copy(("dir", "one"), A)
    assert filled.usage() == Usage(ledger.size, ledger.files)


def test_a_failing_source_of_data_leaves_nothing(tree: Tree, inside: Path, ledger: Counted) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"some"
        raise RuntimeError("the client has gone")

    with pytest.raises(RuntimeError):
        tree.write(A, pieces())
    assert everything_in(inside.parent).keys() == {".", "new", "trash", "tree"}
    assert (ledger.size, ledger.files) == (0, 0)


def test_a_write_that_the_system_stops_leaves_the_old_content(filled: Tree, inside: Path, ledger: Counted) -> None:
    before = everything_in(inside.parent), ledger.size, ledger.files
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
    try:
        with pytest.raises(TooLarge):
            filled.write(A, b"x" * 4_000_000)
        with pytest.raises(TooLarge):
            filled.write(B, iter([b"x" * 1_000_000] * 4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (everything_in(inside.parent), ledger.size, ledger.files) == before


def test_a_sparse_file_counts_what_it_takes(tree: Tree, inside: Path) -> None:
    with (inside / "sparse").open("wb") as file:
        file.truncate(2**40)
        file.seek(2**39)
        file.write(b"end")
    assert tree.stat(("sparse",)).size == 2**40
    assert tree.usage().bytes < 100_000
    with pytest.raises(TooLarge):
        tree.read(("sparse",), most=10**6)
    assert tree.read(("sparse",), offset=2**39, length=3, most=10) == b"end"
    with pytest.raises(TooLarge):
        tree.copy(("sparse",), B)


@pytest.mark.skipif(sys.platform != "linux", reason="allocates as Linux does")
def test_space_behind_the_end_of_a_file_counts(tree: Tree, inside: Path) -> None:
    descriptor = os.open(inside / "allocated", os.O_WRONLY | os.O_CREAT)
    keep_size = 1
    failed = ctypes.CDLL(None).fallocate(descriptor, keep_size, ctypes.c_long(0), ctypes.c_long(2**20))
    os.close(descriptor)
    if failed:
        pytest.skip("this file system does not allocate ahead")
    assert tree.stat(("allocated",)).size == 0
    assert tree.usage().bytes == 2**20


# --- removing ---


def test_a_workspace_is_removed_in_steps(filled: Tree) -> None:
    for number in range(20):
        filled.write(("dir", "inner", str(number)), b"x")
    steps = 1
    while not filled.remove(batch=5):
        steps += 1
        assert not filled.exists()
        assert steps < 50
    assert steps >= 26 // 5
    assert not filled.directory.exists()
    assert filled.remove()


def test_a_large_directory_disappears_at_once_and_frees_its_bytes_in_steps(tree: Tree, inside: Path, ledger: Counted) -> None:
    (inside / "many").mkdir()
    for number in range(2500):
        (inside / "many" / str(number)).touch()
    ledger.take(0, 2501)
    tree.delete(("many",), recursive=True)
    assert tree.list(()) == []
    assert 0 < ledger.files < 2501
    assert tree.usage() == Usage(0, 2501 - 1000)
    while not tree.sweep(batch=700):
        pass
    assert ledger.files == 0
    assert tree.usage() == Usage(0, 0)


def test_unfinished_writes_of_a_dead_process_are_swept(tree: Tree, inside: Path, ledger: Counted) -> None:
    for name, age in (("old", 10**6), ("young", 10)):
        path = inside.parent / "new" / name
        path.mkdir()
        (path / "part").write_bytes(b"half")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
        ledger.take(4, 2)
    assert tree.usage() == Usage(8, 4)
    assert tree.sweep()
    assert [path.name for path in (inside.parent / "new").iterdir()] == ["young"]
    assert (ledger.size, ledger.files) == (4, 2)


def test_usage_is_measured_in_steps_and_within_a_limit(filled: Tree) -> None:
    assert list(filled.measure(step=4)) == [Usage(5, 4, complete=False), Usage(8, 6)]
    assert filled.usage(most=6) == Usage(8, 6)
    partial = filled.usage(most=4)
    assert (partial.files, partial.complete) == (4, False)


def test_a_growing_file_is_read_up_to_a_bound(tree: Tree, inside: Path) -> None:
    with running(_APPENDS, str(inside / "a")):
        for _ in range(20):
            size = tree.stat(A).size
            data = tree.read(A, length=size + 10, most=size + 10)
            assert size <= len(data) <= size + 10
            tree.copy(A, B)
