"""The contents of tool results by name, for clients that were shown only a reference (R156, R172, R339).

Nothing is stored for them: a name refers to a block of a call's result, which is stored with the call and counts as bytes of the
session.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from django.db.models.functions import Length

from agents_app import exact_json
from sessions_app.core.base import byte_budget
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import ContentNotFound, SessionNotFound
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import CallState, Session, ToolCall

PREFIX = "result-"
_NAME = re.compile(rf"{PREFIX}([0-9]{{1,5}})-(.+)")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*,(.*)", re.DOTALL)


def name_of(call: str, block: int) -> str:
    """The name of a block, by its index in the result."""
    return f"{PREFIX}{block}-{quote(call, safe='')}"


def is_name(name: str) -> bool:
    return name.startswith(PREFIX)


def read(caller: Caller, session_uri: str, name: str) -> tuple[bytes, str]:
    """A block's bytes and type. ContentNotFound if the caller sees no such session, call or block."""
    try:
        session = addresses.find(caller, session_uri)
    except SessionNotFound:
        raise ContentNotFound from None
    found = _NAME.fullmatch(name)
    call, index = (unquote(found[2]), int(found[1])) if found is not None else ("", 0)
    if UNSTORABLE.search(call) or name != name_of(call, index):
        raise ContentNotFound
    api_audit.read(caller, Action.TRANSCRIPT_READ, f"session {session.public_id}")
    blocks = blocks_of(_result(session, call))
    if index >= len(blocks):
        raise ContentNotFound
    return data_of(blocks[index])


def _result(session: Session, call: str) -> Any:
    """The result of a call, as long as clients see it."""
    rows = ToolCall.objects.filter(session=session, call_id=call, state__in=[CallState.DONE, CallState.REVIEW], outcome=None)
    size = rows.annotate(size=Length("result")).values_list("size", flat=True).first()
    # The text, its value, and the answer.
    byte_budget.reserve(6 * (size or 0))
    text = rows.values_list("result", flat=True).first()
    if text is None:
        raise ContentNotFound
    return exact_json.loads(text)


def blocks_of(content: Any) -> list[Mapping[str, Any]]:
    """A result as a list of blocks."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def data_of(block: Mapping[str, Any]) -> tuple[bytes, str]:
    """The bytes of a block that is in the result itself, and their type."""
    if block["type"] == "text":
        return block["text"].encode("utf-8", "surrogatepass"), "text/plain"
    url = _DATA_URL.fullmatch(block.get("url", ""))
    if url is None:
        # The image is at the address that clients were shown.
        raise ContentNotFound
    try:
        return base64.b64decode(url[2]), url[1] or "application/octet-stream"
    except binascii.Error:
        raise ContentNotFound from None
