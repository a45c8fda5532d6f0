"""Trees on a real file system, for both resolvers, beside a directory that nothing in them may reach."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from sessions_app.workspace import resolving
from sessions_app.workspace.errors import NoRoom
from sessions_app.workspace.tree import Tree

SECRET = b"only the server may read this"
RESOLVERS = {"openat2": resolving.by_kernel, "by names": resolving.by_names}
Swapping = Callable[..., AbstractContextManager[None]]


class Counted:
    """A ledger that counts, and refuses what exceeds its limits."""

    def __init__(self, size: int = 10**15, files: int = 10**9) -> None:
        self.most = (size, files)
        self.size = self.files = 0

    def take(self, size: int, files: int) -> None:
        if self.size + size > self.most[0] or self.files + files > self.most[1]:
            raise NoRoom("the quota is reached")
        self.size += size
        self.files += files

    def give(self, size: int, files: int) -> None:
        self.size -= size
        self.files -= files
        assert self.size >= 0
        assert self.files >= 0


@pytest.fixture(params=list(RESOLVERS))
def resolver(request: pytest.FixtureRequest) -> resolving.Resolver:
    chosen = RESOLVERS[request.param]
    if chosen is resolving.by_kernel and resolving.usual() is not resolving.by_kernel:
        pytest.skip("this kernel has no openat2")
    return chosen


@pytest.fixture
def ledger() -> Counted:
    return Counted()


@pytest.fixture
def tree(tmp_path: Path, resolver: resolving.Resolver, ledger: Counted) -> Tree:
    made = Tree(tmp_path / "tenant" / "workspace", ledger=ledger, resolver=resolver)
    made.create()
    return made


@pytest.fixture
def other(tmp_path: Path, resolver: resolving.Resolver) -> Tree:
    """Another workspace, without a quota."""
    made = Tree(tmp_path / "tenant" / "other", resolver=resolver)
    made.create()
    return made


@pytest.fixture
def inside(tree: Tree) -> Path:
    """The directory that a sandbox sees, to do there what a sandbox can do."""
    return tree.contents


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory of the server. Fails the test if anything in it changes."""
    directory = tmp_path / "outside"
    (directory / "folder").mkdir(parents=True)
    (directory / "secret").write_bytes(SECRET)
    (directory / "folder" / "secret").write_bytes(SECRET)
    before = everything_in(directory)
    yield directory
    assert everything_in(directory) == before


@pytest.fixture(autouse=True)
def _closes_its_descriptors() -> Iterator[None]:
    before = _descriptors()
    yield
    assert _descriptors() <= before, "descriptors were left open"


def _descriptors() -> int:
    """How many files and pipes are open. Sockets are other threads': a tree opens none."""
    found = 0
    for name in os.listdir("/dev/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            mode = os.fstat(int(name)).st_mode
            found += stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
    return found


def everything_in(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Kinds, modes and contents of all files."""
    return {
        str(path.relative_to(directory)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in [directory, *directory.rglob("*")]
    }


def no_secret_in(directory: Path) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                assert SECRET not in path.read_bytes()


@pytest.fixture
def swapping() -> Swapping:
    """Another process that exchanges two names in a loop, as a hostile sandbox does."""
    return _swapping


_LOOP = textwrap.dedent("""
    import ctypes, os, sys
    from sessions_app.workspace.renaming import _RENAMEAT2
    first, second = map(os.fsencode, sys.argv[1:])
    call, number = ctypes.CDLL(None).syscall, _RENAMEAT2.get(os.uname().machine)
    print("ready", flush=True)
    while True:
        if number is None or call(number, -100, first, -100, second, 2):
            try:
                os.rename(first, first + b".t")
                os.rename(second, first)
                os.rename(first + b".t", second)
            except OSError:
                pass
""")


@contextmanager
def _swapping(first: Path, second: Path) -> Iterator[None]:
    with running(_LOOP, str(first), str(second)):
        yield


@contextmanager
def running(code: str, *arguments: str) -> Iterator[None]:
    """A Python program that works until the block ends. It prints a line when it has begun."""
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, cwd=root)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
        assert process.poll() is None, "the other process has ended too early"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
