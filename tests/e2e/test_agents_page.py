"""Runs the files, programs, tests and commands of the documentation for agents' authors."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents_app import loader
from agents_app.loader.table import Table
from tests.e2e.documentation_page import START, Block, Reader, fits
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

PAGE = ROOT / "docs" / "agents.md"
AGENT = '[[agents]]\nname = "a"\nmodel = "openai-chat:m"\n'
"""What a part of an agent, shown alone, is a part of."""
KEY = "sk-…"
ASKED = re.compile(r'chat harbour --once "(.*)"')


@dataclass(frozen=True)
class Fence:
    line: int
    form: str
    file: str
    text: str
    shown: str

    @property
    def command(self) -> Block:
        return Block(self.line, self.text, "text" if self.shown else "", self.shown)


def fences(page: str) -> list[Fence]:
    """Each block with the output that is shown directly below it."""
    found = list(re.finditer(r"^```(\w+)(?: (\S+))?\n(.*?)^```\n", page, re.MULTILINE | re.DOTALL))
    answers = {match.start(): match[3] for match in found if match[1] == "text"}
    return [
        Fence(page.count("\n", 0, match.start()) + 1, match[1], match[2] or "", match[3], answers.get(match.end(), ""))
        for match in found
        if match[1] != "text"
    ]


def python(*arguments: str, at: Path) -> None:
    """A program of the page runs, and complains of nothing."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=at,
        env={**keep, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(at)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(arguments)}\n{done.stdout}{done.stderr}"


LOAD = "import sys, pathlib; from agents_app import loader; loader.load(pathlib.Path(sys.argv[1]))"


class Author:
    """Who follows the page: a folder for the files, and a shell in the checkout."""

    def __init__(self, home: Path, model: ModelServer) -> None:
        self.folder = home / "harbour"
        self.folder.mkdir(exist_ok=True)
        self._model = model
        at_home = {"HOME": str(home), "AGENTHOST_URL": "http://127.0.0.1:{port}", "PYTHONDONTWRITEBYTECODE": "1"}
        self.reader = Reader(home, at=ROOT, more=at_home)

    def follow(self, fence: Fence) -> str:
        """Run a block; returns its output."""
        match fence.form:
            case "toml":
                path = self.folder / (fence.file or "part.toml")
                path.write_text(fence.text if fence.text.startswith("[[agents]]\n") else AGENT + fence.text)
                python("-W", "error", "-c", LOAD, str(path), at=self.folder)
            case "python":
                (self.folder / fence.file).write_text(fence.text)
                if fence.file.startswith("test_"):
                    python("-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio", fence.file, at=self.folder)
                else:
                    python("-W", "error", "-c", f"import {Path(fence.file).stem}", at=self.folder)
            case "sh" if fence.text.rstrip().endswith(START):
                return self._serve(fence)
            case "sh":
                if asked := ASKED.search(fence.text):
                    self._model.script([steps.text(fence.shown.strip())], name=asked[1])
                return self.reader.follow(fence.command)
            case _:
                raise AssertionError(f"{PAGE.name}:{fence.line}: a block of the form {fence.form} is run by nobody")
        return ""

    def _serve(self, fence: Fence) -> str:
        """The vendor of the page is a scripted server here."""
        agents = self.folder / "agents.toml"
        text = agents.read_text()
        model = 'model = "openai-chat:gpt-4.1-mini"\n'
        # It stays: the server reloads the file when it changes.
        agents.write_text(text.replace(model, f'{model}base_url = "{self._model.url}"\n'))
        return self.reader.serve(fence.text.rstrip().replace(KEY, "sk-of-the-page"))


@pytest.fixture
def author(tmp_path: Path) -> Iterator[Author]:
    with ModelServer() as model:
        author = Author(tmp_path, model)
        yield author
        author.reader.close()


@pytest.mark.slow
def test_commands_of_the_agents_page_have_the_documented_output(author: Author) -> None:
    wrong: list[str] = []
    for fence in fences(PAGE.read_text()):
        said = author.follow(fence)
        if fence.shown and not fits(fence.command, said):
            wrong.append(f"{PAGE.name}:{fence.line}\n{fence.text}shows\n{fence.shown}but this was said\n{said}\n")
    assert not wrong, "\n".join(wrong)


def test_every_block_of_the_agents_page_is_tested() -> None:
    page = PAGE.read_text()
    found = fences(page)
    assert {fence.form for fence in found} == {"toml", "python", "sh"}
    assert all(fence.file for fence in found if fence.form == "python")
    shown = sum(bool(fence.shown) for fence in found)
    assert len(re.findall(r"^```", page, re.MULTILINE)) == 2 * (len(found) + shown)


# --- the reference ---

EVERYTHING: Mapping[str, Any] = {
    "name": "a",
    "model": "openai-chat:m",
    "options": [{"type": "text", "name": "o"}],
    "tools": [{"builtin": "calculator"}],
    "mcp": [{"name": "m", "url": "https://mcp.example.org/"}, {"name": "p", "command": ["serve"]}],
    "compaction": "summarise",
    "summary": {},
    "limits": {},
    "price": {"m": {"input": 1, "output": 1}},
}
SECTION = re.compile(r"^### \[{1,2}(agents[^\]]*)\]{1,2}$(.*?)(?=^#)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \*?`([a-z_]+)`\*? \|", re.MULTILINE)


def keys_of_the_page() -> dict[str, list[str]]:
    return {match[1].replace('"model"', "m"): ROW.findall(match[2]) for match in SECTION.finditer(PAGE.read_text())}


def keys_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The keys that the loader reads from each table, for an agent that has all tables."""
    asked: dict[str, set[str]] = {}
    typed = Table._typed

    def noted(self: Table, key: str, *arguments: Any, **more: Any) -> Any:
        asked.setdefault(re.sub(r"\[\d+\]", "", self._place), set()).add(key)
        return typed(self, key, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Table, "_typed", noted)
        loader.read({"agents": [dict(EVERYTHING)]}, Path("agents.toml"))
    # Of these two the keys are names.
    return {place: keys for place, keys in asked.items() if place not in ("file", "agents.price")}


def test_the_reference_has_every_key_of_the_loader_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    page = keys_of_the_page()
    assert {place: set(keys) for place, keys in page.items()} == keys_of_the_loader(monkeypatch)
    assert all(len(keys) == len(set(keys)) for keys in page.values())


def test_the_documented_limits_are_those_of_the_code() -> None:
    (agent,) = loader.read({"agents": [{"name": "a", "model": "openai-chat:m"}]}, Path("agents.toml"))
    (section,) = (match[2] for match in SECTION.finditer(PAGE.read_text()) if match[1] == "agents.limits")
    rows = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (\d+) \|", section, re.MULTILINE))
    assert {name: float(value) for name, value in rows.items()} == {name: getattr(agent.limits, name) for name in rows}
    assert f"| `max_steps` | number | {agent.limits.max_steps} |" in PAGE.read_text()


# --- links ---


def anchor(heading: str) -> str:
    """As the pages' host makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_link_of_the_page_leads_somewhere() -> None:
    page = PAGE.read_text()
    anchors = {anchor(match) for match in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}
    links = re.findall(r"\]\(([^)]+)\)", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))
    lost = [link for link in links if link.startswith("#") and link[1:] not in anchors]
    files = [link.partition("#")[0] for link in links if not link.startswith(("#", "http"))]
    lost += [file for file in files if not (PAGE.parent / file).is_file()]
    assert not lost


def test_the_page_is_linked_from_the_documentation_index() -> None:
    assert "(docs/agents.md)" in (ROOT / "README.md").read_text()
