"""ops/bootstrap: what it installs, what it keeps, and what it reports when it cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.markers import Marker

from ops import environment
from ops.environment import DEV, DOCS, SERVER, Environment, Pin

ROOT = environment.ROOT

LOCK = """\
botocore==1.43.2 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # for bedrock, pydantic-ai
    # via pyproject.toml, boto3
django==5.2.19 \\
    --hash=sha256:cc
    # for server
    # via pyproject.toml
pytest==9.0 ; sys_platform != 'win32' \\
    --hash=sha256:dd
    # for dev
    # via pyproject.toml
"""
KNOWN = ["bedrock", "pydantic-ai"]


def names(pins: list[Pin]) -> list[str]:
    return [pin.name for pin in pins]


def test_a_lock_is_read_with_its_sets_and_without_loss() -> None:
    pins = environment.read_lock(LOCK)
    assert names(pins) == ["botocore", "django", "pytest"]
    assert pins[0].sets == {"bedrock", "pydantic-ai"}
    assert pins[0].via == ("pyproject.toml", "boto3")
    assert pins[2].marker == "sys_platform != 'win32'"
    assert pins[0].requirement() == "botocore==1.43.2 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    assert environment.extras(pins) == KNOWN


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("django==5.2.19\n", "not a pinned requirement"),
        ("django>=5 \\\n    --hash=sha256:aa\n    # for server\n    # via x\n", "not a pinned requirement"),
        ("django==5.2.19 \\\n    # for server\n    # via x\n", "django has no hash"),
        ("django==5.2.19 \\\n    --hash=sha256:aa\n    # via x\n", "django has no line that names its sets"),
        ("django==5.2.19 \\\n    --hash=sha256:aa\n    # for server\n", "django has no line that names the packages"),
    ],
)
def test_a_line_that_is_not_of_the_locks_form_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        environment.read_lock(text)


def test_an_installation_has_the_server_and_the_extras_that_are_named() -> None:
    pins = environment.read_lock(LOCK)
    assert names(environment.chosen(pins, {SERVER})) == ["django"]
    assert names(environment.chosen(pins, {SERVER, "bedrock"})) == ["botocore", "django"]
    assert names(environment.chosen(pins, {SERVER, DEV})) == ["botocore", "django", "pytest"]


def test_what_only_the_site_needs_is_installed_where_it_is_named_and_nowhere_else() -> None:
    shared = LOCK.replace("# for dev", "# for dev, docs")
    pins = environment.read_lock(shared + "sphinx==9.0.4 \\\n    --hash=sha256:ee\n    # for docs\n    # via pyproject.toml\n")
    assert names(environment.chosen(pins, {SERVER, DEV, *KNOWN})) == ["botocore", "django", "pytest"]
    assert names(environment.chosen(pins, {SERVER, DOCS})) == ["django", "pytest", "sphinx"]
    assert environment.extras(pins) == KNOWN
    assert environment.sets_asked(["docs"], KNOWN, dev=False) == {DOCS}
    assert environment.sets_asked(["docs"], KNOWN, dev=True) == {DEV, DOCS, *KNOWN}
    assert DOCS not in environment.sets_asked(["all"], KNOWN, dev=False)


def test_the_options_name_sets() -> None:
    assert environment.sets_asked([], KNOWN, dev=False) == set()
    assert environment.sets_asked(["bedrock, pydantic-ai"], KNOWN, dev=False) == {"bedrock", "pydantic-ai"}
    assert environment.sets_asked(["bedrock", "all"], KNOWN, dev=False) == set(KNOWN)
    # An image that is built without extras has EXTRAS="".
    assert environment.sets_asked([""], KNOWN, dev=False) == set()
    assert environment.sets_asked([], KNOWN, dev=True) == {DEV, *KNOWN}
    with pytest.raises(ValueError, match="berdock"):
        environment.sets_asked(["bedrock,berdock"], KNOWN, dev=False)


@pytest.mark.parametrize(
    "marker",
    [
        *sorted({pin.marker for pin in environment.read_lock(environment.LOCK.read_text()) if pin.marker}),
        "python_version >= '3.9' or sys_platform == 'win32'",
        "python_full_version < '3.11.3'",
    ],
)
@pytest.mark.parametrize("version", ["3.11.0", "3.11.7", "3.13.0rc1", "3.14.2"])
def test_markers_are_judged_as_packaging_does(marker: str, version: str) -> None:
    values = environment.platform_values(version)
    assert environment.applies(marker, values) == Marker(marker).evaluate(dict(values))


@pytest.mark.parametrize("marker", ["extra == 'x'", "'win' in sys_platform", "platform_machine < 'x'", "__import__('os')"])
def test_a_marker_of_another_form_is_refused(marker: str) -> None:
    with pytest.raises(ValueError, match="does not understand"):
        environment.applies(marker, environment.platform_values("3.11.7"))


def installed(packages: Path, name: str, version: str) -> None:
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "RECORD").touch()


def test_only_packages_that_are_missing_or_of_another_version_are_installed(tmp_path: Path) -> None:
    installed(tmp_path, "Django", "5.2.19")
    installed(tmp_path, "botocore", "1.42.0")
    # Cut off while it was unpacked: pip writes RECORD last.
    (tmp_path / "pytest-9.0.dist-info").mkdir()
    pins = environment.read_lock(LOCK)
    assert names(environment.missing(pins, Environment(tmp_path, "3.11.7"))) == ["botocore", "pytest"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A checkout with an environment; what is installed there is only written down."""
    calls: list[list[str]] = []
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "STAMP", tmp_path / ".venv" / "installed.json")
    monkeypatch.setattr(environment, "find", lambda: Environment(tmp_path / "packages", "3.11.7"))
    monkeypatch.setattr(environment, "install", lambda pins, there: calls.append(names(pins)))
    return calls


