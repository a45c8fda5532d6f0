"""Code that an agents file names: where it is looked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_app import loader, object_references
from agents_app.errors import AgentsFileError


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    path, folders, modules = list(sys.path), list(object_references._folders), set(sys.modules)
    yield
    sys.path[:], object_references._folders[:] = path, folders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


AGENT = """
[[agents]]
name = "a"
model = "openai-chat:m"
[[agents.tools]]
python = "%s"
"""


def written(folder: Path, tool: str, **modules: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    path = folder / "agents.toml"
    path.write_text(AGENT % tool)
    return path


def test_a_module_beside_the_file_is_found(tmp_path: Path) -> None:
    (agent,) = loader.load(written(tmp_path, "harbour_tools:tide", harbour_tools="def tide() -> str:\n    return 'low'"))
    assert [tool.name for tool in agent.tools] == ["tide"]


def test_what_is_installed_is_found_first(tmp_path: Path) -> None:
    loader.load(written(tmp_path, "quay_tools:tide", quay_tools="def tide() -> str:\n    return 'low'"))
    assert sys.path[-1] == str(tmp_path)


def test_a_file_that_names_no_code_adds_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "agents.toml"
    path.write_text('[[agents]]\nname = "a"\nmodel = "openai-chat:m"')
    loader.load(path)
    assert str(tmp_path) not in sys.path


def test_a_module_that_another_one_hides_is_told_apart(tmp_path: Path) -> None:
    path = written(tmp_path, "json:dumps", json="def dumps() -> str:\n    return ''")
    with pytest.raises(AgentsFileError, match=r"json\.py is beside the agents file, but Python has another module json"):
        loader.load(path)


def test_the_modules_of_two_files_may_be_used_at_once(tmp_path: Path) -> None:
    loader.load(written(tmp_path / "one", "first_of_two:f", first_of_two="def f() -> str:\n    return ''"))
    loader.load(written(tmp_path / "two", "second_of_two:f", second_of_two="def f() -> str:\n    return ''"))
    loader.load(tmp_path / "one" / "agents.toml")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("no_such_module:f", "cannot import no_such_module: no such module"),
        ("json:no_such_name", "the module json has no no_such_name"),
        ("json", "write it as module:name"),
        ("json:", "write it as module:name"),
        (":dumps", "write it as module:name"),
        ("json:dumps:x", "write it as module:name"),
        ("../json:dumps", "write it as module:name"),
    ],
)
def test_what_leads_to_nothing_says_why(reference: str, why: str) -> None:
    with pytest.raises(object_references.ObjectNotFound) as caught:
        object_references.find(reference)
    assert str(caught.value) == why


def test_a_module_that_raises_is_named_without_its_words(tmp_path: Path) -> None:
    (tmp_path / "raising_module.py").write_text("raise SystemExit('the password is hunter2')")
    object_references.add_folder(tmp_path)
    with pytest.raises(object_references.ObjectNotFound) as caught:
        object_references.find("raising_module:x")
    assert str(caught.value) == "cannot import raising_module: importing it raised SystemExit"
