"""ops/site: the navigation that it makes of docs/README.md, what it refuses, and the whole site."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ops import site_build, site_contents
from tests.paths import ROOT

with_sphinx = [
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(find_spec("sphinx") is None, reason="Sphinx is not installed; ops/bootstrap --with docs does it"),
]
"""For tests that run Sphinx. It is no development package; ops/site installs it."""
CONTENTS = """# Documentation
## Operators
- [Settings](settings.md): every variable
- [Decisions](decisions/README.md): why
- [Changelog](../CHANGELOG.md): what changed
"""
DECISIONS = """# Decision records
- [0001](0001-locked.md) Locked (accepted)
"""


def test_the_navigation_is_the_sections_of_the_contents_with_their_titles() -> None:
    assert site_contents.navigation(CONTENTS + "\n## Nobody\n", "docs/README.md").strip().splitlines() == [
        "```{toctree}",
        ":hidden:",
        ":caption: Operators",
        "",
        "Settings </docs/settings>",
        "Decisions </docs/decisions/README>",
        "Changelog </CHANGELOG>",
        "```",
    ]


def test_the_list_of_a_folder_is_navigation_too_and_other_pages_are_not() -> None:
    assert "\n/docs/decisions/0001-locked\n" in site_contents.navigation(DECISIONS, "docs/decisions/README.md")
    assert site_contents.navigation(CONTENTS, "docs/settings.md") == ""
    assert site_contents.navigation(CONTENTS, "README.md") == ""


PAGE = '<h1 id="top">{}</h1>'


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<script src="//cdn.example/x.js"></script>', "loads //cdn.example/x.js"),
        ('<link rel="preconnect" href="https://fonts.example">', "loads https://fonts.example"),
        ('<img srcset="a.png 1x, https://pictures.example/b.png 2x" src="a.png">', "loads https://pictures.example/b.png"),
        ("<style>@import 'https://fonts.example/a.css';</style>", "loads from fonts.example"),
        ('<p style="background: url(//pictures.example/b.png)">', "loads from pictures.example"),
        ('<a href="nowhere.html">x</a>', "nowhere.html does not exist"),
        ('<img src="nowhere.png">', "nowhere.png does not exist"),
        ('<a href="b.html#nothing">x</a>', "b.html#nothing: the page has no such anchor"),
        ('<a href="#nothing">x</a>', "#nothing: the page has no such anchor"),
    ],
)
def test_a_page_that_loads_from_another_host_or_leads_nowhere_is_a_fault(tmp_path: Path, html: str, fault: str) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "b.html").write_text(PAGE)
    (tmp_path / "a.html").write_text(PAGE + html)
    assert site_build.faults(tmp_path) == [f"a.html: {fault}"]


def test_links_to_pages_anchors_and_other_sites_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.html").write_text(PAGE + '<a href="../a.html#top">x</a><a href="https://example.org">y</a>')
    (tmp_path / "a.html").write_text(PAGE + '<a href="docs/b.html#top">x</a><a href="#top">y</a><a href="mailto:a@b">z</a>')
    (tmp_path / "a.css").write_text("p { background: url('data:image/png;base64,AA') } a { background: url(a.html) }")
    assert site_build.faults(tmp_path) == []


def test_a_style_sheet_that_loads_from_another_host_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@font-face { src: url("https://fonts.example/a.woff2") }')
    assert site_build.faults(tmp_path) == ["a.css: loads from fonts.example"]


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    with pytest.raises(site_build.SiteError, match="was not made by ops/site; name an empty or a new directory"):
        site_build.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of three pages."""
    root = tmp_path / "checkout"
    (root / "docs" / "decisions").mkdir(parents=True)
    (root / "docs" / "README.md").write_text(CONTENTS)
    (root / "docs" / "decisions" / "README.md").write_text(DECISIONS)
    (root / "docs" / "decisions" / "0001-locked.md").write_text(
        "# 0001: Locked\nSee [the settings](../settings.md#the-server).\n"
    )
    (root / "docs" / "settings.md").write_text("# Settings\n## The server\n[An example](../example.toml)\n")
    (root / "example.toml").write_text("[agent]\n")
    (root / "CHANGELOG.md").write_text("# Changelog\n")
    (root / "tests").mkdir()
    (root / "tests" / "notes.md").write_text("# Not a page\n")
    return root


class TestSmallSites:
    pytestmark = with_sphinx

    def test_a_site_takes_the_place_of_the_one_before_and_a_broken_link_leaves_that_as_it_is(self, checkout: Path) -> None:
        site = checkout.parent / "site"
        # A page for each file, the search, and the one that leads to the contents.
        assert site_build.build(site, checkout) == 7
        assert (site / "docs" / "settings.html").is_file()
        assert [path.read_text() for path in site.rglob("example.toml")] == ["[agent]\n"]
        assert not (site / "tests").exists()

        settings = checkout / "docs" / "settings.md"
        settings.write_text("# Settings\n## The server\nNew words.\n")
        site_build.build(site, checkout)
        assert "New words" in (site / "docs" / "settings.html").read_text()

        settings.write_text("# Settings\n[gone](operating.md)\n")
        with pytest.raises(site_build.SiteError) as refused:
            site_build.build(site, checkout)
        assert "operating.md" in str(refused.value)
        # The heading that the decision links to is gone too.
        assert "0001-locked.md" in str(refused.value)
        assert "New words" in (site / "docs" / "settings.html").read_text()
        assert sorted(path.name for path in checkout.parent.iterdir()) == ["checkout", "site"]

    def test_a_page_that_no_list_has_fails_the_build(self, checkout: Path) -> None:
        (checkout / "docs" / "forgotten.md").write_text("# Forgotten\n")
        with pytest.raises(site_build.SiteError, match=r"forgotten\.md.*isn't included in any toctree"):
            site_build.build(checkout.parent / "site", checkout)


class TestTheWholeSite:
    pytestmark = with_sphinx

    def test_it_has_every_page_with_a_search_and_its_navigation_is_the_contents(self, tmp_path: Path) -> None:
        site = tmp_path / "site"
        done = subprocess.run(
            [sys.executable, "-m", "ops.site_build", str(site)], check=False, cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        listed = [page.removesuffix(".md") + ".html" for page in site_contents.pages(ROOT)]
        assert [page for page in listed if not (site / page).is_file()] == []
        assert "docs/README.html" in (site / "index.html").read_text()
        assert (site / "searchindex.js").stat().st_size > 100_000
        settings = (site / "docs" / "settings.html").read_text()
        sidebar = settings[settings.index("sidebar-tree") : settings.index('id="settings"')]
        places = [
            sidebar.index(f">{entry.title}<")
            for section in site_contents.sections((ROOT / site_contents.CONTENTS).read_text())
            for entry in section.entries
        ]
        assert places == sorted(places)
        shutil.rmtree(site)
