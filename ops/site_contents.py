"""The contents of the documentation, as docs/README.md lists them: sections of pages, each with a title and one line.

The only list of pages: the site's navigation is made from it (ops/site_config/conf.py), and tests compare it with the files.
An entry of a section is a list item that begins with a link to a page: `- [Settings](settings.md): every environment variable`.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

CONTENTS = "docs/README.md"
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#\s]+\.md)\)(.*(?:\n {2,}.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    title: str
    page: str
    """The file, relative to the root of the checkout."""
    about: str
    """The text after the link."""


@dataclass(frozen=True)
class Section:
    title: str
    entries: tuple[Entry, ...]


def entries(text: str, page: str) -> tuple[Entry, ...]:
    """The list items of a page's text that begin with a link to another page."""
    folder = posixpath.dirname(page)
    return tuple(
        Entry(_one_line(title), posixpath.normpath(posixpath.join(folder, target)), _one_line(about.removeprefix(":")))
        for title, target, about in _ENTRY.findall(_CODE.sub("", text))
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def sections(text: str, page: str = CONTENTS) -> tuple[Section, ...]:
    """The sections of the contents. Entries before the first one are not listed."""
    parts = _SECTION.split(_CODE.sub("", text))
    return tuple(Section(title, entries(part, page)) for title, part in zip(parts[1::2], parts[2::2], strict=True))


def is_list_of_pages(page: str) -> bool:
    """Whether the list items of a page are contents too: those of a folder's README in docs."""
    return page.startswith("docs/") and page.endswith("/README.md") and page != CONTENTS


def pages(root: Path) -> list[str]:
    """All pages that are listed, in order: in the contents, or in the README of a folder that the contents list."""
    found = []
    for section in sections((root / CONTENTS).read_text(encoding="utf-8")):
        for entry in section.entries:
            found.append(entry.page)
            if is_list_of_pages(entry.page) and (root / entry.page).is_file():
                text = (root / entry.page).read_text(encoding="utf-8")
                found += [inner.page for inner in entries(text, entry.page)]
    return found


def navigation(text: str, page: str) -> str:
    """What Sphinx makes its navigation from, for a list of pages: a hidden tree for each section, or one for a folder."""
    if page == CONTENTS:
        return "".join(_tree(section.entries, f":caption: {section.title}") for section in sections(text) if section.entries)
    return _tree(entries(text, page)) if is_list_of_pages(page) else ""


def _tree(listed: tuple[Entry, ...], *options: str) -> str:
    # A title in the contents is short; a record's own is better than its number, by which its folder's list names it.
    names = [entry.page.removesuffix(".md") for entry in listed]
    lines = [f"{entry.title} </{name}>" if options else f"/{name}" for entry, name in zip(listed, names, strict=True)]
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", *lines, "```", ""])
