"""Reads the members of tar, tar.gz and zip files that strangers made, within limits of memory, size and time."""

from __future__ import annotations

import gzip
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal

from sessions_app.workspace.errors import BadArchive, FileError, TooLarge, TooMany, TooSlow
from sessions_app.workspace.paths import Path, resolve

_CHUNK = 256 * 1024
_MOST_EXTENSION = 256 * 1024
"""Bytes of a header that is longer than usual (names, attributes). `tarfile` reads it into memory."""
_MOST_DIRECTORY = 32 * 1024 * 1024
"""Bytes of a zip file's list of members, which `zipfile` reads into memory."""
_MOST_LINK = 4096
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may unpack to."""

    files: int = 100_000
    bytes: int = 1024**3
    seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Member:
    """A file, directory or link of an archive. Read a file's content before the next member is asked for."""

    path: Path
    kind: Literal["file", "directory", "link"]
    mode: int = 0o644
    target: str = ""
    content: Iterable[bytes] = ()


class Meter:
    """Counts what is unpacked, and raises when a limit is reached."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._until = time.monotonic() + limits.seconds
        self._files = self._bytes = 0

    def member(self) -> None:
        self._files += 1
        if self._files > self._limits.files:
            raise TooMany(f"the archive has more than {self._limits.files:,} members")
        self._in_time()

    def content(self, data: bytes) -> bytes:
        self._bytes += len(data)
        if self._bytes > self._limits.bytes:
            raise TooLarge(f"the archive unpacks to more than {self._limits.bytes:,} bytes")
        self._in_time()
        return data

    def _in_time(self) -> None:
        if time.monotonic() > self._until:
            raise TooSlow(f"unpacking the archive takes more than {self._limits.seconds:g} s")

    def most_bytes_with_headers(self) -> int:
        return self._limits.bytes + 8 * 1024 * self._limits.files + 1024 * 1024


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except FileError:
        raise
    except _UNREADABLE as error:
        raise BadArchive(f"the archive cannot be read: {type(error).__name__}") from None


def members(file: IO[bytes], limits: Limits) -> Generator[Member, None, None]:
    """The members of an archive in a seekable file. Raises ``BadArchive``, or the error of the limit that is exceeded.

    Refused are links that lead out, hard links, special files, sparse files, names that lead out or are not valid Unicode,
    and encrypted members.
    """
    meter = Meter(limits)
    start = file.read(4)
    file.seek(0)
    if start[:2] == b"PK":
        yield from _of_zip(file, meter)
    elif start[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield from _of_tar(unpacked, meter)
    else:
        yield from _of_tar(file, meter)


def _path(name: str) -> Path:
    if name.startswith("/"):
        raise BadArchive("a member of the archive has an absolute name")
    if ".." in name.split("/"):
        raise BadArchive("a member of the archive has '..' in its name")
    try:
        return resolve((), name.split("/"))
    except FileError as error:
        raise BadArchive(f"a member of the archive has a name that is refused: {error}") from None


def _link(path: Path, target: str) -> Member:
    if not path or not target or target.startswith("/"):
        raise BadArchive("a link in the archive is absolute or empty")
    try:
        resolve(path[:-1], target.split("/"))
    except FileError:
        raise BadArchive("a link in the archive leads out of it") from None
    return Member(path, "link", target=target)


# --- tar ---


class _Header(tarfile.TarInfo):
    """A header that is refused before `tarfile` reads into memory what it announces."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _EXTENSIONS and header.size > _MOST_EXTENSION):
            raise BadArchive("the archive has a header of a size that is refused")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise BadArchive("the archive has a sparse file")
        return header

    def _proc_gnusparse_10(self, *_arguments: Any) -> None:
        """Called by `tarfile`, whose own reads a list of any length into memory."""
        raise BadArchive("the archive has a sparse file")


def forget_headers(archive: tarfile.TarFile) -> None:
    """Otherwise `tarfile` keeps all of them in memory."""
    archive.members.clear()  # type: ignore[attr-defined]  # typeshed does not have it


class _Bounded:
    """A stream that ends with an error at a limit."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, meter: Meter) -> None:
        self._file, self._rest, self._meter = file, meter.most_bytes_with_headers(), meter

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._rest -= len(data)
        if self._rest < 0:
            raise TooLarge("the archive unpacks to more bytes than the limit")
        self._meter.content(b"")
        return data


def _of_tar(file: IO[bytes] | gzip.GzipFile, meter: Meter) -> Iterator[Member]:
    with _readable():
        stream: Any = _Bounded(file, meter)
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, bufsize=_CHUNK) as archive:
            while (header := archive.next()) is not None:
                forget_headers(archive)
                meter.member()
                yield _tar_member(archive, header, meter)


def _tar_member(archive: tarfile.TarFile, header: tarfile.TarInfo, meter: Meter) -> Member:
    path = _path(header.name)
    if header.isdir():
        return Member(path, "directory", header.mode)
    if header.issym():
        return _link(path, header.linkname)
    content = archive.extractfile(header) if header.isreg() and not header.issparse() else None
    if content is None or not path:
        raise BadArchive("the archive has a hard link, a special file or a sparse file")
    return Member(path, "file", header.mode, content=_content(content, header.size, meter))


def _content(file: IO[bytes], size: int, meter: Meter) -> Iterator[bytes]:
    with _readable():
        while size and (data := meter.content(file.read(min(size, _CHUNK)))):
            size -= len(data)
            yield data
    if size:
        raise BadArchive("the archive ends in the middle of a file")


# --- zip ---


def _of_zip(file: IO[bytes], meter: Meter) -> Iterator[Member]:
    with _readable():
        _check_directory(file)
        with zipfile.ZipFile(file) as archive:
            for header in archive.infolist():
                meter.member()
                yield _zip_member(archive, header, meter)


def _check_directory(file: IO[bytes]) -> None:
    """The list of members has to be small enough to be read into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 65_557))
    end = file.read(65_557)
    file.seek(0)
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or len(end) < at + 22:
        raise BadArchive("not a zip file, or one that ends too early")
    if b"PK\x06\x07" in end[max(0, at - 20) : at]:
        raise BadArchive("a zip file of more than 65,535 members or 4 GB: use tar")
    if int.from_bytes(end[at + 12 : at + 16], "little") > _MOST_DIRECTORY:
        raise TooMany(f"the zip file's list of members has more than {_MOST_DIRECTORY:,} bytes")


def _zip_member(archive: zipfile.ZipFile, header: zipfile.ZipInfo, meter: Meter) -> Member:
    mode = header.external_attr >> 16
    kind = stat.S_IFMT(mode)
    path = _path(header.filename)
    if header.is_dir() or kind == stat.S_IFDIR:
        return Member(path, "directory", stat.S_IMODE(mode) or 0o755)
    if header.flag_bits & 1 or header.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadArchive("the zip file has a member that is encrypted, or compressed in another way than deflate")
    if kind == stat.S_IFLNK:
        if header.file_size > _MOST_LINK:
            raise BadArchive("a link in the archive is too long")
        return _link(path, archive.open(header).read(_MOST_LINK).decode())
    if kind not in (0, stat.S_IFREG) or not path:
        raise BadArchive("the zip file has a special file")
    return Member(path, "file", stat.S_IMODE(mode) or 0o644, content=_zip_content(archive, header, meter))


def _zip_content(archive: zipfile.ZipFile, header: zipfile.ZipInfo, meter: Meter) -> Iterator[bytes]:
    with _readable(), archive.open(header) as file:
        while data := meter.content(file.read(_CHUNK)):
            yield data
