"""Request headers: ``Idempotency-Key`` and ``X-Turn-Deadline``."""

from __future__ import annotations

import re
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from sessions_app.core.records.idempotency import IdempotencyKey

VISIBLE = re.compile(r"[\x21-\x7e]{1,255}")
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


def idempotency_key(request: Request, body: Any) -> IdempotencyKey | None:
    """``Idempotency-Key`` (A98)."""
    given = request.headers.get("Idempotency-Key")
    if given is None:
        return None
    if not VISIBLE.fullmatch(given):
        raise ParseError("The header Idempotency-Key must have 1 to 255 visible ASCII characters.")
    return IdempotencyKey.of(request.path, given, body)


def deadline(request: Request) -> float | None:
    """``X-Turn-Deadline`` (A123), in seconds."""
    given = request.headers.get("X-Turn-Deadline")
    if given is None:
        return None
    if not SECONDS.fullmatch(given.strip()) or float(given) <= 0:
        raise ParseError("The header X-Turn-Deadline must be a number of seconds greater than 0, such as 30 or 2.5.")
    return float(given)
