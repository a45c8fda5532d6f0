"""The embedded server's own files: its data directory, its database, and the secrets it makes on its first start.

Only the user that runs the server can read them, whatever the umask is and whatever they were before.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def kept(directory: Path, name: str, make: Callable[[], str]) -> str:
    """What the file holds; made on the first call. Two processes that start together get the same."""
    path = directory / name
    try:
        close_directory(directory)
        if not path.exists():
            # Written whole beside its place and then linked: no process ever reads half a secret, and
            # the link of the second process fails, so that the first one's secret stands.
            handle, draft = tempfile.mkstemp(dir=directory, prefix=f".{name}-")
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(make() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                _place(Path(draft), path)
            finally:
                Path(draft).unlink(missing_ok=True)
        _tighten(path, 0o600)
        held = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: {path} cannot be read or made: {error.strerror}. Give the directory to the user that runs the"
            " server, or name another."
        ) from None
    except UnicodeDecodeError:
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: the file {name} there is damaged: it is not text. Restore it from a backup."
        ) from None
    if not held:
        raise ImproperlyConfigured(f"AGENTHOST_VAR_DIR: the file {name} there is empty; restore it, or delete it to start anew.")
    return held


def close_directory(directory: Path) -> None:
    """Make AGENTHOST_VAR_DIR if it is missing, and close it to other users."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: {directory} cannot be made: {error.strerror}. Name a directory that this user may write to."
        ) from None
    # A shared directory, like /tmp, belongs to everybody.
    if not directory.stat().st_mode & stat.S_ISVTX:
        _tighten(directory, 0o700)


def close_database(path: Path) -> None:
    """Make an empty SQLite file if there is none, and close it to other users with its companions.

    SQLite gives the files -wal and -shm the mode of the database when it makes them.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
            with contextlib.suppress(FileNotFoundError):
                _tighten(path.with_name(name), 0o600)
    except OSError as error:
        raise ImproperlyConfigured(f"The database {path} cannot be opened for writing: {error.strerror}.") from None


def _tighten(path: Path, mode: int) -> None:
    """Take away what ``mode`` does not give. Files of another user are left as they are: only that user may change them."""
    found = path.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & ~mode:
        path.chmod(stat.S_IMODE(found.st_mode) & mode)


def new_secret() -> str:
    return secrets.token_urlsafe(48)


def new_sealing_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def _place(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    except OSError:
        # Some mounted file systems know no links; there the first start is not safe against a second one.
        draft.replace(path)
