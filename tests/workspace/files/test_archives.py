"""Exports of trees, and archives of strangers that fill a tree."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions_app.workspace import archive
from sessions_app.workspace.archive import Limits
from sessions_app.workspace.entries import Usage
from sessions_app.workspace.errors import BadArchive, Exists, FileError, NoRoom, TooLarge, TooMany, TooSlow
from sessions_app.workspace.tree import Tree
from tests.workspace.files.conftest import SECRET, Counted, Swapping, everything_in, no_secret_in


def _entry(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644
) -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(name)
    header.type, header.linkname, header.mode, header.size = kind, target, mode, len(data)
    return header, data


def _tar(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as file:
        for header, data in entries:
            file.addfile(header, io.BytesIO(data))
    return out.getvalue()


def _zip(*entries: tuple[str, bytes, int]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data, mode in entries:
            header = zipfile.ZipInfo(name)
            header.external_attr = mode << 16
            header.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(header, data)
    return out.getvalue()


REPOSITORY = _tar(
    _entry("./", kind=tarfile.DIRTYPE),
    _entry("./src", kind=tarfile.DIRTYPE, mode=0o755),
    _entry("./src/main.py", b"print()"),
    _entry("./run", b"#!/bin/sh", mode=0o4755),
    _entry("docs/é/" + "long" * 40, b"text"),
    _entry("src/link", kind=tarfile.SYMTYPE, target="../run"),
)
ZIPPED = _zip(
    ("src/", b"", stat.S_IFDIR | 0o755),
    ("src/main.py", b"print()", stat.S_IFREG | 0o644),
    ("run", b"#!/bin/sh", stat.S_IFREG | 0o755),
    ("docs/é/" + "long" * 40, b"text", 0),
    ("src/link", b"../run", stat.S_IFLNK | 0o777),
)


@pytest.mark.parametrize("data", [REPOSITORY, gzip.compress(REPOSITORY), ZIPPED], ids=["tar", "tar.gz", "zip"])
@pytest.mark.parametrize("path", [(), ("a", "repository")])
def test_an_archive_fills_a_tree(tree: Tree, inside: Path, ledger: Counted, data: bytes, path: tuple[str, ...]) -> None:
    tree.make_directory(("a",))
    archive.seed(tree, io.BytesIO(data), path=path)
    root = inside.joinpath(*path)
    assert (root / "src" / "main.py").read_bytes() == b"print()"
    assert (root / "docs" / "é" / ("long" * 40)).read_bytes() == b"text"
    assert stat.S_IMODE((root / "run").stat().st_mode) == 0o755
    assert tree.read((*path, "src", "link"), most=100) == b"#!/bin/sh"
    assert tree.usage() == Usage(ledger.size, ledger.files)
    assert not any((inside.parent / "new").iterdir())


BOMB = gzip.compress(_tar(_entry("zeros", bytes(30_000_000))))
BAD: dict[str, bytes] = {
    "nothing": b"",
    "text": b"hello" * 1000,
    "half a gzip": gzip.compress(REPOSITORY)[:-200],
    "half a tar": _tar(_entry("a", b"x" * 100_000))[:50_000],
    "half a zip": ZIPPED[:-30],
    "parents": _tar(_entry("../evil", b"x")),
    "inner parents": _tar(_entry("a/../../evil", b"x")),
    "absolute": _tar(_entry("/evil", b"x")),
    "link out": _tar(_entry("l", kind=tarfile.SYMTYPE, target="../outside")),
    "absolute link": _tar(_entry("l", kind=tarfile.SYMTYPE, target="/etc")),
    "hard link": _tar(_entry("a", b"x"), _entry("l", kind=tarfile.LNKTYPE, target="a")),
    "hard link out": _tar(_entry("l", kind=tarfile.LNKTYPE, target="/etc/passwd")),
    "through a link": _tar(
        _entry("d", kind=tarfile.DIRTYPE), _entry("l", kind=tarfile.SYMTYPE, target="d"), _entry("l/evil", b"x")
    ),
    "over a link": _tar(_entry("d", b"x"), _entry("l", kind=tarfile.SYMTYPE, target="d"), _entry("l", b"x")),
    "below a file": _tar(_entry("a", b"x"), _entry("a/b", b"x")),
    "twice": _tar(_entry("a", b"x"), _entry("a", b"x")),
    "fifo": _tar(_entry("f", kind=tarfile.FIFOTYPE)),
    "device": _tar(_entry("f", kind=tarfile.CHRTYPE)),
    "long name": _tar(_entry("n" * 256, b"x")),
    "deep": _tar(_entry("d/" * 200 + "x", b"x")),
    "no Unicode": _tar(_entry("\udcff", b"x"), form=tarfile.GNU_FORMAT),
    "zip parents": _zip(("../evil", b"x", 0)),
    "zip absolute": _zip(("/evil", b"x", 0)),
    "zip link out": _zip(("l", b"../../outside", stat.S_IFLNK | 0o777)),
    "zip device": _zip(("l", b"", stat.S_IFCHR | 0o777)),
    "many long headers": _tar(_entry("x" * 200_000, b"x")),
}


def _long_header() -> bytes:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 10**9
    return gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + bytes(10**6))


def _negative_size() -> bytes:
    header = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 12
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(2048)


def _sparse() -> bytes:
    header = tarfile.TarInfo("x")
    header.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "x",
        "GNU.sparse.realsize": str(2**40),
    }
    header.size = 512
    return _tar((header, b"1\n0\n0\n".ljust(512, b"\0")))


BAD |= {"long header": _long_header(), "negative size": _negative_size(), "sparse": _sparse()}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.timeout(20)
def test_a_bad_archive_changes_nothing(tree: Tree, inside: Path, outside: Path, ledger: Counted, name: str) -> None:
    tree.write(("old",), b"x")
    before = everything_in(inside.parent), ledger.size, ledger.files
    if name == "nothing":
        archive.seed(tree, io.BytesIO(_tar()))
    with pytest.raises(BadArchive) as raised:
        archive.seed(tree, io.BytesIO(BAD[name]))
    assert str(inside) not in str(raised.value)
    assert (everything_in(inside.parent), ledger.size, ledger.files) == before


@pytest.mark.parametrize(
    ("data", "limits", "error"),
    [
        (BOMB, Limits(bytes=10**6), TooLarge),
        (_zip(("zeros", bytes(30_000_000), 0)), Limits(bytes=10**6), TooLarge),
        (gzip.compress(_tar(*(_entry(str(number)) for number in range(500)))), Limits(files=100), TooMany),
        (_zip(*((str(number), b"", 0) for number in range(500))), Limits(files=100), TooMany),
        (REPOSITORY, Limits(seconds=0), TooSlow),
    ],
)
def test_an_archive_over_a_limit_changes_nothing(
    tree: Tree, inside: Path, ledger: Counted, data: bytes, limits: Limits, error: type[FileError]
) -> None:
    before = everything_in(inside.parent)
    with pytest.raises(error):
        archive.seed(tree, io.BytesIO(data), limits)
    assert everything_in(inside.parent) == before
    assert (ledger.size, ledger.files) == (0, 0)


def test_an_archive_over_the_quota_changes_nothing(tree: Tree, inside: Path, ledger: Counted) -> None:
    ledger.most = (10**6, 100)
    with pytest.raises(NoRoom):
        archive.seed(tree, io.BytesIO(BOMB))
    assert (list(inside.iterdir()), ledger.size, ledger.files) == ([], 0, 0)


@pytest.mark.parametrize("path", [(), ("sub",)])
def test_an_archive_replaces_nothing(tree: Tree, inside: Path, ledger: Counted, path: tuple[str, ...]) -> None:
    tree.write(("run",), b"old")
    tree.make_directory(("sub",))
    before = everything_in(inside.parent), ledger.size, ledger.files
    with pytest.raises(Exists):
        archive.seed(tree, io.BytesIO(REPOSITORY), path=path)
    assert (everything_in(inside.parent), ledger.size, ledger.files) == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_are_unpacked_or_refused(tree: Tree, data: st.DataObject) -> None:
    original = data.draw(st.sampled_from([REPOSITORY[:4096], gzip.compress(REPOSITORY), ZIPPED, _sparse()]))
    changed = bytearray(original)
    for _ in range(data.draw(st.integers(1, 8))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for path in tree.list(()):
        tree.delete((path.name,), recursive=True)
    try:
        archive.seed(tree, io.BytesIO(bytes(changed)), Limits(seconds=5, bytes=10**7))
    except FileError:
        assert tree.list(()) == []


def test_a_folder_of_the_operator_fills_a_tree(tree: Tree, inside: Path, outside: Path, ledger: Counted) -> None:
    template = outside.parent / "template"
    (template / "src").mkdir(parents=True)
    (template / "src" / "run").write_bytes(b"x")
    (template / "src" / "run").chmod(0o755)
    (template / "out").symlink_to(outside)
    archive.seed_folder(tree, template)
    archive.seed_folder(tree, template, path=("again",))
    assert os.access(inside / "again" / "src" / "run", os.X_OK)
    with pytest.raises(FileError):
        tree.list(("out",))
    assert tree.usage() == Usage(ledger.size, ledger.files)
    with pytest.raises(Exists):
        archive.seed_folder(tree, template)


def test_an_export_fills_another_tree_with_the_same(tree: Tree, other: Tree, inside: Path, outside: Path) -> None:
    archive.seed(tree, io.BytesIO(REPOSITORY))
    expected = everything_in(inside)
    (inside / "out").symlink_to(outside)
    (inside / "up").symlink_to("../new")
    (inside / b"\xff".decode("utf-8", "surrogateescape")).write_bytes(b"x")
    os.mkfifo(inside / "fifo")
    out = io.BytesIO()
    archive.export(tree, out)
    archive.seed(other, io.BytesIO(out.getvalue()))
    assert everything_in(other.contents) == expected
    part = io.BytesIO()
    archive.export(tree, part, path=("src",))
    with tarfile.open(fileobj=io.BytesIO(part.getvalue())) as file:
        # The link's target is not in it.
        assert file.getnames() == ["main.py"]


@pytest.mark.parametrize("limits", [Limits(files=2), Limits(bytes=10)])
def test_an_export_over_a_limit_is_no_complete_archive(tree: Tree, limits: Limits) -> None:
    archive.seed(tree, io.BytesIO(REPOSITORY))
    out = io.BytesIO()
    with pytest.raises((TooMany, TooLarge)):
        archive.export(tree, out, limits=limits)
    assert not out.getvalue().endswith(bytes(1024))


def test_an_export_under_attack_contains_nothing_from_outside(
    tree: Tree, inside: Path, outside: Path, swapping: Swapping
) -> None:
    for name in ("dir", "deeper"):
        (inside / name).mkdir()
        (inside / name / "secret").write_bytes(b"inside")
    (inside / "evil").symlink_to(outside)
    (inside / "file").symlink_to(outside / "secret")
    with swapping(inside / "dir", inside / "evil"), swapping(inside / "deeper" / "secret", inside / "file"):
        for _ in range(60):
            out = io.BytesIO()
            archive.export(tree, out)
            assert SECRET not in out.getvalue()
    no_secret_in(inside)


def test_a_file_that_shrinks_while_it_is_exported_ends_with_zeros(tree: Tree, inside: Path) -> None:
    tree.write(("a",), b"x" * 1_000_000)
    tree.write(("b",), b"end")

    class Shrinking(io.BytesIO):
        def write(self, data: object) -> int:
            os.truncate(inside / "a", 10)
            return super().write(data)  # type: ignore[arg-type]  # what it is given

    out = Shrinking()
    archive.export(tree, out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as file:
        sizes: dict[str, int] = {header.name: header.size for header in file}
    assert sizes == {"a": 1_000_000, "b": 3}
