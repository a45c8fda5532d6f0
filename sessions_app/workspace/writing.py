"""Writes files and makes directories. New ones are complete before they get their name in the tree."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from sessions_app.workspace.entries import charge, etag_of, kind_of
from sessions_app.workspace.errors import Changed, Exists, Missing, TooLarge, Unsupported
from sessions_app.workspace.failures import shown, translated
from sessions_app.workspace.ledger import Ledger, Reservation
from sessions_app.workspace.locking import locked
from sessions_app.workspace.paths import Path
from sessions_app.workspace.places import Descriptors, Place, token
from sessions_app.workspace.reading import ATTEMPTS, chunks, open_regular
from sessions_app.workspace.renaming import rename, rename_only

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_NEW_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755
_PIECE = 1024 * 1024
_TICK_NS = 1_000_000_000
_STEP_NS = 1_000


@dataclass(frozen=True, slots=True)
class Splice:
    """Where data is put into a file whose other bytes stay.

    ``position``: in bytes from the start; ``from_end``: back from the end. ``cuts``: what was behind the position is dropped.
    """

    position: int
    from_end: bool = False
    cuts: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """How a file is written.

    ``create_only``: only if nothing is there. ``splice``: None: the data is all of the file. ``if_match``: the `etag_of` the file
    that is there. ``most``: bytes of the whole file, for a splice.
    """

    create_only: bool = False
    splice: Splice | None = None
    if_match: str | None = None
    most: int | None = None

    @property
    def depends(self) -> bool:
        """Whether what is written depends on the file that is there: then nobody else may change it meanwhile."""
        return self.splice is not None or self.if_match is not None


def write(at: Descriptors, ledger: Ledger, path: Path, data: bytes | Iterable[bytes], wish: Wish) -> None:
    for _ in range(ATTEMPTS):
        with at.place(path, follow=not wish.create_only) as place, translated(path):
            at.check(place)
            with locked(at, place) if wish.depends else nullcontext():
                old = place.status_if_any()
                if wish.create_only and old is not None:
                    raise Exists(f"{shown(path)}: exists already")
                # The name became a link after it was resolved.
                if old is not None and stat.S_ISLNK(old.st_mode):
                    continue
                refuse_unless_file(old, path)
                if wish.if_match is not None and (old is None or etag_of(old) != wish.if_match):
                    raise Changed(f"{shown(path)}: was changed since")
                _replace(at, ledger, place, old, data, wish, path)
            return
    with translated(path):
        raise OSError(errno.ELOOP, "replaced by links again and again")


def _replace(
    at: Descriptors,
    ledger: Ledger,
    place: Place,
    old: os.stat_result | None,
    data: bytes | Iterable[bytes],
    wish: Wish,
    path: Path,
) -> None:
    with ExitStack() as stack:
        if wish.splice is not None:
            before: int | None = None
            if old is not None:
                before = open_regular(place)
                stack.callback(os.close, before)
            data = _spliced(before, data, wish.splice, wish.most, path)
        reservation = stack.enter_context(Reservation(ledger, credit=freed(old)))
        new = new_file(at, reservation, data, _FILE_MODE if old is None else old.st_mode, durable=True)
        with removed_on_failure(new), nullcontext() if wish.depends else locked(at, place):
            make_newer(new, place)
            (rename_only if wish.create_only else rename)(new, place)


def _spliced(before: int | None, data: bytes | Iterable[bytes], splice: Splice, most: int | None, path: Path) -> Iterator[bytes]:
    """The new content in pieces. ``before``: the descriptor of the file that is replaced."""
    size = 0 if before is None else os.fstat(before).st_size
    if splice.position > size:
        raise Unsupported(f"{shown(path)}: position {splice.position:,} is outside of the file, which has {size:,} bytes")
    pieces = list(_pieces(data)) if isinstance(data, bytes) else list(data)
    start = size - splice.position if splice.from_end else splice.position
    rest = 0 if splice.cuts else size - start
    total = start + sum(map(len, pieces)) + rest
    if most is not None and total > most:
        raise TooLarge(f"{shown(path)}: {total:,} bytes; the limit is {most:,}")

    def content() -> Iterator[bytes]:
        if before is not None:
            yield from chunks(before, 0, start)
        yield from pieces
        if before is not None:
            yield from chunks(before, start, rest)

    return content()


def make_newer(new: Place, place: Place) -> None:
    """Let a new file have a later time than the one that it is about to replace.

    A tick of the clock can be longer than a write, and a freed inode is used again at once: without this, two versions of a file
    could look the same.
    """
    old = place.status_if_any()
    if old is None or not stat.S_ISREG(old.st_mode):
        return
    status = new.status()
    # A time that a program has set far ahead differs anyway.
    if 0 <= old.st_mtime_ns - status.st_mtime_ns < _TICK_NS:
        times = (status.st_atime_ns, old.st_mtime_ns + _STEP_NS)
        os.utime(new.name, ns=times, dir_fd=new.parent, follow_symlinks=False)


def refuse_unless_file(status: os.stat_result | None, path: Path) -> None:
    """A directory or special file is not replaced by a file."""
    kind = None if status is None else kind_of(status.st_mode)
    if kind == "directory":
        raise OSError(errno.EISDIR, "a directory")
    if kind == "other":
        raise Unsupported(f"{shown(path)}: neither a regular file nor a directory: it is not replaced")


def freed(status: os.stat_result | None) -> tuple[int, int]:
    """The bytes and files that replacing or removing this entry frees. Other names of a file keep its bytes."""
    if status is None:
        return 0, 0
    return (charge(status) if status.st_nlink == 1 else 0), 1


def new_file(
    at: Descriptors, reservation: Reservation, data: bytes | Iterable[bytes], mode: int, *, durable: bool = False
) -> Place:
    """A complete file in `NEW`. Nothing is left of it if this fails."""
    place = Place(at.new, token())
    fill(at, place, reservation, data, mode, durable=durable)
    return place


def fill(
    at: Descriptors, place: Place, reservation: Reservation, data: bytes | Iterable[bytes], mode: int, *, durable: bool = False
) -> None:
    """Write a new file at a place in `NEW`, where no sandbox interferes."""
    reservation.use(0, 1)
    descriptor = os.open(place.name, _CREATE, 0o600, dir_fd=place.parent)
    with removed_on_failure(place):
        try:
            for piece in _pieces(data) if isinstance(data, bytes) else data:
                reservation.use(len(piece))
                _write_all(descriptor, piece)
            _finish(at, descriptor, mode)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _pieces(data: bytes) -> Iterator[bytes]:
    if len(data) <= _PIECE:
        yield data
        return
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _finish(at: Descriptors, descriptor: int, mode: int) -> None:
    """Owner and permissions, without the bits that let a program run as its owner."""
    if at.owner is not None and os.geteuid() == 0:
        os.fchown(descriptor, *at.owner)
    os.fchmod(descriptor, mode & 0o777)


@contextmanager
def removed_on_failure(place: Place) -> Iterator[None]:
    """Remove the file at a place in `NEW` if the block fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(place.name, dir_fd=place.parent)
        raise


