"""The server in the default installation: a real environment that has the packages of the set `server` and no others."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from ops import check_container, clean_environment, environment

ROOT = environment.ROOT
MODULES = """
import importlib, pathlib, django
django.setup()
for top in ("agenthost", "agents_app", "sessions_app"):
    for path in sorted(pathlib.Path(top).rglob("*.py")):
        parts = path.with_suffix("").parts
        # What runs when it is imported, and what only an agent of pydantic-ai leads to.
        if parts[-1] == "__main__" or parts[-1] in PYDANTIC_AI:
            continue
        importlib.import_module(".".join(parts).removesuffix(".__init__"))
"""
PYDANTIC_AI = {"pydantic_agents", "pydantic_messages", "pydantic_models"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the default installation."""
    return installed_in(tmp_path_factory.mktemp("default") / ".venv")


def installed_in(home: Path) -> Path:
    """The default installation, made of links to this environment's packages; returns its interpreter."""
    venv.create(home, symlinks=True, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    version = ".".join(map(str, sys.version_info[:3]))
    values = environment.platform_values(version)
    for pin in environment.chosen(environment.read_lock(environment.LOCK.read_text()), {environment.SERVER}):
        if not environment.applies(pin.marker, values):
            continue
        package = importlib.metadata.distribution(pin.name)
        for name in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(package.locate_file(name))))
    return home / "bin" / "python"


def run(python: Path, tmp_path: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    own = {"AGENTHOST_VAR_DIR": str(tmp_path / "var"), "PYTHONDONTWRITEBYTECODE": "1", **settings}
    variables = {**clean_environment.inherited(), **own}
    command = [str(python), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=variables, timeout=120)


@pytest.fixture
def agents_file(tmp_path: Path) -> Path:
    path = tmp_path / "agents.toml"
    path.write_text(
        '[[agents]]\nname = "harbour"\nmodel = "bedrock:some-model"\n[[agents]]\nname = "lighthouse"\npython = "keeper:agent"\n'
    )
    (tmp_path / "keeper.py").write_text("from pydantic_ai import Agent\n\nagent = Agent()\n")
    return path


EXPECTED = (
    "agents[0] (harbour) model: the provider bedrock needs the extra bedrock, which is not installed: "
    "run ops/bootstrap --with bedrock, or build the image with --build-arg EXTRAS=bedrock",
    "agents[1] (lighthouse) python: cannot import keeper: it needs the extra pydantic-ai, which is not installed: "
    "run ops/bootstrap --with pydantic-ai, or build the image with --build-arg EXTRAS=pydantic-ai",
)


def test_every_module_of_the_server_can_be_imported(python: Path, tmp_path: Path) -> None:
    code = f"PYDANTIC_AI = {sorted(PYDANTIC_AI)!r}\n{MODULES}"
    done = run(python, tmp_path, "-c", code, DJANGO_SETTINGS_MODULE="agenthost.settings")
    assert done.returncode == 0, done.stderr[-2000:]


def test_check_agents_and_doctor_name_agent_extra_and_command(python: Path, tmp_path: Path, agents_file: Path) -> None:
    done = run(python, tmp_path, "manage.py", "check_agents", str(agents_file))
    assert done.returncode == 1
    placed = [re.fullmatch(re.escape(str(agents_file)) + r":(\d+): (.*)", line) for line in done.stderr.splitlines()]
    assert [each and each[2] for each in placed] == list(EXPECTED), done.stderr
    lines = agents_file.read_text().splitlines()
    assert [lines[int(each[1]) - 1].partition(" ")[0] for each in placed if each] == ["model", "python"]
    done = run(python, tmp_path, "manage.py", "doctor", AGENTHOST_AGENTS_FILE=str(agents_file))
    assert done.returncode == 1
    assert all(line in done.stdout for line in EXPECTED), done.stdout + done.stderr


def test_the_server_does_not_start_and_says_why(python: Path, tmp_path: Path, agents_file: Path) -> None:
    done = run(python, tmp_path, "-m", "agenthost.processes", "embedded", AGENTHOST_AGENTS_FILE=str(agents_file))
    assert done.returncode == 1
    assert all(line in done.stderr for line in EXPECTED), done.stderr
    assert "Traceback" not in done.stderr


def test_runserver_names_the_development_packages(python: Path, tmp_path: Path) -> None:
    done = run(python, tmp_path, "manage.py", "runserver", "--noreload", "127.0.0.1:0")
    assert done.returncode == 1
    assert done.stderr == "CommandError: runserver needs daphne: run ops/bootstrap --dev. ops/quickstart serves without it.\n"


def wheel(folder: Path, name: str, code: str, *requires: str) -> None:
    """A package with one module of its name, as an index would have it."""
    info = f"{name}-1.0.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.variants
@pytest.mark.parametrize("place", ["checkout", "image"])
def test_packages_of_tools_are_installed_as_the_documentation_says(tmp_path: Path, place: str) -> None:
    section = (ROOT / "docs" / "packages.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    (shell,) = [text for kind, text in blocks[:2] if kind == "sh"]
    (image,) = [text for kind, text in blocks[:2] if kind == "dockerfile"]
    steps = check_container.instructions(image)
    # Only root may change the image's environment, and the server must not run as root.
    assert [each.name for each in steps][:2] == ["FROM", "USER"]
    assert [each.rest for each in steps if each.name == "USER"] == ["0", "10001:10001"]
    commands = [each.rest for each in steps if each.name == "RUN"] if place == "image" else shell.splitlines()[:2]
    python = installed_in(tmp_path / ".venv")
    (packages,) = (tmp_path / ".venv").glob("lib/python*/site-packages")
    for name in ("pip", "pip-*.dist-info"):
        (own,) = Path(str(importlib.metadata.distribution("pip").locate_file(""))).glob(name)
        (packages / own.name).symlink_to(own)
    (tmp_path / "var").mkdir()
    agents = tmp_path / "agents.toml"
    agents.write_text(
        '[[agents]]\nname = "harbour"\nmodel = "ollama:small"\n[[agents.tools]]\npython = "tide_tools:high_water"\n'
    )
    (tmp_path / "tide_tools.py").write_text(
        'import moon_phases\n\n\ndef high_water() -> str:\n    "When."\n    return moon_phases.AT\n'
    )
    done = run(python, tmp_path, "manage.py", "check_agents", str(agents))
    assert done.returncode == 1
    assert (
        f"{agents}:5: agents[0].tools[0] (harbour) python: cannot import tide_tools: it needs the module moon_phases"
        in done.stderr
    )
    assert ".venv/bin/python -m pip install" in done.stderr
    wheel(tmp_path, "moon_phases", 'AT = "06:12"')
    wheel(tmp_path, "old_moon", "", "aiohttp<3")
    before = set(packages.iterdir())
    variables = {**clean_environment.inherited(), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "HOME": str(tmp_path)}
    for wanted, fits in (("moon_phases old_moon", False), ("moon_phases", True)):
        (tmp_path / "tool-requirements.txt").write_text(wanted.replace(" ", "\n"))
        results = [
            subprocess.run(
                each, shell=True, check=False, capture_output=True, text=True, cwd=tmp_path, env=variables, timeout=120
            )
            for each in commands
        ]
        assert (results[-1].returncode == 0) is fits, results[-1].stderr
        if not fits:
            assert "old_moon" in results[-1].stdout + results[-1].stderr
            assert set(packages.iterdir()) == before
    done = run(python, tmp_path, "manage.py", "check_agents", str(agents))
    assert done.returncode == 0, done.stderr
