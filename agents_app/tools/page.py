"""Converts a web page to Markdown for a model: title, headings, paragraphs, lists, tables, code and links.

Scripts, styles, navigation, form choices and hidden elements are left out: hidden text is a common place for instructions
to a model that its user never sees.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from agents_app.tools.markup import End, Start, tokens

MAX_LINK = 2_000
_MAX_INDENT = 8

_LEFT_OUT = frozenset(
    {"script", "style", "template", "svg", "math", "nav", "iframe", "object", "canvas", "select", "datalist", "textarea"}
    | {"noembed", "noframes", "audio", "video", "map", "embed", "applet"}
)
_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"})
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_PARAGRAPHS = frozenset(
    {"p", "ul", "ol", "dl", "table", "pre", "blockquote", "section", "article", "main", "header", "footer", "aside", "figure"}
    | {"details", "fieldset", "form", "address", "hgroup", "body", "listing", "xmp", "plaintext", *_HEADINGS}
)
_LINES = frozenset(
    {"div", "li", "dt", "dd", "tr", "caption", "figcaption", "summary", "legend", "center", "option", "thead", "tbody", "tfoot"}
    | {"dialog", "search", "menu", "dir", "html", "head", "noscript"}
)
_BLOCKS = _PARAGRAPHS | _LINES | {"td", "th"}
# The end tag of one of these closes all elements inside; end tags of others have no effect across these.
_SPECIAL = _BLOCKS | _LEFT_OUT | {"button", "title"}
_VERBATIM = frozenset({"pre", "listing", "xmp", "plaintext"})
# Start tags that imply end tags: the elements that they close, and the elements that limit the search.
_CELLS = frozenset({"td", "th"})
_ROWS = _CELLS | {"tr"}
_GROUPS = _ROWS | {"thead", "tbody", "tfoot", "caption"}
_IMPLIED_ENDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), frozenset({"ul", "ol", "menu", "dir"})),
    "dt": (frozenset({"dt", "dd"}), frozenset({"dl"})),
    "dd": (frozenset({"dt", "dd"}), frozenset({"dl"})),
    "td": (_CELLS, frozenset({"table", "tr"})),
    "th": (_CELLS, frozenset({"table", "tr"})),
    "tr": (_ROWS, frozenset({"table"})),
    "thead": (_GROUPS, frozenset({"table"})),
    "tbody": (_GROUPS, frozenset({"table"})),
    "tfoot": (_GROUPS, frozenset({"table"})),
    "option": (frozenset({"option"}), frozenset({"select"})),
    "a": (frozenset({"a"}), frozenset({"table", "td", "th"})),
}
_PARAGRAPH_LIMITS = frozenset({"table", "td", "th", "caption", "object", "template", "button"})
_HIDING_STYLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")


@dataclass(slots=True)
class _Element:
    name: str
    hidden: bool
    link: str = ""
    start: tuple[int, int] = (0, 0)
    """Of a link: the number of its first line, and the number of pieces in that line before it."""


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    text: str


def readable(page: str, url: str, limit: int) -> Page:
    """The page's title and text; stops reading when the text has ``limit`` characters."""
    reader = _Reader(url, limit)
    for token in tokens(page):
        match token:
            case Start():
                reader.start(token.name, token.attributes)
            case End():
                reader.end(token.name)
            case _:
                reader.text(token)
        if reader.full:
            break
    return reader.page()


