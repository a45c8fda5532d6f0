"""ops/release: what must agree, what is in the wheel, and the wheel in use."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from ops import release, release_files, release_rules, release_trial
from ops.services import free_port
from tests.paths import ROOT

HEAD = "a" * 40
needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="the files of a release are those that git knows"
)


def changelog(*sections: str) -> str:
    return "# Changelog\n\n" + "".join(f"## {each}\nText.\n\n" for each in sections)


@pytest.mark.parametrize(
    ("number", "text", "words"),
    [
        ("1.2.0", changelog("1.2.0 — 2026-01-31", "1.1.9 — 2025-12-01"), None),
        ("1.2.0", changelog("1.2.0 — unreleased"), "has no date yet"),
        ("1.2.0", changelog("1.3.0 — 2026-01-31"), "the first section is 1.3.0; pyproject.toml has version 1.2.0"),
        ("1.2.0", changelog(), "the first section is missing"),
        ("1.2", changelog("1.2.0 — 2026-01-31"), "'1.2' is not of the form 1.2.3"),
        ("1.2.0", changelog("1.2.0 - 2026-01-31"), "each section is headed"),
        ("1.2.0", changelog("1.2.0 — 2026-01-31", "1.10.0 — 2026-01-01"), "do not fall"),
        ("1.2.0", changelog("1.2.0 — 2026-01-31", "1.1.0 — unreleased"), "an earlier section has no date"),
    ],
)
def test_the_version_and_the_changelog_agree(number: str, text: str, words: str | None) -> None:
    faults = list(release_rules.version_faults(number, text))
    assert faults == [] if words is None else any(words in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({}, None),
        ({"v1.2.0": HEAD, "v1.1.0": "b" * 40, "nightly": HEAD}, None),
        ({"v1.2.0": "b" * 40}, "1.2.0 was released; raise the version"),
        ({"v1.3.0": HEAD}, "this commit has the tag v1.3.0"),
        ({"1.1.0": "b" * 40}, "has no v before the version"),
    ],
)
def test_the_version_and_the_tags_agree(tags: dict[str, str], words: str | None) -> None:
    faults = list(release_rules.tag_faults("1.2.0", tags, HEAD))
    assert faults == [] if words is None else any(words in fault for fault in faults), faults


def test_this_trees_version_has_a_section_in_the_changelog() -> None:
    number = release_rules.version()
    assert release_rules.sections((ROOT / "CHANGELOG.md").read_text())[0][0] == number


def test_a_release_records_its_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0001_initial.py", "0002_more.py", "__init__.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(release, "RECORD", tmp_path / "released.txt")
    monkeypatch.setattr(release, "PREVIOUS", tmp_path / "previous_release.txt")
    monkeypatch.setattr(release_rules, "tags", dict)
    assert release.record() == 1
    assert not (tmp_path / "released.txt").exists()
    tag = f"v{release_rules.version()}"
    monkeypatch.setattr(release_rules, "tags", lambda: {tag: HEAD})
    assert release.record() == 0
    assert content(tmp_path / "released.txt") == ["sessions_app.0001_initial", "sessions_app.0002_more"]
    assert content(tmp_path / "previous_release.txt") == [tag]


def content(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if not line.startswith("#")]


@needs_git
def test_every_file_of_the_packages_is_packed() -> None:
    """The quick part of what ops/release compares in the wheel itself."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packed = {each for package, patterns in declared.items() for pattern in patterns for each in (ROOT / package).glob(pattern)}
    own = [ROOT / name for name in release_files.files() if name.split("/")[0] in release_files.PACKAGES]
    assert [str(each) for each in own if each.suffix != ".py" and each not in packed] == []
    folders = {each.parent for each in own if each.suffix == ".py"}
    assert [str(each) for each in folders if not (each / "__init__.py").is_file()] == []


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return release_files.build(tmp_path_factory.mktemp("dist"))


@needs_git
@pytest.mark.slow
def test_the_archives_have_the_same_bytes_when_they_are_built_again(archives: tuple[Path, Path], tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        again = release_files.build(tmp_path / "again")
    finally:
        os.umask(old)
    assert [release_files.sha256(each) for each in again] == [release_files.sha256(each) for each in archives]


@needs_git
@pytest.mark.slow
def test_the_archives_have_what_the_server_needs_and_nothing_else(archives: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, source = archives
    assert list(release_files.content_faults(wheel)) == []
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        entry_points = next(opened.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert {name.split("/")[0] for name in names} == {
        *release_files.PACKAGES, f"agenthost-{release_rules.version()}.data", f"agenthost-{release_rules.version()}.dist-info"
    }  # fmt: skip
    assert "agenthost = agenthost.cli:main" in entry_points
    with tarfile.open(source) as archive:
        assert {name.split("/", 1)[1] for name in archive.getnames()} == {*release_files.files(), "PKG-INFO"}
    # A wheel that lacks a template is noticed.
    broken = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as opened, zipfile.ZipFile(broken, "w") as smaller:
        for name in names:
            if not name.endswith("agenthost/agents.html"):
                smaller.writestr(name, opened.read(name))
    assert list(release_files.content_faults(broken)) == [
        "the wheel lacks sessions_app/templates/agenthost/agents.html (tool.setuptools.package-data)"
    ]


@needs_git
@pytest.mark.slow
def test_an_installed_wheel_serves_and_finds_its_sessions_after_a_restart(archives: tuple[Path, Path], tmp_path: Path) -> None:
    """The packages that the lock names are those of .venv, by a path file; the wheel is installed with pip."""
    installed = release_trial.install(archives[0], tmp_path, offline=True)
    where = installed.run(installed.python, "-c", "import agenthost; print(agenthost.__file__)")
    assert where.startswith(str(tmp_path / "venv"))
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    with installed.up(port) as printed:
        assert f"AGENTHOST_PORT={port} agenthost chat demo" in printed
        assert "manage.py" not in printed
        assert "ops/" not in printed
        key = release_trial.key_of(printed)
        session, answer = installed.run(installed.python, "-c", ASK, origin, key).splitlines()
        assert answer == "I count to 3; stop me whenever you like."
        page = installed.run(installed.python, "-c", FETCH, origin)
        assert re.search(r"/static/[0-9a-f]{16}/agenthost/\S+ 200", page), page
        assert "quickstart" in installed.run(installed.program, "keys")
        doctor = installed.run(installed.program, "doctor")
        assert "FAIL" not in doctor
    with installed.up(port) as printed:
        assert "was shown at the first start" in printed
        assert "a new one: agenthost create-key local --name mine" in printed
        history = installed.run(installed.python, "-c", READ, origin, key, session)
        assert "Count to 3." in history
    data = tmp_path / "data" / "agenthost"
    assert (data / "agenthost.sqlite3").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []


ASK = """
import sys
from agenthost.client import Client
with Client(*sys.argv[1:]) as client:
    session = client.create_session("demo")
    print(session.id)
    print(session.send("Count to 3.").result().text.splitlines()[0])
"""
READ = """
import sys
from agenthost.client import Client
with Client(*sys.argv[1:3]) as client:
    print(client.session(sys.argv[3]).history())
"""
FETCH = """
import re, sys, urllib.request
page = urllib.request.urlopen(sys.argv[1] + "/accounts/login/").read().decode()
for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', page):
    print(address, urllib.request.urlopen(sys.argv[1] + address).status)
"""
