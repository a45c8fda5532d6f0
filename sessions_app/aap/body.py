"""Request bodies: from bytes to a JSON object, strictly (A4)."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.request import UnreadablePostError
from rest_framework.exceptions import ParseError, UnsupportedMediaType

from agents_app import exact_json
from sessions_app.aap.problems import BodyTooLarge
from sessions_app.core.content import MAX_LEVELS, unstorable
from sessions_app.core.errors import Fault, InvalidInput


def read_object(request: HttpRequest, *, most: int | None = None, required: bool = True) -> dict[str, Any]:
    """The body's object. Not ``required``: an empty body is an empty object. ``most``: the bytes this caller may send."""
    raw = _bytes(request, most)
    if not raw.strip():
        if required:
            raise ParseError("A body is needed.")
        return {}
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("identity", ""):
        raise UnsupportedMediaType("", detail="The body must not be compressed.")
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("", detail="The body must be application/json.")
    return parse_object(raw)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``; ParseError if it is not JSON, InvalidInput if it is no object or cannot be stored."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError("The body is not UTF-8.") from error
    try:
        value = exact_json.loads(text)
    except exact_json.NotJSON as error:
        place = _too_deep(text) if isinstance(error.__cause__, RecursionError) else None
        if place is not None:
            raise InvalidInput([Fault(place, f"is nested more than {MAX_LEVELS} levels deep")]) from error
        raise ParseError("The body is not JSON.") from error
    if not isinstance(value, dict):
        raise InvalidInput([Fault((), "must be an object")], "The body must be a JSON object.")
    if _may_be_unstorable(text) and (faults := unstorable(value, ())):
        raise InvalidInput(faults)
    return value


def _bytes(request: HttpRequest, most: int | None) -> bytes:
    limit = settings.AGENTHOST_MAX_BODY_BYTES if most is None else min(most, settings.AGENTHOST_MAX_BODY_BYTES)
    try:
        raw = request.read(limit + 1)
    except UnreadablePostError as error:
        raise ParseError("The body ended early.") from error
    if len(raw) > limit:
        raise BodyTooLarge(limit)
    return raw


# Bad characters can only come in as escapes; so most bodies need no walk through their values.
_BAD_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


def _may_be_unstorable(text: str) -> bool:
    return text.count("[") + text.count("{") > MAX_LEVELS or _BAD_ESCAPE.search(text) is not None


_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]')


def _too_deep(text: str) -> tuple[str | int, ...] | None:
    """Where JSON too deep for the parser passes the limit; None if its brackets do not even match.

    Steps from mark to mark: neither the depth nor the parser's own limit matters here.
    """
    place: tuple[str | int, ...] | None = None
    keys: list[str | int] = []
    closings: list[str] = []
    name = '""'
    for found in _MARK.finditer(text):
        mark = found.group()
        if mark in "[{":
            if len(closings) == MAX_LEVELS and place is None:
                place = tuple(keys)
            closings.append("]" if mark == "[" else "}")
            keys.append(0 if mark == "[" else "")
        elif mark in "]}":
            if not closings or closings.pop() != mark:
                return None
            keys.pop()
        elif not keys:
            continue
        elif mark == ",":
            last = keys[-1]
            keys[-1] = last + 1 if isinstance(last, int) else last
        elif mark == ":":
            try:
                keys[-1] = str(exact_json.loads(name))
            except exact_json.NotJSON:
                return None
        else:
            name = mark
    return None if closings else place
