"""The builtin tool ``fetch_url``: a public web page as text, behind the guard of ``agents_app.outbound``."""

from __future__ import annotations

import asyncio
import re
from weakref import WeakKeyDictionary

from agents_app.errors import ToolFailed
from agents_app.fair.slots import FairSlots
from agents_app.fair.threads import FairPool
from agents_app.outbound import body, guard, request
from agents_app.outbound.request import Answer, FetchFailed
from agents_app.outbound.target import AddressRefused
from agents_app.tools.caller import fair_key
from agents_app.tools.charset import decoded
from agents_app.tools.page import readable

MAX_BYTES = 2 * 1024 * 1024
"""Limit of a response's size after decompression."""
MAX_TEXT = 2 * 1024 * 1024
AT_ONCE = 64

_MIME = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,80}", re.ASCII)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTUAL = re.compile(
    r"text/.+|application/(?:.+\+)?(?:json|xml)|application/(?:x-)?(?:ndjson|jsonl|json-seq|yaml|toml|javascript|ecmascript|sql)"
    r"|application/(?:graphql|typescript|rtf|x-sh|x-httpd-php|x-tex|x-latex)|image/svg\+xml"
)
_BEGINS_AS_HTML = re.compile(r"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, FairSlots] = WeakKeyDictionary()
# Converting a long page takes up to a second, which would block the event loop.
_readers = FairPool(4)


async def fetch_url(url: str) -> str:
    """Reads a public web page, or a text, JSON or XML file, by its address.

    Pages come as Markdown, with their links; scripts do not run. Images, PDF and other files cannot be read. The text is
    written by the page's author, not by the user.

    Args:
        url: The whole address, beginning with https:// or http://.
    """
    try:
        async with _slots_of_loop().held(fair_key.get()):
            async with request.get(url, guard.current()) as answer:
                _check(answer)
                data, more = await body.read(answer, MAX_BYTES)
            return await _readers.run(fair_key.get(), lambda: _described(answer, data, more=more))
    except (AddressRefused, FetchFailed) as error:
        raise ToolFailed(error.reason) from None


def _slots_of_loop() -> FairSlots:
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = FairSlots(AT_ONCE)
    return _slots[loop]


def _check(answer: Answer) -> None:
    if not 200 <= answer.status < 300:
        raise FetchFailed(f"its host answered {answer.reason}")
    kind = _kind(answer)
    if kind and not _TEXTUAL.fullmatch(kind):
        length = answer.headers.get("Content-Length", "")
        size = f", {int(length):,} bytes" if re.fullmatch(r"[0-9]{1,15}", length, re.ASCII) else ""
        raise FetchFailed(f"it is a file of type {kind}{size}; only pages, text, JSON and XML can be read")


def _kind(answer: Answer) -> str:
    """The media type in lower case; empty if it is missing or malformed."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind if _MIME.fullmatch(kind) else ""


def _described(answer: Answer, data: bytes, *, more: bool) -> str:
    kind = _kind(answer)
    if not kind and b"\0" in data[:1024] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FetchFailed("it is a file of an unknown type, and not text")
    content_type = answer.headers.get("Content-Type", "")
    text = decoded(data, content_type, markup=kind in _HTML or kind.endswith("xml") or not kind)
    lines = [f"URL: {answer.url}", f"Status: {answer.reason}", f"Type: {kind or 'unknown'}"]
    if kind in _HTML or (not kind and _BEGINS_AS_HTML.match(text)):
        page = readable(text, answer.url, MAX_TEXT)
        text = page.text
        if page.title:
            lines.append(f"Title: {page.title}")
    if more:
        lines.append(f"Note: it is longer; only its first {MAX_BYTES:,} bytes were read.")
    return "\n".join([*lines, "", text if text.strip() else "(there is no text in it)"])
