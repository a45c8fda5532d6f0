"""Secrets that the embedded server makes for itself on its first start, kept in files only its user can read."""

from __future__ import annotations

import base64
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def kept(directory: Path, name: str, make: Callable[[], str]) -> str:
    """What the file holds; made on the first call. Two processes that start together get the same."""
    path = directory / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
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
        held = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"AGENTHOST_VAR_DIR: {name} cannot be kept there: {error.strerror}.") from None
    if not held:
        raise ImproperlyConfigured(f"AGENTHOST_VAR_DIR: the file {name} there is empty; restore it, or delete it to start anew.")
    return held


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
