"""Builds the site of the documentation with Sphinx and checks it: `python -m ops.site_build [DIRECTORY]`, called by ops/site.

A page that is not listed, and a link or an anchor that does not exist, fail the build. The site is made beside its directory and
takes its place when it is complete, so a web server that serves the directory never shows half of it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ops.environment import ROOT
from ops.site_contents import CONTENTS

CONFIGURATION = ROOT / "ops" / "site_config"
FRONT_PAGE = CONTENTS.removesuffix(".md") + ".html"
_MARKER = ".agenthost-site"
"""A file in every site: a directory that has it may be replaced."""
_REDIRECT = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Agenthost</title>
<meta http-equiv="refresh" content="0; url={FRONT_PAGE}"></head>
<body><a href="{FRONT_PAGE}">Documentation</a></body></html>
"""
_STYLE_URL = re.compile(r"(?:url\(\s*|@import\s+)[\"']?(?:https?:)?//([^/\"')\s]+)")
_FAULTS_SHOWN = 20


class SiteError(Exception):
    """The site cannot be built. The text says why."""


class _Page(HTMLParser):
    """What one page loads, where it links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.styles = ""
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        self.styles += values.get("style", "")
        self._in_style = tag == "style"
        if tag == "link" and values.get("rel") not in {"canonical", "author", "license"}:
            self.loaded.append(values.get("href", ""))
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loaded += [values[name] for name in ("src", "poster", "data") if name in values]
        self.loaded += [each.split()[0] for each in values.get("srcset", "").split(",") if each.strip()]

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.styles += data

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002  # the base class names it
        self._in_style = False


def faults(site: Path) -> list[str]:
    """What is wrong with a site: files loaded from other hosts, links to files or anchors that do not exist."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [f"{path.relative_to(site)}: {fault}" for path, page in pages.items() for fault in _faults_of(path, page, pages)]
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: loads from {host}" for host in _STYLE_URL.findall(path.read_text(encoding="utf-8"))]
    return found


def _faults_of(path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for host in _STYLE_URL.findall(page.styles):
        yield f"loads from {host}"
    for address in page.loaded:
        if urlsplit(address).netloc:
            yield f"loads {address}"
    for address in (*page.loaded, *page.links):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = path if not parts.path else Path(os.path.normpath(path.parent / unquote(parts.path)))
        if not target.is_file():
            yield f"{address} does not exist"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            yield f"{address}: the page has no such anchor"


def build(directory: Path, root: Path = ROOT) -> int:
    """Build the site of the checkout `root` into a directory. Returns the number of its pages."""
    directory = directory.absolute()
    if directory.exists() and not (directory / _MARKER).is_file() and not (directory.is_dir() and not any(directory.iterdir())):
        raise SiteError(f"{directory} was not made by ops/site; name an empty or a new directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as scratch:
        site = Path(scratch) / "site"
        _run_sphinx(root, site, Path(scratch) / "doctrees")
        (site / "index.html").write_text(_REDIRECT, encoding="utf-8")
        (site / _MARKER).touch()
        if found := faults(site):
            raise SiteError("\n".join(["the site has faults:", *found[:_FAULTS_SHOWN]]))
        if directory.exists():
            directory.rename(Path(scratch) / "before")
        site.rename(directory)
    return len([*directory.rglob("*.html")])


def _run_sphinx(root: Path, site: Path, doctrees: Path) -> None:
    options = ("-b", "html", "-q", "-W", "--keep-going", "-j", "auto", "-c", str(CONFIGURATION), "-d", str(doctrees))
    command = [sys.executable, "-m", "sphinx", *options, str(root), str(site)]
    # In ROOT, where the configuration finds the package ops.
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SiteError(f"Sphinx failed:\n{(done.stdout + done.stderr).strip()[-8000:]}")
    shutil.rmtree(site / "_sources", ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="ops/site", description="Builds the site of the documentation.")
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "var" / "site", help="where it is put (var/site)")
    directory = parser.parse_args().directory
    try:
        number = build(directory)
    except SiteError as error:
        print(f"ops/site: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"ops/site: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"ops/site: {number} pages in {directory}. To read them: .venv/bin/python -m http.server --directory {directory} 8001")
    return 0


if __name__ == "__main__":
    sys.exit(main())
