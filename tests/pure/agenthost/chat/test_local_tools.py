"""Client tools of the chat, from modules and JSON files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agenthost.chat import local_tools
from agenthost.client import tools
from agenthost.client.errors import UsageError
from agenthost.client.function_schema import describe

MODULE = """
from json import dumps
import other_chat_tools as other

LIMIT = 3

def first(a: int) -> int:
    "The first."
    return a

async def second() -> str:
    "The second."
    return "2"

def _hidden() -> None: ...

class Thing: ...
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "other_chat_tools.py").write_text("def elsewhere() -> None: ...\n")
    path = tmp_path / "my_chat_tools.py"
    path.write_text(MODULE)
    return path


def test_public_functions_of_a_file_become_tools_and_it_can_import_other_files(module: Path) -> None:
    tools = local_tools.from_module(str(module))
    assert [tool.name for tool in tools] == ["first", "second"]
    assert tools[0].specification["description"] == "The first."


def test_one_function_can_be_named(module: Path) -> None:
    assert [tool.name for tool in local_tools.from_module(f"{module}:second")] == ["second"]
    with pytest.raises(UsageError, match="has no function 'third'"):
        local_tools.from_module(f"{module}:third")


def test_a_module_can_select_its_tools_with_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chosen_chat_tools.py").write_text('from textwrap import dedent\n__all__ = ["dedent"]\ndef mine() -> None: ...\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert [tool.name for tool in local_tools.from_module("chosen_chat_tools")] == ["dedent"]


def test_a_file_named_like_a_loaded_module_does_not_replace_it(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("def dumps(value: str) -> str:\n    return value\n")
    assert [tool.name for tool in local_tools.from_module(str(tmp_path / "json.py"))] == ["dumps"]
    import json as still

    assert still is json
    assert still.dumps([1]) == "[1]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", "cannot be imported: SyntaxError"),
        ("raise RuntimeError('no luck')\n", "cannot be imported: RuntimeError: no luck"),
        ("import no_such_thing\n", "there is no module 'no_such_thing'"),
        ("LIMIT = 1\n", "has no tools: it defines no public functions"),
        ("def f(*a): ...\n", "The function f cannot be a tool: its parameter a cannot be passed by name"),
        ("def größe(): ...\n", "The function 'größe' cannot be a tool: the name must be"),
    ],
)
def test_errors_in_a_tool_file_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "wrong_chat_tools.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        local_tools.from_module(str(path))


def test_two_tools_of_one_name_are_refused(module: Path, tmp_path: Path) -> None:
    declared = tmp_path / "tools.json"
    declared.write_text(json.dumps({"tools": [{"name": "first"}]}))
    with pytest.raises(UsageError, match="Two tools have the name first"):
        local_tools.load_all([str(module)], [str(declared)])


def test_a_file_declares_one_tool_or_several(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"name": "ask", "description": "Asks.", "parameters": {"type": "object"}}))
    assert [tool.specification for tool in local_tools.from_file(str(path))] == [
        {"name": "ask", "description": "Asks.", "parameters": {"type": "object"}}
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", "tool 1: a tool must be an object with a name"),
        ('[{"name": "a"}, {"name": "b c"}]', "tool 2: a tool must be an object with a name"),
        ('{"name": "a", "description": 5}', r"tool 1 \(a\): the description must be a string"),
        ('{"name": "a", "parameters": []}', r"tool 1 \(a\): the parameters must be a JSON Schema"),
    ],
)
def test_errors_in_a_tool_declaration_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tools.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        local_tools.from_file(str(path))


class Found(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, ""),
        ("text", "text"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (Found(name="x"), '{"name": "x"}'),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": "a"}]),
        ([{"type": "other"}], '[{"type": "other"}]'),
        (Path("there"), '"there"'),
    ],
)
def test_the_return_value_of_a_function_is_the_tool_result(value: Any, content: Any) -> None:
    assert tools.content_of(value) == content


def test_a_very_long_result_is_truncated() -> None:
    content = tools.content_of("x" * (tools.MOST_CHARACTERS + 7))
    assert content.endswith("\n[7 characters omitted]")


def test_an_exception_is_the_result_and_only_the_user_sees_its_location() -> None:
    def failing() -> None:
        raise ValueError("not today")

    with asyncio.Runner() as runner:
        ran = local_tools.run(describe(failing), {}, runner)
    assert ran.content == "Tool execution failed: ValueError: not today"
    assert "test_local_tools.py:" in ran.error
    assert "test_local_tools.py" not in ran.content


def test_a_coroutine_is_awaited() -> None:
    async def slow(a: int) -> int:
        await asyncio.sleep(0)
        return a + 1

    with asyncio.Runner() as runner:
        assert local_tools.run(describe(slow), {"a": 1}, runner).content == "2"
