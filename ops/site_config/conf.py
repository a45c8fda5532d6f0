"""Sphinx's settings for the site of the documentation, which ops/site builds.

The source folder is the whole checkout, so links between pages, and from pages to other files, are those of the checkout. The
pages are those below docs and those that docs/README.md lists. The navigation is added to its lists while they are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ops import site_contents

project = "Agenthost"
root_doc = site_contents.CONTENTS.removesuffix(".md")
extensions = ["myst_parser"]
# Folders without pages.
exclude_patterns = [".*", "build", "dist", "var", "tests", "agenthost", "agents_app", "sessions_app"]
myst_heading_anchors = 4
# Quotes, dashes and options such as --dev stay as they are written.
smartquotes = False
highlight_language = "text"
# Of code in a fence that its language does not fit, such as a command with its output. Diagrams are shown as their source.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "Agenthost"
html_static_path = ["static"]
html_css_files = ["site.css"]
# Sphinx looks for it in the working directory.
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_copyright = False
html_domain_indices = False
html_use_index = False


def _choose_pages(app: Any, config: Any) -> None:
    beside_docs = [page for page in site_contents.pages(Path(app.srcdir)) if not page.startswith("docs/")]
    config.include_patterns = ["docs/**.md", *beside_docs]


def _add_navigation(_app: Any, docname: str, source: list[str]) -> None:
    source[0] += site_contents.navigation(source[0], f"{docname}.md")


def setup(app: Any) -> dict[str, bool]:
    app.connect("config-inited", _choose_pages)
    app.connect("source-read", _add_navigation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
