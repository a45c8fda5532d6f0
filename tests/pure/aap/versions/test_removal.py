"""An old version is removed by deleting its module, its tests and its line in urls.py: nothing else imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

VERSIONS = "sessions_app.aap.versions"
URLS = "sessions_app/aap/urls.py"
FOLDER = ROOT / Path(*VERSIONS.split("."))
*OLD, _NEWEST = sorted(path.stem for path in FOLDER.glob("v*.py") if path.stem[1:].isdecimal())
"""The versions there are, oldest first."""


def names(tree: ast.AST) -> Iterator[str]:
    """Every module or member of a module that is imported, or named in a string as Django's ``include`` takes it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def who_knows(version: str) -> list[str]:
    """The source files that name the version's module, once for each line that does."""
    module = f"{VERSIONS}.{version}"
    found = []
    for package in ("agenthost", "agents_app", "sessions_app", "ops"):
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text()
            # Parsing all files would take a second.
            if version in source:
                found += [path for name in names(ast.parse(source)) if name == module or name.startswith(f"{module}.")]
    return [str(path.relative_to(ROOT)) for path in found]


@pytest.mark.parametrize("version", OLD)
def test_only_its_line_of_addresses_and_older_versions_know_an_old_version(version: str) -> None:
    found = who_knows(version)
    older = {f"sessions_app/aap/versions/{name}.py" for name in OLD if name < version}
    assert set(found) - older == {URLS}
    assert found.count(URLS) == 1


@pytest.mark.parametrize("version", OLD)
def test_an_old_version_is_one_module(version: str) -> None:
    assert [path.name for path in FOLDER.glob(f"{version}*")] == [f"{version}.py"]
