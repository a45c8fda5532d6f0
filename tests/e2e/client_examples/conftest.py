"""The examples of clients as programs: Java is compiled once a run, TypeScript by npm's compiler or run as it is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e import generators
from tests.e2e.client_examples.program import Program
from tests.e2e.server import Server
from tests.fakes.byte_server import ByteServer, byte_server
from tests.paths import ROOT

EXAMPLES = ROOT / "examples" / "clients"
Start = Callable[..., Program]

# The JVM's quick start: these programs run for a second.
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
_COMMANDS: dict[str, Sequence[str]] = {}
"""The command of each example that was prepared in this run, by its kind."""


def _java(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    if shutil.which("javac") is None:
        pytest.skip("no javac on the PATH, version 11 or newer; Debian, Ubuntu: apt-get install default-jdk-headless")
    folder = tmp_path_factory.mktemp("java")
    source = str(EXAMPLES / "java" / "Chat.java")
    generators.run(["javac", "--release", "11", "-Xlint:all", "-Werror", "-d", str(folder), source], folder)
    return [*JAVA, "-cp", str(folder), "Chat"]


def _java_source(_: pytest.TempPathFactory) -> Sequence[str]:
    if shutil.which("javac") is None:
        pytest.skip("no JDK on the PATH, version 11 or newer; Debian, Ubuntu: apt-get install default-jdk-headless")
    return [*JAVA, str(EXAMPLES / "java" / "Chat.java")]


def _typescript(_: pytest.TempPathFactory) -> Sequence[str]:
    if shutil.which("node") is None:
        pytest.skip("no node on the PATH")
    can = subprocess.run(["node", "-p", "!!process.features.typescript"], capture_output=True, text=True, check=False)
    if can.stdout.strip() != "true":
        pytest.skip("this node does not run TypeScript (22.18 or newer does); with --all, npm's compiler compiles the example")
    return ["node", str(EXAMPLES / "typescript" / "chat.mts")]


def _typescript_compiled(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    if shutil.which("npm") is None:
        pytest.skip("no npm on the PATH")
    compiled = generators.compile_typescript(EXAMPLES / "typescript" / "chat.mts", tmp_path_factory.mktemp("typescript"))
    return ["node", str(compiled)]


_KINDS = {
    "java": _java,
    "java-source": _java_source,
    "typescript": _typescript,
    "typescript-compiled": _typescript_compiled,
}
COMPILED = ["java", "typescript-compiled"]


@pytest.fixture
def start(
    request: pytest.FixtureRequest, hall: Server, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[Start]:
    """Starts an example, by default with the server that the tests share. No example may show its key."""
    kind = request.param
    if kind not in _COMMANDS:
        _COMMANDS[kind] = _KINDS[kind](tmp_path_factory)
    programs: list[Program] = []

    def run(url: str = hall.origin(), key: str = hall.keys.alice, agent: str = "demo", **environment: str) -> Program:
        settings = {"AGENTHOST_URL": url, "AGENTHOST_KEY": key, "AGENTHOST_AGENT": agent, **environment}
        programs.append(Program(_COMMANDS[kind], settings, tmp_path))
        return programs[-1]

    yield run
    for program in programs:
        program.close()
    for program in programs:
        assert hall.keys.alice not in program.answer.text + program.notes.text


@pytest.fixture
def scripted() -> Iterator[ByteServer]:
    with byte_server() as server:
        yield server
