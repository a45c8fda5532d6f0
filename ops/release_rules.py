"""What must agree before a release: the version, the changelog, the tag and the tree. Called by ops/release."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNRELEASED = "unreleased"
_VERSION = re.compile(r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)")
_SECTION = re.compile(rf"^## ({_VERSION.pattern}) — ({UNRELEASED}|\d{{4}}-\d{{2}}-\d{{2}})$", re.MULTILINE)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def version() -> str:
    project: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["version"]


def sections(changelog: str) -> list[tuple[str, str]]:
    """The versions of a changelog with their dates, as they follow each other."""
    return _SECTION.findall(changelog)


def version_faults(number: str, changelog: str) -> Iterator[str]:
    """A version is three numbers, and the changelog begins with its dated section; sections fall and have dates."""
    if not _VERSION.fullmatch(number):
        yield f"pyproject.toml: version {number!r} is not of the form 1.2.3"
    found = sections(changelog)
    if len(found) != len(re.findall("^## ", changelog, re.MULTILINE)):
        yield "CHANGELOG.md: each section is headed `## 1.2.3 — 2026-01-31`, or `unreleased` instead of the date"
    if not found or found[0][0] != number:
        yield f"CHANGELOG.md: the first section is {found[0][0] if found else 'missing'}; pyproject.toml has version {number}"
    elif found[0][1] == UNRELEASED:
        yield f"CHANGELOG.md: the section {number} has no date yet"
    numbers = [tuple(map(int, each.split("."))) for each, _ in found]
    if numbers != sorted(set(numbers), reverse=True):
        yield "CHANGELOG.md: the versions of the sections do not fall"
    if any(date == UNRELEASED for _, date in found[1:]):
        yield "CHANGELOG.md: an earlier section has no date"


def tag_faults(number: str, tags: dict[str, str], head: str) -> Iterator[str]:
    """A release is tagged ``v1.2.3``, once. ``tags``: the commit of each tag."""
    tag = f"v{number}"
    if tags.get(tag, head) != head:
        yield f"the tag {tag} is at another commit: {number} was released; raise the version in pyproject.toml"
    for other, commit in tags.items():
        if commit == head and other != tag and _VERSION.fullmatch(other.removeprefix("v")):
            yield f"this commit has the tag {other}, but the version is {number}"
        if not other.startswith("v") and _VERSION.fullmatch(other):
            yield f"the tag {other} has no v before the version"


def tags() -> dict[str, str]:
    lines = git("for-each-ref", "refs/tags", "--format=%(refname:short) %(*objectname) %(objectname)").splitlines()
    return {name: found[0] for name, *found in map(str.split, lines)}


def all_faults() -> list[str]:
    number = version()
    found = [
        *version_faults(number, (ROOT / "CHANGELOG.md").read_text()),
        *tag_faults(number, tags(), git("rev-parse", "HEAD")),
    ]
    if git("status", "--porcelain"):
        found.append("the tree has changes that are not committed")
    return found