def test_extras_that_are_installed_stay_and_nothing_is_done_twice(checkout: list[list[str]]) -> None:
    pins = environment.read_lock(LOCK)
    environment.bring_about({"bedrock"}, pins)
    assert checkout == [["botocore", "django"]]
    environment.bring_about(set(), pins)
    assert len(checkout) == 1
    environment.bring_about(set(), environment.read_lock(LOCK.replace("5.2.19", "5.2.20")))
    assert checkout[1:] == [["botocore", "django"]]
    environment.bring_about({DEV, *KNOWN}, pins)
    assert checkout[2:] == [["botocore", "django", "pytest"]]
    environment.bring_about(set(), pins)
    assert len(checkout) == 3
    environment.bring_about({DOCS}, pins)
    environment.bring_about(set(), pins)
    assert json.loads(environment.STAMP.read_text())["sets"] == ["bedrock", "dev", "docs", "pydantic-ai", "server"]


def test_an_extra_that_the_lock_no_longer_has_is_forgotten(checkout: list[list[str]]) -> None:
    environment.bring_about({"bedrock"}, environment.read_lock(LOCK))
    environment.bring_about(set(), environment.read_lock(LOCK.replace("bedrock, ", "")))
    assert checkout[1:] == [["django"]]
    assert json.loads(environment.STAMP.read_text())["sets"] == ["server"]


def test_progress_is_a_line_every_few_seconds_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("ops.environment.time.monotonic", lambda: now)
    progress = environment.Progress(70)
    for step in range(60):
        now = 100.0 + step / 5
        progress.show(min(step, 70), step // 2)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "ops/bootstrap: fetched 20, installed 10 of 70 packages",
        "ops/bootstrap: fetched 40, installed 20 of 70 packages",
    ]


def bootstrap(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (checkout / "ops").mkdir()
    shutil.copy(ROOT / "ops" / "environment.py", checkout / "ops")
    shutil.copy(ROOT / "requirements.lock", checkout)
    command = [sys.executable, "-I", str(checkout / "ops" / "environment.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_an_extra_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    done = bootstrap(tmp_path, "--with", "berdock")
    assert done.returncode == 2
    assert "--with berdock: there is no such extra; there are bedrock, oidc, pydantic-ai, vertex, all" in done.stderr


def test_a_checkout_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    # A file where the directory belongs fails for root too, who may write everywhere.
    (tmp_path / "var").touch()
    done = bootstrap(tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"ops/bootstrap: {tmp_path / 'var'}: ")
    assert "run this as the owner of the checkout" in line