@dataclass(slots=True)
class _Reader:
    url: str
    limit: int
    title: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    line: list[str] = field(default_factory=list)
    size: int = 0
    gap: bool = False
    prefix: str = ""
    hidden: int = 0
    verbatim: int = 0
    counters: list[int | None] = field(default_factory=list)
    stack: list[_Element] = field(default_factory=list)
    places: dict[str, list[int]] = field(default_factory=dict)
    """The stack positions of the elements of each name, so that nothing searches a deep stack."""
    special: list[int] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return self.size > self.limit

    def page(self) -> Page:
        self._break()
        if self.verbatim:
            self.lines.append("```")
        return Page(" ".join("".join(self.title).split())[:500], "\n".join(self.lines)[: self.limit].strip("\n"))

    # --- tokens ---

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._close_implied(name)
        if name in _VOID:
            if not self.hidden and not _is_hidden(name, attributes):
                self._void(name, attributes)
            return
        element = _Element(name, _is_hidden(name, attributes))
        if not self.hidden:
            if not element.hidden:
                self._open(element, attributes)
            elif name == "nav":
                self._gap()
        self.hidden += element.hidden
        self.places.setdefault(name, []).append(len(self.stack))
        if name in _SPECIAL:
            self.special.append(len(self.stack))
        self.stack.append(element)

    def end(self, name: str) -> None:
        if name == "br":
            return self.start("br", {})
        places = self.places.get(name)
        # An end tag without a start tag has no effect, and </b> does not close a block inside of <b>.
        if not places or (name not in _SPECIAL and self.special and self.special[-1] > places[-1]):
            return None
        self._pop_to(places[-1])
        return None

    def text(self, text: str) -> None:
        if self.places.get("title") and not self.places.get("svg"):
            self.title.append(text[: self.limit])
        elif not self.hidden:
            if self.verbatim:
                self._add_verbatim(text)
            else:
                self._add(_BLANKS.sub(" ", text))

    # --- elements ---

    def _close_implied(self, name: str) -> None:
        paragraphs = self.places.get("p")
        if paragraphs and name in _BLOCKS and paragraphs[-1] > self._last(_PARAGRAPH_LIMITS):
            self._pop_to(paragraphs[-1])
        if name in _IMPLIED_ENDS:
            ended, reach = _IMPLIED_ENDS[name]
            barrier = self._last(reach)
            # The outermost of them, which closes those inside.
            first = len(self.stack)
            for each in ended:
                places = self.places.get(each)
                if places and barrier < places[-1] < first:
                    first = places[-1]
            self._pop_to(first)

    def _last(self, names: frozenset[str]) -> int:
        last = -1
        for name in names:
            places = self.places.get(name)
            if places and places[-1] > last:
                last = places[-1]
        return last

    def _pop_to(self, place: int) -> None:
        while len(self.stack) > place:
            element = self.stack.pop()
            self.places[element.name].pop()
            if self.special and self.special[-1] == len(self.stack):
                self.special.pop()
            self.hidden -= element.hidden
            if not self.hidden and not element.hidden:
                self._close(element)

    def _open(self, element: _Element, attributes: Mapping[str, str]) -> None:
        name = element.name
        if name in _PARAGRAPHS:
            self._gap()
        elif name in _LINES:
            self._break()
        if name in _HEADINGS:
            self.prefix = _HEADINGS[name]
        elif name in ("ul", "ol", "menu", "dir"):
            # No blank line before a list in a list.
            self.gap = self.gap and not self.counters
            self.counters.append(_number(attributes.get("start", "1")) if name == "ol" else None)
        elif name == "li":
            self._item()
        elif name in _CELLS and any(piece.strip() for piece in self.line):
            self._add(" | ")
        elif name in _VERBATIM:
            self.verbatim += 1
            if self.verbatim == 1:
                self._put("```")
        elif name == "a" and not self.verbatim:
            # In code, an address would look like a part of the code.
            element.link = self._link(attributes.get("href", ""))
            element.start = (len(self.lines), len(self.line))

    def _close(self, element: _Element) -> None:
        name = element.name
        if name in _VERBATIM:
            self._break()
            self.verbatim -= 1
            if not self.verbatim:
                self._put("```")
        elif name in ("ul", "ol", "menu", "dir"):
            self._break()
            self.counters.pop()
        elif name == "a" and element.link:
            self._end_link(element)
        if name in _PARAGRAPHS:
            self._gap()
            self.gap = not self.counters
            self.prefix = ""
        elif name in _LINES:
            self._break()

    def _void(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "br":
                self._break()
            case "hr":
                self._gap()
                self._put("---")
                self._gap()
            case "img" if alt := attributes.get("alt", "").strip():
                self._add(f"[image: {_BLANKS.sub(' ', alt)[:MAX_LINK]}]")
            case "base" if href := self._link(attributes.get("href", "")):
                self.url = href

    def _item(self) -> None:
        depth = min(max(len(self.counters), 1), _MAX_INDENT)
        mark = "- "
        if self.counters and (number := self.counters[-1]) is not None:
            mark, self.counters[-1] = f"{number}. ", number + 1
        self.prefix = "  " * (depth - 1) + mark

    def _link(self, href: str) -> str:
        """The absolute http(s) address of a link to another page; else empty."""
        href = href.strip()
        if not href or href.startswith("#") or len(href) > MAX_LINK:
            return ""
        try:
            whole = urljoin(self.url, href)
            return whole if urlsplit(whole).scheme in ("http", "https") and len(whole) <= MAX_LINK else ""
        except ValueError:
            return ""

    def _end_link(self, element: _Element) -> None:
        line, pieces = element.start
        if line != len(self.lines):
            # The link has several lines: the address follows the last one.
            if line < len(self.lines):
                self._add(f" ({element.link})")
            return
        words = "".join(self.line[pieces:])
        if words.strip():
            del self.line[pieces:]
            lead = " " if words[0] == " " else ""
            self.size -= len(words)
            self._add(f"{lead}[{words.strip()}]({element.link}){' ' if words[-1] == ' ' else ''}")

    # --- lines ---

    def _add(self, text: str) -> None:
        if text:
            self.line.append(text)
            self.size += len(text)

    def _add_verbatim(self, text: str) -> None:
        if self.lines[-1:] == ["```"] and not self.line:
            # The line break after <pre> belongs to the tag.
            text = text.removeprefix("\r").removeprefix("\n")
        *whole, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for part in whole:
            self._add(part)
            self._put("".join(self.line))
            self.line.clear()
        self._add(rest)

    def _break(self) -> None:
        if not self.line:
            return
        text = "".join(self.line)
        self.line.clear()
        if self.verbatim:
            self._put(text)
        elif words := _BLANKS.sub(" ", text).strip():
            self._put(self.prefix + words)
            # Further lines of a list item are indented.
            self.prefix = " " * (len(self.prefix) if self.counters else 0)

    def _gap(self) -> None:
        self._break()
        self.gap = True

    def _put(self, line: str) -> None:
        if self.gap and self.lines and self.lines[-1]:
            self.lines.append("")
        self.gap = False
        self.lines.append(line)
        self.size += 1 + len(self.prefix)


def _is_hidden(name: str, attributes: Mapping[str, str]) -> bool:
    if name in _LEFT_OUT or (name == "dialog" and "open" not in attributes):
        return True
    if not attributes:
        return False
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden", "").strip().lower() == "true"
        or attributes.get("role", "").strip().lower() == "navigation"
        or ("style" in attributes and _HIDING_STYLE.search(attributes["style"]) is not None)
    )


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"-?[0-9]{1,6}", text.strip(), re.ASCII) else 1
