"""Files of a backup: written once, readable by their owner alone, with size and SHA-256."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agenthost.backups.errors import BackupError

CHUNK = 1024 * 1024
_PROGRESS_SECONDS = 5.0

Report = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a backup, by its path in the backup's directory."""

    file: str
    bytes: int
    sha256: str


class Progress:
    """Reports how much was done, every few seconds."""

    def __init__(self, what: str, report: Report) -> None:
        self._what, self._report = what, report
        self._bytes = 0
        self._shown = time.monotonic()

    def add(self, count: int) -> None:
        self._bytes += count
        if time.monotonic() - self._shown >= _PROGRESS_SECONDS:
            self._shown = time.monotonic()
            self._report(f"{self._what}: {self._bytes / 1e6:,.0f} MB …")


class Writer:
    """A new file that counts and hashes what is written to it."""

    def __init__(self, folder: Path, file: str, progress: Progress) -> None:
        path = folder / file
        # One by one: the mode is not that of parents.
        for above in [*path.relative_to(folder).parents][-2::-1]:
            (folder / above).mkdir(mode=0o700, exist_ok=True)
        self._name, self._progress = file, progress
        self._file: IO[bytes] = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
        self._hash, self._bytes = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)
        self._progress.add(len(data))
        return len(data)

    def close(self) -> Part:
        """On disk when this returns."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return Part(self._name, self._bytes, self._hash.hexdigest())

    def abandon(self) -> None:
        self._file.close()


@contextmanager
def new_file(folder: Path, file: str, progress: Progress) -> Iterator[Writer]:
    """A writer that is closed if the block fails; at its end the block calls ``close``."""
    writer = Writer(folder, file, progress)
    try:
        yield writer
    finally:
        writer.abandon()


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    while data := file.read(CHUNK):
        yield data


def check(folder: Path, part: Part, progress: Progress) -> None:
    """BackupError if the file is missing or is not what was written."""
    path = folder / part.file
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            for data in chunks(file):
                digest.update(data)
                size += len(data)
                progress.add(len(data))
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}. Use another copy of the backup.") from None
    if (size, digest.hexdigest()) != (part.bytes, part.sha256):
        raise BackupError(
            f"{path} is damaged: it has {size:,} bytes and SHA-256 {digest.hexdigest()[:16]}…; the manifest says"
            f" {part.bytes:,} bytes and {part.sha256[:16]}…. Use another copy of the backup."
        )


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
