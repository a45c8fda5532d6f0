"""Searching names and lines."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from sessions_app.workspace import globs, search
from sessions_app.workspace.errors import BadPattern, FileError, Missing, Outside
from sessions_app.workspace.search import Limits
from sessions_app.workspace.tree import Tree
from tests.workspace.files.conftest import SECRET, Swapping


@pytest.fixture(params=["ripgrep", "python"])
def engine(request: pytest.FixtureRequest) -> search.Engine:
    if request.param == "ripgrep" and shutil.which("rg") is None:
        pytest.skip("no ripgrep here")
    return search.ripgrep if request.param == "ripgrep" else search.python


@pytest.fixture
def filled(tree: Tree, inside: Path, outside: Path) -> Tree:
    files = {
        "README.md": "# Title\nneedle one\n",
        "src/main.py": "import os\n\nneedle = 1",
        "src/empty.py": "",
        "src/deep/other.py": "# Nothing\n# NEEDLE, Ä\n",
        ".git/config": "needle\n",
        "binary": "\0needle\n",
        "odd\nname": "needle\n",
    }
    for name, text in files.items():
        path = inside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    os.mkfifo(inside / "fifo")
    return tree


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", {"main.py", "src/x.py", "src/deep/y.py"}),
        ("/*.py", {"main.py"}),
        ("src/*.py", {"src/x.py"}),
        ("src/**", {"src", "src/x.py", "src/deep", "src/deep/y.py", "src/deep/z.txt"}),
        ("src/**/*.py", {"src/x.py", "src/deep/y.py"}),
        ("**/deep/*", {"src/deep/y.py", "src/deep/z.txt"}),
        ("*.{py,txt}", {"main.py", "src/x.py", "src/deep/y.py", "src/deep/z.txt"}),
        ("[xy].p?", {"src/x.py", "src/deep/y.py"}),
        ("main", set()),
    ],
)
def test_a_glob_pattern_selects_paths(pattern: str, paths: set[str]) -> None:
    every = ["main.py", "src", "src/x.py", "src/deep", "src/deep/y.py", "src/deep/z.txt"]
    matches = globs.matcher(pattern)
    assert {path for path in every if matches(tuple(path.split("/")))} == paths


@pytest.mark.parametrize("pattern", ["", "a" * 2000, "{a,b}" * 20])
def test_a_bad_glob_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        globs.matcher(pattern)


def test_no_glob_pattern_takes_long() -> None:
    began = time.process_time()
    for pattern in ("*a" * 120 + "b", "**/" * 200 + "b", "[" * 200, "?*" * 200):
        globs.matcher(pattern)(("a" * 250,) * 100)
    assert time.process_time() - began < 5


def test_names_are_found(filled: Tree) -> None:
    found = search.find_names(filled, "*.py")
    assert [("/".join(path), entry.kind) for path, entry in found.entries] == [
        ("src/deep/other.py", "file"),
        ("src/empty.py", "file"),
        ("src/main.py", "file"),
    ]
    assert not found.reached
    assert [path for path, _ in search.find_names(filled, "*.py", path=("src", "deep")).entries] == [("src", "deep", "other.py")]
    assert search.find_names(filled, "config").entries == []
    assert len(search.find_names(filled, "config", skip=frozenset()).entries) == 1
    assert search.find_names(filled, "secret").entries == []
    assert search.find_names(filled, "*", limits=Limits(matches=2)).reached == "matches"
    assert search.find_names(filled, "none", limits=Limits(files=2)).reached == "files"
    with pytest.raises(Missing):
        search.find_names(filled, "*", path=("none",))


def test_lines_are_found_with_their_numbers(filled: Tree, engine: search.Engine) -> None:
    found = search.find_lines(filled, "needle", engine=engine)
    assert [("/".join(line.path), line.number, line.text) for line in found.lines] == [
        ("README.md", 2, "needle one"),
        ("odd\nname", 1, "needle"),
        ("src/main.py", 3, "needle = 1"),
    ]
    assert not found.reached
    both = search.find_lines(filled, "needle.*", glob="*.py", ignore_case=True, engine=engine)
    assert [(line.path[-1], line.number) for line in both.lines] == [("other.py", 2), ("main.py", 3)]
    assert [line.text for line in search.find_lines(filled, r"N\w+, ä$", ignore_case=True, engine=engine).lines] == [
        "# NEEDLE, Ä"
    ]
    assert search.find_lines(filled, "server", engine=engine).lines == []
    assert search.find_lines(filled, "--files", engine=engine).lines == []


def test_the_lines_of_one_file_are_found_also_by_a_link_inside(filled: Tree, inside: Path, engine: search.Engine) -> None:
    (inside / "inner").symlink_to("src/main.py")
    for path in (("src", "main.py"), ("inner",)):
        found = search.find_lines_of_file(filled, "needle|os", path, engine=engine)
        assert [(line.path, line.number, line.text) for line in found.lines] == [(path, 1, "import os"), (path, 3, "needle = 1")]
    assert search.find_lines_of_file(filled, "needle", ("binary",), engine=engine).lines == []
    for path, error in ((("link",), Outside), (("folder", "secret"), Outside), (("none",), Missing)):
        with pytest.raises(error):
            search.find_lines_of_file(filled, "x", path, engine=engine)
    assert search.find_lines_of_file(filled, "x", ("fifo",), engine=engine).lines == []


def test_a_search_ends_at_its_limits(filled: Tree, inside: Path, engine: search.Engine) -> None:
    (inside / "long").write_text("x" * 100_000 + "\n" + "y\n" * 100)
    one = search.find_lines(filled, "x", glob="long", engine=engine, limits=Limits(line_bytes=50))
    assert [line.text for line in one.lines] == ["x" * 50]
    many = search.find_lines(filled, "y$", glob="long", engine=engine, limits=Limits(matches=10))
    assert (len(many.lines), many.lines[0].number, many.reached) == (10, 2, "matches")
    assert search.find_lines(filled, "q", engine=engine, limits=Limits(bytes=1000)).reached == "bytes"
    assert search.find_lines(filled, "q", engine=engine, limits=Limits(files=2)).reached == "files"


@pytest.mark.parametrize("expression", ["(", "[", "(?P<x", "", "a\nb", "x" * 2000])
def test_a_bad_expression_is_refused(filled: Tree, engine: search.Engine, expression: str) -> None:
    with pytest.raises(BadPattern):
        search.find_lines(filled, expression, engine=engine)


@pytest.mark.timeout(30)
def test_an_expression_that_never_ends_is_killed(filled: Tree, inside: Path) -> None:
    (inside / "a").write_text("a" * 100 + "!\n" + "filling\n" * 100_000)
    found = search.find_lines(filled, "^(a+)+$", engine=search.python, limits=Limits(seconds=0.5))
    assert found.reached == "seconds"


def test_a_search_under_attack_finds_nothing_outside(tree: Tree, inside: Path, outside: Path, swapping: Swapping) -> None:
    for name in ("dir", "deeper"):
        (inside / name).mkdir()
        (inside / name / "secret").write_bytes(b"inside")
    (inside / "evil").symlink_to(outside)
    (inside / "file").symlink_to(outside / "secret")
    with swapping(inside / "dir", inside / "evil"), swapping(inside / "deeper" / "secret", inside / "file"):
        for _ in range(25):
            try:
                found = search.find_lines(tree, ".")
            except FileError:
                continue
            assert SECRET.decode() not in {line.text for line in found.lines}
            assert all("folder" not in path for path, _ in search.find_names(tree, "*").entries)
