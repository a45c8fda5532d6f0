"""docs/README.md lists every page of the documentation once, and says what one finds there."""

from __future__ import annotations

from collections import Counter

import pytest

from ops import site_contents
from ops.site_contents import CONTENTS, Entry, Section
from tests.paths import ROOT

SECTIONS = site_contents.sections((ROOT / CONTENTS).read_text())


def test_every_page_below_docs_is_listed_once_in_the_contents_or_in_the_list_of_its_folder() -> None:
    files = Counter(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
    listed = Counter(page for page in site_contents.pages(ROOT) if page.startswith("docs/"))
    assert files - Counter([CONTENTS]) - listed == Counter(), "pages that no list has"
    assert listed - files == Counter(), "pages that are listed twice, or do not exist"


def test_the_contents_are_by_reader() -> None:
    readers = ["New here", "Application developers", "Authors of agents", "Operators", "Security and audit", "Contributors"]
    assert [section.title for section in SECTIONS] == readers


@pytest.mark.parametrize("entry", [entry for section in SECTIONS for entry in section.entries], ids=lambda entry: entry.page)
def test_each_entry_says_in_one_line_what_the_page_has(entry: Entry) -> None:
    assert 10 <= len(entry.about) <= 110
    assert "](" not in entry.about, "a second link in an entry: which of the two is the page?"


def test_each_page_of_the_project_beside_docs_is_listed_too() -> None:
    at_the_root = {page.name for page in ROOT.glob("*.md")}
    assert at_the_root <= {entry.page for section in SECTIONS for entry in section.entries}


def test_the_readme_leads_to_the_contents() -> None:
    assert f"]({CONTENTS})" in (ROOT / "README.md").read_text()


def test_sections_and_entries_are_read_from_lists_outside_of_code() -> None:
    text = """# Documentation
- [Before the first section](before.md): is no entry

## Operators
Words, and [a link](words.md).

- [Settings
  of it](settings.md): every
  variable
- [Below](rules/aap.md): rules
- [The changelog](../CHANGELOG.md): changes
- [Elsewhere](https://example.org/page): no page
- words before [a link](later.md)

```
- [In code](code.md): no entry
```

## Nobody
"""
    assert site_contents.sections(text) == (
        Section(
            "Operators",
            (
                Entry("Settings of it", "docs/settings.md", "every variable"),
                Entry("Below", "docs/rules/aap.md", "rules"),
                Entry("The changelog", "CHANGELOG.md", "changes"),
            ),
        ),
        Section("Nobody", ()),
    )
