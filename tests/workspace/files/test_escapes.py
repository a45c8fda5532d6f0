"""Attempts to reach files outside of a workspace, by a sandbox that changes the tree while the server works on it."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessions_app.workspace import reading, resolving
from sessions_app.workspace.errors import FileError, Missing, NotPermitted, Outside, TooMany, Unsupported
from sessions_app.workspace.tree import Tree
from tests.workspace.files.conftest import RESOLVERS, SECRET, Counted, Swapping, everything_in, no_secret_in, running

A, NEW = ("a",), ("new",)


@pytest.fixture
def ledger() -> Counted:
    """Counts what these tests delete too, which they make without asking it."""
    counted = Counted()
    counted.take(10**12, 10**6)
    return counted


# --- links that lead out ---


def _link(target: str) -> Callable[[Path, Path], None]:
    return lambda inside, outside: (inside / "trap").symlink_to(target.format(outside=outside))


def _chain(inside: Path, outside: Path) -> None:
    (inside / "trap").symlink_to("two")
    (inside / "two").symlink_to("sub/three")
    (inside / "sub" / "three").symlink_to("../../../../outside")


def _by_parents_of_a_link(inside: Path, outside: Path) -> None:
    (inside / "sub" / "up").symlink_to("..")
    (inside / "trap").symlink_to("sub/up/../../../outside")


def _by_many_dots(inside: Path, outside: Path) -> None:
    (inside / "trap").symlink_to("./" * 500 + "../" * 40 + str(outside).lstrip("/"))


def _by_an_own_descriptor(inside: Path, outside: Path) -> None:
    # Stays open for the test, and is closed by its fixture.
    (inside / "trap").symlink_to(f"/proc/self/fd/{os.open(outside, os.O_RDONLY)}")


TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "absolute": _link("{outside}"),
    "relative": _link("../../../outside"),
    "with dots in it": _link("sub/../../../../outside"),
    "doubled slashes": _link(".//..//..//..//outside/"),
    "chain": _chain,
    "parents of a link": _by_parents_of_a_link,
    "many dots": _by_many_dots,
    "the server's root": _link("/proc/self/root{outside}"),
    "the server's working directory": _link("/proc/self/cwd"),
    "a descriptor": _by_an_own_descriptor,
    "the workspace's own directory": _link(".."),
    "the neighbour": _link("../../other/tree"),
    "unfinished writes": _link("../new"),
    "the file system": _link("/"),
    "a loop": _link("trap"),
    "a loop of two": _link("sub/../trap"),
}


def _lay(trap: str, inside: Path, outside: Path) -> None:
    """The tree as it is before each attempt: a file, a directory and the trap."""
    for path in inside.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (inside / "sub").mkdir()
    (inside / "a").write_bytes(b"alpha")
    TRAPS[trap](inside, outside)


@pytest.fixture(params=list(TRAPS))
def trap(request: pytest.FixtureRequest, inside: Path, outside: Path, other: Tree) -> Iterator[str]:
    other.make_directory(("folder",))
    other.write(("secret",), SECRET)
    neighbours = everything_in(other.directory)
    _lay(request.param, inside, outside)
    yield request.param
    for name in os.listdir("/proc/self/fd") if request.param == "a descriptor" else ():  # noqa: PTH208
        if os.path.realpath(f"/proc/self/fd/{name}") == str(outside):
            os.close(int(name))
    assert everything_in(other.directory) == neighbours
    assert not any((inside.parent / "new").iterdir())


OPERATIONS: dict[str, Callable[[Tree, tuple[str, ...]], object]] = {
    "read": lambda t, p: t.read(p, most=10**6),
    "stat": lambda t, p: t.stat(p, follow=True),
    "list": lambda t, p: t.list(p),
    "walk": lambda t, p: list(t.walk(p)),
    "write": lambda t, p: t.write(p, b"changed"),
    "create": lambda t, p: t.write(p, b"changed", create_only=True),
    "make directory": lambda t, p: t.make_directory(p),
    "make directories": lambda t, p: t.make_directory((*p, "x"), parents=True),
    "copy from": lambda t, p: t.copy(p, NEW),
    "copy to": lambda t, p: t.copy(A, p),
    "copy a directory to": lambda t, p: t.copy(("sub",), p),
    "move from": lambda t, p: t.move(p, NEW),
    "move to": lambda t, p: t.move(A, p),
    "delete": lambda t, p: t.delete(p),
    "delete all": lambda t, p: t.delete(p, recursive=True),
}


def test_no_operation_passes_a_link_that_leads_out(tree: Tree, inside: Path, trap: str) -> None:
    before = everything_in(inside)
    for call in OPERATIONS.values():
        for path in (
            ("trap", "secret"),
            ("trap", "folder", "secret"),
            ("trap", "folder"),
            ("trap", "none"),
            ("trap", "none", "x"),
        ):
            with pytest.raises((Outside, Unsupported, Missing)):
                call(tree, path)
    assert everything_in(inside) == before


def test_a_link_that_leads_out_is_moved_replaced_and_deleted_itself(tree: Tree, inside: Path, outside: Path, trap: str) -> None:
    for name, call in OPERATIONS.items():
        _lay(trap, inside, outside)
        try:
            result = call(tree, ("trap",))
        except FileError:
            assert name not in ("move from", "move to", "copy to", "delete", "delete all")
            assert (inside / "trap").is_symlink()
        else:
            assert name not in ("read", "list", "walk", "copy from")
            assert SECRET not in repr(result).encode()
        no_secret_in(inside)


def test_a_link_that_leads_out_is_shown_as_leading_nowhere(tree: Tree, trap: str) -> None:
    (shown,) = [entry for entry in tree.list(()) if entry.name == "trap"]
    assert (shown.kind, shown.target, shown.size) == ("link", None, 0)
    assert tree.stat(("trap",)) == shown
    # All of "a", "sub", "trap" and what the trap needs; none is entered.
    assert {path[0] for path, _ in tree.walk(())} <= {"a", "sub", "trap", "two"}


def test_a_list_does_not_follow_slow_links_without_an_end(tree: Tree, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (inside / "a").mkdir()
    (inside / "many").mkdir()
    # Each leads through the one before, and through hundreds of directories.
    for number in range(20):
        (inside / f"way{number}").symlink_to("a/../" * 200 + (f"way{number - 1}" if number else "."))
    for number in range(200):
        (inside / "many" / str(number)).symlink_to("../way19/nothing")
    with monkeypatch.context() as patch:
        patch.setattr(reading, "TARGETS_SECONDS", 0.02)
        with pytest.raises(Unsupported, match="many: the links in it take more than 0 s to follow"):
            tree.list(("many",))
    (inside / "one").mkdir()
    (inside / "one" / "link").symlink_to("../a")
    assert [entry.target for entry in tree.list(("one",))] == ["directory"]


def test_deleting_a_directory_removes_links_and_not_their_targets(tree: Tree, inside: Path, outside: Path) -> None:
    (inside / "dir" / "deep").mkdir(parents=True)
    for number, target in enumerate([str(outside), f"{outside}/folder", f"{outside}/secret", "..", "../../../outside"]):
        (inside / "dir" / "deep" / str(number)).symlink_to(target)
    tree.delete(("dir",), recursive=True)
    assert not any((inside.parent / "trash").iterdir())


def test_a_copied_directory_contains_links_as_links(tree: Tree, inside: Path, outside: Path) -> None:
    (inside / "dir").mkdir()
    (inside / "dir" / "file").symlink_to(outside / "secret")
    (inside / "dir" / "folder").symlink_to(outside)
    tree.copy(("dir",), NEW)
    assert (inside / "new" / "folder").is_symlink()
    with pytest.raises(Outside):
        tree.read(("new", "folder", "secret"), most=100)
    no_secret_in(inside)


@pytest.mark.parametrize("resolve", [pytest.param(resolve, id=name) for name, resolve in RESOLVERS.items()])
def test_mount_points_and_magic_links_are_not_entered(resolve: resolving.Resolver) -> None:
    if not Path("/proc/self/root").exists():
        pytest.skip("no /proc here")
    root, proc = os.open("/", os.O_RDONLY), os.open("/proc", os.O_RDONLY)
    try:
        for directory, path in (
            (root, b"proc"),
            (root, b"proc/self"),
            (proc, b"self/root"),
            (proc, b"self/cwd"),
            (proc, b"self/root/etc"),
        ):
            with pytest.raises(OSError, match=r"."):
                os.close(resolve(directory, path))
        os.close(resolve(root, b"etc/../etc"))
    finally:
        os.close(root)
        os.close(proc)


# --- special files ---


@pytest.fixture
def specials(inside: Path) -> Iterator[list[str]]:
    os.mkfifo(inside / "fifo")
    server = socket.socket(socket.AF_UNIX)
    found = ["fifo"]
    if sys.platform == "linux":
        # A socket's path is short.
        directory = os.open(inside, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{directory}/socket")
        finally:
            os.close(directory)
        found.append("socket")
    if os.geteuid() == 0:
        try:
            os.mknod(inside / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            found.append("device")
        except PermissionError:
            pass
    for name in list(found):
        (inside / f"to_{name}").symlink_to(name)
        found.append(f"to_{name}")
    yield found
    server.close()


@pytest.mark.timeout(20)
def test_special_files_are_neither_opened_nor_waited_for(tree: Tree, inside: Path, specials: list[str], other: Tree) -> None:
    tree.write(A, b"alpha")
    for name in specials:
        for call in (
            lambda p: tree.read(p, most=10),
            lambda p: tree.write(p, b"x"),
            lambda p: tree.copy(p, NEW),
            lambda p: tree.copy(p, NEW, into=other),
        ):
            with pytest.raises(Unsupported):
                call((name,))
        assert tree.stat((name,), follow=True).kind == "other"
        if not name.startswith("to_"):
            with pytest.raises(Unsupported):
                tree.copy(A, (name,))
            with pytest.raises(Unsupported):
                tree.move(A, (name,))
            with pytest.raises(FileError):
                tree.list((name,))
    assert tree.usage().bytes == 5
    tree.copy((), ("all",), into=other)
    assert {entry.kind for entry in other.list(("all",))} == {"file", "link"}
    for name in specials:
        tree.delete((name,))
    assert [path.name for path in inside.iterdir()] == ["a"]


_LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.timeout(20)
@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_file_that_a_program_has_leased_is_not_waited_for(tree: Tree, inside: Path) -> None:
    tree.write(A, b"alpha")
    with running(_LEASE, str(inside / "a")):
        with pytest.raises(NotPermitted):
            tree.read(A, most=10)
        with pytest.raises(NotPermitted):
            tree.copy(A, NEW)
        tree.write(A, b"beta")
        assert tree.read(A, most=10) == b"beta"


# --- odd names and shapes ---


def test_names_that_are_not_unicode_can_be_seen_copied_and_deleted(tree: Tree, inside: Path) -> None:
    names = [b"new\nline", b"\xff\xfe", b"x" * 255, b"-rf", b" ", b"\xed\xa0\x80", "😀".encode() * 63]
    (inside / "dir").mkdir()
    for name in names:
        with open(os.path.join(os.fsencode(inside / "dir"), name), "wb"):  # noqa: PTH118, PTH123
            pass
        os.mkdir(os.path.join(os.fsencode(inside), name))  # noqa: PTH102, PTH118
    shown = [entry.name for entry in tree.list(("dir",))]
    assert len(shown) == len(names)
    assert {"new\nline", "\ufffd\ufffd", "x" * 255, " "} <= set(shown)
    "".join(shown).encode()
    assert len(list(tree.walk(("dir",)))) == len(names) - 2
    tree.copy(("dir",), NEW)
    assert sorted(os.listdir(os.fsencode(inside / "new"))) == sorted(names)  # noqa: PTH208
    tree.delete(("dir",), recursive=True)
    assert tree.read(("new", "new\nline"), most=1) == b""


@pytest.fixture
def removed_at_the_end(tree: Tree) -> Iterator[None]:
    """Pytest cannot remove very deep directories."""
    yield
    while not tree.remove():
        pass


def test_trees_deeper_than_any_path_are_counted_refused_and_removed(tree: Tree, inside: Path, removed_at_the_end: None) -> None:
    (inside / "dir").mkdir()
    descriptor = os.open(inside / "dir", os.O_RDONLY)
    for _ in range(500):
        os.mkdir("d" * 100, dir_fd=descriptor)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    for call in (lambda: list(tree.walk(())), lambda: tree.copy(("dir",), NEW)):
        with pytest.raises(TooMany, match="128 levels"):
            call()
    assert not any((inside.parent / "new").iterdir())
    assert not tree.usage().complete
    tree.delete(("dir",), recursive=True)
    while not tree.sweep():
        pass
    assert tree.usage().files == 0


@pytest.mark.slow
def test_a_directory_of_100_000_entries_is_bounded(tree: Tree, inside: Path) -> None:
    (inside / "dir").mkdir()
    for number in range(100_001):
        (inside / "dir" / str(number)).touch()
    for call in (
        lambda: tree.list(("dir",)),
        lambda: list(tree.walk(("dir",))),
        lambda: tree.copy(("dir",), NEW, most_files=1000),
    ):
        began = time.monotonic()
        with pytest.raises(TooMany):
            call()
        assert time.monotonic() - began < 30
    assert tree.usage().files == 100_002
    assert tree.usage(most=500).files == 500
    tree.delete(("dir",), recursive=True)
    assert tree.list(()) == []
    while not tree.remove(batch=20_000):
        pass
    assert not tree.directory.exists()


def test_closed_directories_of_the_own_user_are_counted_and_removed(
    tmp_path_factory: pytest.TempPathFactory, resolver: resolving.Resolver
) -> None:
    base = tmp_path_factory.mktemp("closed")
    base.chmod(0o777)
    above = [path for path in base.parents if path.owner() == base.owner()] if os.geteuid() == 0 else []
    modes = {path: path.stat().st_mode for path in above}
    as_root = os.geteuid() == 0
    try:
        if as_root:
            for path, mode in modes.items():
                path.chmod(mode | 0o011)
            os.seteuid(65534)
        tree = Tree(base / "workspace", ledger=Counted(), resolver=resolver)
        tree.create()
        for name, mode in (("none", 0), ("read_only", 0o555), ("no_entry", 0o444)):
            inner = tree.contents / "dir" / name / "inner"
            inner.mkdir(parents=True)
            (inner / "file").write_bytes(b"12345")
            inner.chmod(0o555)
            inner.parent.chmod(mode)
        tree.ledger.take(15, 10)
        with pytest.raises(FileError):
            tree.list(("dir", "none"))
        assert tree.usage().bytes == 15
        (tree.contents / "dir" / "none").chmod(0)
        tree.move(("dir", "read_only"), ("moved",))
        tree.delete(("dir",), recursive=True)
        assert not any((tree.directory / "trash").iterdir())
        tree.delete(("moved",), recursive=True)
        assert tree.remove()
    finally:
        if as_root:
            os.seteuid(0)
            for path, mode in modes.items():
                path.chmod(stat.S_IMODE(mode))


# --- exchanged while the server works ---


def _attempts(thorough: bool) -> int:
    return 5_000 if thorough else 250


THOROUGH = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("thorough", THOROUGH)
def test_a_directory_exchanged_for_a_link_leads_nowhere(
    tree: Tree, inside: Path, outside: Path, swapping: Swapping, thorough: bool
) -> None:
    (inside / "dir" / "folder").mkdir(parents=True)
    (inside / "dir" / "secret").write_bytes(b"inside")
    (inside / "dir" / "folder" / "secret").write_bytes(b"inside")
    (inside / "evil").symlink_to("../../../outside")
    tree.write(A, b"alpha")
    calls: list[Callable[[], object]] = [
        lambda: tree.read(("dir", "secret"), most=100),
        lambda: tree.read(("dir", "folder", "secret"), most=100),
        lambda: [entry.name for entry in tree.list(("dir",)) if entry.name == "secret" and entry.size > 10],
        lambda: tree.write(("dir", "folder", "secret"), b"inside"),
        lambda: tree.write(("dir", "w"), b"inside"),
        lambda: tree.write(("dir", "c"), b"inside", create_only=True),
        lambda: tree.make_directory(("dir", "m", "n"), parents=True),
        lambda: tree.copy(("dir", "secret"), ("copy",)),
        lambda: tree.copy(("dir", "folder"), ("copied",)),
        lambda: tree.copy(("dir",), ("whole",)),
        lambda: tree.copy(A, ("dir", "secret")),
        lambda: tree.copy(("copied",), ("dir", "folder")),
        lambda: tree.move(("copy",), ("dir", "secret")),
        lambda: tree.move(("copied",), ("dir", "folder")),
        lambda: tree.delete(("dir", "w")),
        lambda: tree.delete(("dir", "c")),
        lambda: tree.delete(("dir", "m"), recursive=True),
        lambda: [entry.size for path, entry in tree.walk(()) if path[-1] == "secret" and entry.size > 10],
        lambda: [sums for sums in [tree.usage()] if sums.bytes > 10**6],
    ]
    _under_attack(calls, {b"inside", b"alpha", None}, swapping, inside / "dir", inside / "evil", _attempts(thorough))
    no_secret_in(inside)


@pytest.mark.parametrize("thorough", THOROUGH)
def test_a_directory_exchanged_for_a_link_while_all_above_is_read_is_not_followed(
    tree: Tree, inside: Path, outside: Path, swapping: Swapping, thorough: bool
) -> None:
    (inside / "top" / "dir").mkdir(parents=True)
    (inside / "top" / "dir" / "secret").write_bytes(b"inside")
    (inside / "top" / "evil").symlink_to(outside)
    calls: list[Callable[[], object]] = [
        lambda: [path for path, _ in tree.walk(("top",)) if "folder" in path],
        lambda: tree.copy(("top",), ("whole",)),
        lambda: [path for path, _ in tree.walk(("whole",)) if "folder" in path],
        lambda: tree.read(("top", "dir", "secret"), most=100),
    ]
    _under_attack(calls, {b"inside", None}, swapping, inside / "top" / "dir", inside / "top" / "evil", _attempts(thorough))
    no_secret_in(inside)


@pytest.mark.parametrize("thorough", THOROUGH)
def test_a_file_exchanged_for_a_link_leads_nowhere(
    tree: Tree, inside: Path, outside: Path, swapping: Swapping, thorough: bool
) -> None:
    (inside / "dir").mkdir()
    (inside / "dir" / "file").write_bytes(b"inside")
    (inside / "dir" / "evil").symlink_to(outside / "secret")
    calls: list[Callable[[], object]] = [
        lambda: tree.read(("dir", "file"), most=100),
        lambda: tree.copy(("dir", "file"), ("copy",)),
        lambda: tree.copy(("dir",), ("whole",)),
        lambda: tree.write(("dir", "evil"), b"inside", create_only=True),
        lambda: tree.stat(("dir", "file"), follow=True).size == 6 or None,
    ]
    _under_attack(calls, {b"inside", None, True}, swapping, inside / "dir" / "file", inside / "dir" / "evil", _attempts(thorough))
    no_secret_in(inside)


@pytest.mark.timeout(60)
def test_a_file_exchanged_for_a_fifo_is_not_waited_for(tree: Tree, inside: Path, swapping: Swapping) -> None:
    (inside / "file").write_bytes(b"inside")
    os.mkfifo(inside / "fifo")
    calls: list[Callable[[], object]] = [
        lambda: tree.read(("file",), most=100),
        lambda: tree.copy(("file",), NEW),
    ]
    _under_attack(calls, {b"inside", None}, swapping, inside / "file", inside / "fifo", 250)


@pytest.mark.parametrize("thorough", THOROUGH)
def test_directories_exchanged_with_each_other_during_a_walk_lead_nowhere(
    tree: Tree, inside: Path, outside: Path, swapping: Swapping, thorough: bool
) -> None:
    # `..` of what is moved deeper is another directory than that through which the path came.
    (inside / "shallow").mkdir()
    (inside / "p" / "q" / "r" / "deep").mkdir(parents=True)
    (inside / "shallow" / "up").symlink_to("../../../../../outside/secret")
    (inside / "p" / "q" / "r" / "deep" / "up").symlink_to("../../../../../../../outside/secret")
    (inside / "secret").write_bytes(b"inside")
    calls: list[Callable[[], object]] = [
        lambda: tree.read(("shallow", "up"), most=100),
        lambda: tree.read(("p", "q", "r", "deep", "up"), most=100),
        lambda: len(list(tree.walk(()))) and None,
        lambda: tree.copy(("p",), NEW),
        lambda: tree.delete(NEW, recursive=True),
    ]
    _under_attack(calls, {None}, swapping, inside / "shallow", inside / "p" / "q" / "r" / "deep", _attempts(thorough))
    no_secret_in(inside)


def _under_attack(
    calls: list[Callable[[], object]], allowed: set[object], swapping: Swapping, first: Path, second: Path, attempts: int
) -> None:
    """Call each while the two names are exchanged. Every result is one of ``allowed``, or an error of the mechanism."""
    done = refused = 0
    with swapping(first, second):
        for number in range(100 * attempts):
            # On a busy machine it takes a while until the other process has its turn.
            if number >= attempts and done and refused:
                break
            try:
                result = calls[number % len(calls)]()
            except FileError:
                refused += 1
                continue
            done += 1
            assert result in ([], *allowed), result
    assert done
    assert refused
