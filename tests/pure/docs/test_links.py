"""Links and paths in the documentation lead somewhere."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:agenthost|agents_app|sessions_app|tests|ops|docs)/[\w./-]*)`")
NOW = ("architecture", "howto", "glossary", "events", "mapping", "CONTRIBUTING", "SECURITY", "README")
"""Pages that describe the present code. Decision records and the changelog describe the code of their time."""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, made as the usual forges make them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE):
        text = re.sub(r"\]\([^)]*\)", "]", heading).lower()
        kept = "".join(c for c in text if c in " -_" or unicodedata.category(c)[0] in "LN").replace(" ", "-")
        found[kept] = found.get(kept, -1) + 1
    return frozenset(name if number == 0 else f"{name}-{number}" for name, last in found.items() for number in range(last + 1))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_to_a_file_or_heading_leads_there(page: Path) -> None:
    missing = []
    for link in LINK.findall(without_code(page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.is_file() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if any(part in str(page) for part in NOW)], ids=named)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    paths = PATH.findall(page.read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_management_command_on_a_page_names_the_python_of_the_checkout(page: Path) -> None:
    assert re.findall(r".*(?<!\.venv/bin/)python manage\.py.*", page.read_text()) == []


def test_the_index_of_decisions_lists_every_record_with_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    index = " ".join((folder / "README.md").read_text().split())
    for record in sorted(folder.glob("[0-9]*.md")):
        number, title = re.match(r"# (\d{4}): (.+)", record.read_text()).groups()  # type: ignore[union-attr]  # then it fails
        assert record.name.startswith(number)
        assert f"- [{number}]({record.name}) {title} (" in index


def test_every_decision_has_the_same_parts() -> None:
    for record in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        text = record.read_text()
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        parts = ["Context", "Decision", "Figures", "Consequences", "Rejected"]
        assert headings == [part for part in parts if part in headings], record.name
        assert {"Context", "Decision"} <= set(headings), record.name
        assert re.search(r"^State: (accepted|superseded by)", text, re.MULTILINE), record.name
