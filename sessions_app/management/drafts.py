"""Output files that get their name when they are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.core.management.base import CommandError


@contextmanager
def draft(path: Path) -> Iterator[IO[bytes]]:
    """Write to ``path`` with ``.part`` behind its name, on disk and renamed at the end of the block; removed if that fails."""
    part = path.with_name(f"{path.name}.part")
    try:
        try:
            with part.open("wb") as file:
                yield file
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
