"""Local secrets and file permissions of the embedded server: data directory, SQLite database, generated secrets.

Only the user that runs the server can read these files, whatever the umask and their earlier permissions.
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


def read_or_create(directory: Path, name: str, generate: Callable[[], str]) -> str:
    """The secret in the file; generated on the first call. Two processes that start together get the same one."""
    path = directory / name
    try:
        restrict_directory(directory)
        if not path.exists():
            # Written to a temporary file and then linked, so that no process reads half a secret. The link of
            # a second process fails, so that both use the first one's secret.
            handle, draft = tempfile.mkstemp(dir=directory, prefix=f".{name}-")
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(generate() + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                _link(Path(draft), path)
            finally:
                Path(draft).unlink(missing_ok=True)
        _restrict(path, 0o600)
        secret = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: {path} cannot be read or created: {error.strerror}. Make the user that runs the server the"
            " owner of the directory, or configure another directory."
        ) from None
    except UnicodeDecodeError:
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: the file {name} is damaged: it is not ASCII text. Restore it from a backup."
        ) from None
    if not secret:
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: the file {name} is empty. Restore it from a backup, or delete it to generate a new secret."
        )
    return secret


def restrict_directory(directory: Path) -> None:
    """Create AGENTHOST_VAR_DIR if it is missing, and remove the access of other users."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(
            f"AGENTHOST_VAR_DIR: {directory} cannot be created: {error.strerror}. Configure another directory."
        ) from None
    # Shared directories such as /tmp (sticky bit) stay as they are.
    if not directory.stat().st_mode & stat.S_ISVTX:
        _restrict(directory, 0o700)


def restrict_database(path: Path) -> None:
    """Create an empty SQLite file if there is none, and remove the access of other users to it and its companion files.

    SQLite creates the files -wal and -shm with the mode of the database.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
            with contextlib.suppress(FileNotFoundError):
                _restrict(path.with_name(name), 0o600)
    except OSError as error:
        raise ImproperlyConfigured(f"The database {path} cannot be opened for writing: {error.strerror}.") from None


def _restrict(path: Path, mode: int) -> None:
    """Remove permissions that ``mode`` does not include. Skips files of other users, whose mode this user cannot change."""
    status = path.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & ~mode:
        path.chmod(stat.S_IMODE(status.st_mode) & mode)


def new_secret() -> str:
    return secrets.token_urlsafe(48)


def new_sealing_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def _link(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    except OSError:
        # Some mounted file systems have no hard links. Two first starts at the same time are not safe there.
        draft.replace(path)
