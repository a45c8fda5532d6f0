"""Markdown of models and users as HTML that is safe by construction.

The library only parses. Every tag of the result is written here, around escaped text: there is no raw HTML, an image is a link
with its description, and a link has a scheme from a short list. Nothing is loaded and no script can occur, whatever the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

_SCHEMES = frozenset({"http", "https", "mailto"})
_LONGEST_ADDRESS = 2000
_MOST_NESTED = 20

# "js-default" has neither raw HTML nor plugins; tables and strikethrough are what models write.
_parser = MarkdownIt("js-default", {"html": False, "linkify": False, "typographer": False, "maxNesting": _MOST_NESTED})

_TAGS = {
    "paragraph": "p",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "em": "em",
    "strong": "strong",
    "s": "s",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
}
"""A heading of a message is a heading below the page's own, so it is written as a paragraph with a class."""


def render(text: str) -> SafeString:
    """The HTML of a text. A text that cannot be parsed is shown as it is."""
    try:
        tokens = _parser.parse(text)
    except (RecursionError, ValueError, IndexError):
        return mark_safe(f"<p>{escape(text)}</p>")  # noqa: S308
    # Every part is a tag from this module or escaped text.
    return mark_safe("".join(_rendered(tokens)))  # noqa: S308


def _rendered(tokens: Sequence[Token]) -> list[str]:
    found: list[str] = []
    links: list[bool] = []
    for token in tokens:
        name, _, edge = token.type.rpartition("_")
        if token.type == "inline":
            found += _rendered(token.children or [])
        elif token.type in ("text", "text_special"):
            found.append(escape(token.content))
        elif token.type == "softbreak":
            found.append("\n")
        elif token.type == "hardbreak":
            found.append("<br>")
        elif token.type == "hr":
            found.append("<hr>")
        elif token.type == "code_inline":
            found.append(f"<code>{escape(token.content)}</code>")
        elif token.type in ("fence", "code_block"):
            found.append(f'<pre class="ah-code"><code>{escape(token.content)}</code></pre>')
        elif token.type == "image":
            found.append(_image(token))
        elif name == "heading":
            found.append('<p class="ah-heading">' if edge == "open" else "</p>")
        elif token.type == "link_open":
            address = _safe(str(token.attrGet("href") or ""))
            links.append(bool(address))
            if address:
                found.append(f'<a href="{escape(address)}" rel="noopener noreferrer nofollow" target="_blank">')
        elif token.type == "link_close":
            if links and links.pop():
                found.append("</a>")
        elif name in _TAGS and edge in ("open", "close"):
            if token.hidden:
                continue
            found.append(f"<{_TAGS[name]}>" if edge == "open" else f"</{_TAGS[name]}>")
        else:
            # A kind that this module does not know: its text, and nothing of its form.
            found.append(escape(token.content))
    return found


def _image(token: Token) -> str:
    """An image of another host is not loaded, which would tell the host who reads: its description is a link."""
    text = escape(token.content or "image")
    address = _safe(str(token.attrGet("src") or ""))
    if not address:
        return f"[{text}]"
    return f'[image: <a href="{escape(address)}" rel="noopener noreferrer nofollow" target="_blank">{text}</a>]'


def _safe(address: str) -> str:
    """The address if a click on it is harmless; otherwise an empty text."""
    if len(address) > _LONGEST_ADDRESS:
        return ""
    try:
        scheme = urlsplit(address).scheme.lower()
    except ValueError:
        return ""
    return address if scheme in _SCHEMES else ""
