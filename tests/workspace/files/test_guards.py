"""A tree with a guard: what it refuses is not read, changed, copied, moved, deleted, listed or searched, by any path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sessions_app.workspace import paths, resolving
from sessions_app.workspace.errors import FileError, Refused
from sessions_app.workspace.search import find_lines, find_lines_of_file, find_names
from sessions_app.workspace.tree import Tree
from tests.workspace.files.conftest import Swapping


@dataclass
class Denying:
    """Refuses what is at or below these paths."""

    denied: set[paths.Path] = field(default_factory=set)
    asked: set[paths.Path] = field(default_factory=set)

    def check(self, path: paths.Path) -> None:
        if self.hides(path):
            raise Refused(None)
        if any(path[: len(each)] == each for each in self.asked):
            raise Refused(path)

    def hides(self, path: paths.Path) -> bool:
        return any(path[: len(each)] == each for each in self.denied)


@pytest.fixture
def guarded(tree: Tree, resolver: resolving.Resolver) -> Tree:
    files = {"secret/key": "the key", "open/a.txt": "text", "open/deep/b.txt": "more text", "asked/c.txt": "text"}
    for name, text in files.items():
        path = tree.contents / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    links = {"link": "secret", "open/key": "../secret/key", "way": "open/../secret/key", "chain": "link", "hop": "asked/c.txt"}
    for name, target in links.items():
        (tree.contents / name).symlink_to(target)
    return Tree(tree.directory, resolver=resolver, guard=Denying({("secret",)}, {("asked",)}))


def state(tree: Tree) -> dict[str, str]:
    return {str(path.relative_to(tree.contents)): path.read_text() for path in tree.contents.rglob("*") if path.is_file()}


ATTEMPTS: dict[str, Callable[[Tree], Any]] = {
    "read": lambda tree: tree.read(("secret", "key"), most=100),
    "read what is missing": lambda tree: tree.read(("secret", "none"), most=100),
    "read by a link to the directory": lambda tree: tree.read(("link", "key"), most=100),
    "read by a link to the file": lambda tree: tree.read(("open", "key"), most=100),
    "read by a link with dots": lambda tree: tree.read(("way",), most=100),
    "read by a chain": lambda tree: tree.read(("chain", "key"), most=100),
    "stat": lambda tree: tree.stat(("chain", "key"), follow=True),
    "list": lambda tree: tree.list(("secret",)),
    "list by a link": lambda tree: tree.list(("link",)),
    "write": lambda tree: tree.write(("secret", "key"), b"x"),
    "write what is new": lambda tree: tree.write(("link", "new"), b"x"),
    "write by a link": lambda tree: tree.write(("open", "key"), b"x"),
    "create": lambda tree: tree.write(("link", "new"), b"x", create_only=True),
    "make a directory": lambda tree: tree.make_directory(("link", "new")),
    "copy from": lambda tree: tree.copy(("link", "key"), ("stolen",)),
    "copy a linked file": lambda tree: tree.copy(("open", "key"), ("stolen",)),
    "copy the directory": lambda tree: tree.copy(("secret",), ("stolen",)),
    "copy all": lambda tree: tree.copy((), ("open", "all"), into=tree),
    "copy into": lambda tree: tree.copy(("open", "a.txt"), ("link", "a.txt")),
    "move from": lambda tree: tree.move(("link", "key"), ("stolen",)),
    "move the directory": lambda tree: tree.move(("secret",), ("stolen",)),
    "move into": lambda tree: tree.move(("open", "a.txt"), ("secret", "a.txt")),
    "delete": lambda tree: tree.delete(("link", "key")),
    "delete the directory": lambda tree: tree.delete(("secret",), recursive=True),
    "search the file": lambda tree: find_lines_of_file(tree, "key", ("open", "key")),
    "search below": lambda tree: find_lines(tree, "key", path=("link",)),
    "find below": lambda tree: find_names(tree, "*", path=("secret",)),
    "what has to be asked for": lambda tree: tree.read(("hop",), most=100),
}


@pytest.mark.parametrize("attempt", list(ATTEMPTS))
def test_no_path_reaches_what_the_guard_refuses(guarded: Tree, attempt: str) -> None:
    before = state(guarded)
    with pytest.raises(FileError):
        ATTEMPTS[attempt](guarded)
    assert state(guarded) == before


def test_the_refusal_names_the_real_path_only_if_asking_can_help(guarded: Tree) -> None:
    with pytest.raises(Refused) as failed:
        guarded.read(("hop",), most=100)
    assert failed.value.path == ("asked", "c.txt")
    with pytest.raises(Refused) as failed:
        guarded.read(("open", "key"), most=100)
    assert failed.value.path is None


def test_a_directory_with_a_refused_entry_is_not_copied_moved_replaced_or_deleted(
    tree: Tree, resolver: resolving.Resolver
) -> None:
    for name in ("all/deep/.env", "all/a", "plain/b"):
        (tree.contents / name).parent.mkdir(parents=True, exist_ok=True)
        (tree.contents / name).write_text("text")
    guard = Denying({("all", "deep", ".env"), ("copy", "b")})
    guarded = Tree(tree.directory, resolver=resolver, guard=guard)
    before = state(tree)
    for attempt in (
        lambda: guarded.copy(("all",), ("other",)),
        lambda: guarded.move(("all",), ("other",)),
        lambda: guarded.copy(("plain",), ("all",)),
        lambda: guarded.move(("plain",), ("all",)),
        lambda: guarded.delete(("all",), recursive=True),
        # Its entry would get a name that is refused.
        lambda: guarded.copy(("plain",), ("copy",)),
        lambda: guarded.move(("plain",), ("copy",)),
    ):
        with pytest.raises(Refused):
            attempt()  # type: ignore[no-untyped-call]  # a list of lambdas
        assert state(tree) == before


def test_lists_and_searches_leave_out_what_is_refused(guarded: Tree) -> None:
    assert [entry.name for entry in guarded.list(())] == ["asked", "chain", "hop", "link", "open", "way"]
    # Where a link leads is not reported if it leads to something refused.
    assert {entry.name: entry.leads_to for entry in guarded.list(("open",))}["key"] not in ("file", "directory")
    assert {path for path, _ in find_names(guarded, "*.txt").entries} == {
        ("open", "a.txt"),
        ("open", "deep", "b.txt"),
        ("asked", "c.txt"),
    }
    found = find_lines(guarded, "key|text")
    assert {line.path for line in found.lines} == {("open", "a.txt"), ("open", "deep", "b.txt")}
    assert found.refused == 1


def test_what_the_guard_permits_is_used_as_without_one(guarded: Tree) -> None:
    guarded.write(("open", "new.txt"), b"new")
    guarded.make_directory(("made", "deep"), parents=True)
    guarded.copy(("open", "deep"), ("made", "copy"))
    guarded.move(("open", "a.txt"), ("made", "a.txt"))
    guarded.delete(("made", "copy"), recursive=True)
    assert guarded.read(("open", "new.txt"), most=10) == b"new"
    assert guarded.read(("made", "a.txt"), most=10) == b"text"


def test_a_link_that_is_swapped_in_a_loop_never_shows_the_refused_file(guarded: Tree, swapping: Swapping) -> None:
    first, second = guarded.contents / "swapped", guarded.contents / "second"
    first.symlink_to("open/a.txt")
    second.symlink_to("secret/key")
    seen = set()
    with swapping(first, second):
        for number in range(30_000):
            # The program that swaps may get no time for a while.
            if number >= 300 and b"text" in seen:
                break
            try:
                seen.add(guarded.read(("swapped",), most=100))
            except FileError:
                seen.add(b"")
    assert seen <= {b"text", b""}
    assert b"text" in seen


def test_a_directory_that_was_moved_out_of_the_tree_is_refused(guarded: Tree, tmp_path: Path) -> None:
    with guarded.open() as at, at.place(("open", "a.txt"), follow=True) as place:
        (guarded.contents / "open").rename(tmp_path / "elsewhere")
        with pytest.raises(Refused):
            at.check(place)
