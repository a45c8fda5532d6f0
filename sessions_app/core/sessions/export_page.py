"""A session's export as one HTML page, which needs nothing else and runs nothing.

Safe by construction: every text passes ``_text``, which escapes it; images are shown only if they are inline and of a checked
format; and the page's Content-Security-Policy allows its own style sheet and inline images, nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from agents_app import images

Record = dict[str, Any]

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 50rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 1.5rem 0 .25rem }
pre, .text { white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0 }
pre { font: .85rem/1.4 ui-monospace, monospace; border: 1px solid #8886; border-radius: .4rem; padding: .5rem }
article { border-left: .25rem solid #8886; padding: 0 0 0 1rem; margin: 1rem 0 }
article.user { border-color: #2a7 } article.assistant { border-color: #46c } article.cut { opacity: .6 }
img { max-width: 100% } dt { font-weight: 600 } dd { margin: 0 0 .5rem } .note { opacity: .75; font-size: .9rem }
""".strip()
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
_INLINE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
# No SVG: it is a document, with its own links and styles.


def page(records: Iterable[Record]) -> Iterator[bytes]:
    """The page of a session's records (exporting.records without files), in pieces."""
    yield _head().encode()
    for record in records:
        if (shown := _shown(record)) != "":
            yield shown.encode()
    yield b"</main></body></html>\n"


def _head() -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_text(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>Exported session</title><style>{_STYLE}</style></head><body><main>"
    )


def _shown(record: Record) -> str:
    match record["type"]:
        case "export":
            return f'<p class="note">Exported from {_text(record["tenant"])} at {_text(record["at"])}.</p>'
        case "session":
            return _session(record)
        case "message":
            return _message(record)
        case "tool_call" if record["decidedBy"] or record["reason"]:
            decided = (
                f"{record['name']} ({record['toolCallId']}): {record['state']}, decided by {record['decidedBy'] or 'nobody'}"
            )
            return f'<p class="note">{_text(decided)}{_text(": " + record["reason"] if record["reason"] else "")}</p>'
        case "form":
            return _folded(
                f"Form: {record['response'] or 'open'}", _pre({"form": record["document"], "answers": record["answers"]})
            )
        case "summary":
            return _folded(f"Summary of the messages up to {record['coversThrough']}", _pre(record["summary"] or "left out"))
        case _:
            return ""


def _session(record: Record) -> str:
    agent = record["agent"]
    facts = {"Session": record["sessionId"], "Agent": agent["name"], "Created": record["createdAt"], "Used": record["modifiedAt"]}
    listed = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items())
    settings = {name: agent[name] for name in ("options", "tools") if agent.get(name)}
    return f"<h1>{_text(record['title'] or 'Session without a title')}</h1><dl>{listed}</dl>" + (
        _folded("Settings", _pre(settings)) if settings else ""
    )


def _message(record: Record) -> str:
    role = str(record["role"])
    known = role if role in ("user", "assistant", "tool", "system") else "other"
    is_cut = " cut" if record["cutAt"] else ""
    content = record["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    inner = "".join(_block(block) for block in blocks) if isinstance(blocks, list) else _pre(blocks)
    if known in ("tool", "system"):
        inner = _folded("Result" if known == "tool" else "Instructions", inner)
    title = f"{role} {record.get('toolCallId', '')}".strip() + (" (truncated away)" if is_cut else "")
    head = f'<h2>{_text(title)} <span class="note">{_text(record["createdAt"])}</span></h2>'
    return f'<article class="{known}{is_cut}">{head}{inner}</article>'


def _block(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return f'<div class="text">{_text(text)}</div>'
        case {"type": "thinking", "thinking": str(text)}:
            return _folded("Thinking", f'<div class="text">{_text(text)}</div>')
        case {"type": "tool_use", "name": str(name)}:
            return _folded(f"Calls {name} ({block.get('toolCallId', '')})", _pre(block.get("input")))
        case {"type": "image", "url": str(url)}:
            return _image(url)
        case _:
            return _pre(block)


def _image(url: str) -> str:
    """Other images are shown as text: loading one would tell its host who reads the page."""
    if _INLINE.fullmatch(url) is not None:
        try:
            images.read(url)
        except images.BadImage:
            pass
        else:
            return f'<p><img src="{_text(url)}" alt="An image of this message"></p>'
    return f'<p class="note">Image, not shown: {_text(url[:2000])}</p>'


def _folded(title: str, inner: str) -> str:
    return f"<details><summary>{_text(title)}</summary>{inner}</details>"


def _pre(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return f"<pre>{_text(text)}</pre>"


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)
