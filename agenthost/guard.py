"""The ASGI layer before Django."""

from __future__ import annotations

import re
import secrets

_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def sane_request_id(value: str) -> bool:
    return _SANE_REQUEST_ID.fullmatch(value) is not None


def new_request_id() -> str:
    return f"req_{secrets.token_urlsafe(15)}"