def new_directory(at: Descriptors, place: Place, reservation: Reservation, mode: int = _DIRECTORY_MODE) -> int:
    """Make an empty directory at a place in `NEW`; its descriptor. It is always open to its owner."""
    reservation.use(0, 1)
    os.mkdir(place.name, 0o700, dir_fd=place.parent)
    descriptor = os.open(place.name, _OPEN_NEW_DIRECTORY, dir_fd=place.parent)
    try:
        _finish(at, descriptor, mode | 0o700)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_directory(at: Descriptors, ledger: Ledger, path: Path, *, parents: bool) -> None:
    if parents:
        for end in range(1, len(path) + 1):
            if not _is_directory(at, path[:end]):
                # Another one that is made at the same moment is as good.
                with suppress(Exists):
                    _make_one(at, ledger, path[:end])
        with at.directory(path, readable=False):
            return
    _make_one(at, ledger, path)


def _is_directory(at: Descriptors, path: Path) -> bool:
    try:
        with at.directory(path, readable=False):
            return True
    except Missing:
        return False


def _make_one(at: Descriptors, ledger: Ledger, path: Path) -> None:
    with at.place(path, follow=False) as place, translated(path):
        at.check(place)
        if place.status_if_any() is not None:
            raise Exists(f"{shown(path)}: exists already")
        with Reservation(ledger) as reservation:
            new = Place(at.new, token())
            os.close(new_directory(at, new, reservation))
            try:
                rename_only(new, place)
            except BaseException:
                os.rmdir(new.name, dir_fd=new.parent)
                raise
