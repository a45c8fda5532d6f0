"""Generators of client packages with pinned versions, installed into a folder of the test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PYTHON = "openapi-python-client==0.29.1"
NODE = {"openapi-typescript": "7.13.0", "openapi-fetch": "0.17.0", "typescript": "5.9.3", "@types/node": "20.19.0"}
USES = Path(__file__).with_name("generated")
_INSTALL_SECONDS = 240


class PythonPackages:
    """openapi-python-client in its own virtual environment, with the dependencies of generated packages."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "environment" / "bin"
        self._packages = folder / "packages"
        self._packages.mkdir()
        _install([sys.executable, "-m", "venv", str(folder / "environment")], folder, PYTHON)
        _install([str(self._bin / "python"), "-m", "pip", "install", "--quiet", PYTHON], folder, PYTHON)

    def generate(self, document: Path, package: str) -> None:
        """Generate a client. Raises with the generator's output if it reports a problem in the document."""
        # It formats the generated code with a tool from its environment.
        path = {"PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}"}
        command = [str(self._bin / "openapi-python-client"), "generate", "--path", str(document), "--meta", "none"]
        run([*command, "--output-path", str(self._packages / package), "--fail-on-warning"], self._packages, **path)

    def use(self, package: str, version: int, base_url: str, key: str) -> None:
        arguments = [str(self._packages), package, str(version), base_url, key]
        run([str(self._bin / "python"), str(USES / "use_package.py"), *arguments], self._packages)


class NodePackages:
    """openapi-typescript with its client library and the TypeScript compiler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.joinpath("package.json").write_text(json.dumps({"private": True, "type": "module", "dependencies": NODE}))
        _install(["npm", "install", "--no-audit", "--no-fund", "--silent"], folder, "openapi-typescript")

    def generate(self, document: Path, version: int) -> None:
        types = self._folder / f"v{version}.d.ts"
        run(["npx", "--no-install", "openapi-typescript", str(document), "--output", str(types)], self._folder)

    def use(self, version: int, base_url: str, key: str) -> None:
        """Compile a program against the generated types; type errors raise."""
        name = f"use_v{version}"
        self._folder.joinpath(f"{name}.ts").write_text((USES / f"{name}.ts").read_text())
        options = ["--strict", "--module", "nodenext", "--target", "es2022", "--outDir", "compiled"]
        run(["npx", "--no-install", "tsc", *options, f"{name}.ts"], self._folder)
        run(["node", f"compiled/{name}.js", base_url, key], self._folder)


def compile_typescript(source: Path, folder: Path) -> Path:
    """Compile a module (.mts) in strict mode. Type errors raise, and syntax that node could not just strip."""
    wanted = {name: NODE[name] for name in ("typescript", "@types/node")}
    folder.joinpath("package.json").write_text(json.dumps({"private": True, "dependencies": wanted}))
    _install(["npm", "install", "--no-audit", "--no-fund", "--silent"], folder, "typescript")
    copied = folder / source.name
    copied.write_text(source.read_text())
    checks = ["--strict", "--noUncheckedIndexedAccess", "--erasableSyntaxOnly"]
    options = [*checks, "--types", "node", "--module", "nodenext", "--target", "es2022"]
    run(["npx", "--no-install", "tsc", *options, "--outDir", "compiled", copied.name], folder)
    return folder / "compiled" / f"{source.stem}.mjs"


def axe(folder: Path) -> str:
    """The script of axe-core, which finds barriers for people with disabilities in a page."""
    folder.joinpath("package.json").write_text(json.dumps({"private": True, "dependencies": {"axe-core": "4.14.1"}}))
    _install(["npm", "install", "--no-audit", "--no-fund", "--silent"], folder, "axe-core")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def _install(command: list[str], folder: Path, what: str) -> None:
    try:
        run(command, folder)
    except (AssertionError, FileNotFoundError, subprocess.TimeoutExpired) as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"{what} cannot be installed here: {reason[:200]}")


def run(command: list[str], folder: Path, **environment: str) -> None:
    """Run a command; raises with its output if it fails."""
    variables: Mapping[str, str] = {**os.environ, **environment}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(command[:3])}: {done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
