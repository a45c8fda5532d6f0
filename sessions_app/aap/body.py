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
from sessions_app.core.base.content import MAX_LEVELS, unstorable
from sessions_app.core.base.errors import Fault, InvalidInput


def read_object(request: HttpRequest, *, most: int | None = None, required: bool = True) -> dict[str, Any]:
    """Parse the body. Not ``required``: an empty body is an empty object. ``most``: the bytes this caller may send."""
    raw = _bytes(request, most)
    if not raw.strip():
        if required:
            raise ParseError("The request needs a body: a JSON object.")
        return {}
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("identity", ""):
        raise UnsupportedMediaType("", detail="The body is compressed (Content-Encoding). Send it uncompressed.")
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("", detail="The body must be application/json.")
    return parse_object(raw)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object. ParseError if ``raw`` is not JSON, InvalidInput if it is no object or cannot be stored."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError("The body is not UTF-8 text.") from error
    excess = exact_json.excess(raw, members=exact_json.MAX_MEMBERS, levels=MAX_LEVELS)
    if excess == "unclosed":
        raise ParseError("The body is not valid JSON.")
    if excess == "members":
        raise InvalidInput([Fault((), f"has more than {exact_json.MAX_MEMBERS:,} members in its lists and objects")])
    try:
        value = exact_json.loads(text)
    except exact_json.NotJSON as error:
        if excess is None or not isinstance(error.__cause__, RecursionError):
            raise ParseError("The body is not valid JSON.") from error
    if excess == "levels":
        place = exact_json.place_of_level(text, MAX_LEVELS + 1)
        raise InvalidInput([Fault(place, f"is nested more than {MAX_LEVELS} levels deep")])
    if not isinstance(value, dict):
        raise InvalidInput([Fault((), "must be an object")], "The body must be a JSON object.")
    if _BAD_ESCAPE.search(text) is not None and (faults := unstorable(value, ())):
        raise InvalidInput(faults)
    return value


def _bytes(request: HttpRequest, most: int | None) -> bytes:
    limit = settings.AGENTHOST_MAX_BODY_BYTES if most is None else min(most, settings.AGENTHOST_MAX_BODY_BYTES)
    try:
        raw = request.read(limit + 1)
    except UnreadablePostError as error:
        raise ParseError("The body ended before its announced length.") from error
    if len(raw) > limit:
        raise BodyTooLarge(limit)
    return raw


# Only an escape can bring such a character into a parsed value, so most bodies need no walk through their values.
_BAD_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
