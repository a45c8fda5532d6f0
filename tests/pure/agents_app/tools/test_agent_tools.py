"""Tools that an agent in Python brings, run as a turn runs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_ai import BinaryContent, ToolReturn

from agents_app.errors import ToolFailed
from agents_app.fair.threads import FairPool
from agents_app.runtime.interface import Limits
from agents_app.spec import ToolSpec
from agents_app.tools import agent_tools
from agents_app.tools.source import NoFunction, resolve
from agents_app.tools.toolset import ServerTools
from tests.fakes import python_agents as fakes

HERE = "tests.fakes.python_agents"
DOT = {"type": "image", "url": "data:image/png;base64,ZG90"}


async def ran(agent: str, name: str, arguments: Mapping[str, Any]) -> Any:
    tool = agent_tools.of(getattr(fakes, agent))[name]
    spec = ToolSpec(name, f"agent:{HERE}:{agent}:{name}", parameters=tool.parameters)
    return await ServerTools([spec], FairPool(2), None, Limits()).run(name, arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("where", {"place": {"name": "Bern", "height": "540"}}, '{"place":{"name":"Bern","height":540},"days":3}'),
        ("numbers", {"first": 1, "rest": [2, 3]}, "6"),
        ("numbers", {"first": "1", "rest": []}, "1"),
        ("on_a_day", {"day": "2024-02-29"}, "Thursday"),
        ("picture", {"kind": "json"}, '{"plain":true}'),
        ("picture", {"kind": "url"}, [{"type": "image", "url": "https://example.org/dot.png"}]),
    ],
)
async def test_a_tool_is_called_as_its_library_would_and_gives_text_or_blocks(
    name: str, arguments: dict[str, Any], result: Any
) -> None:
    assert await ran("plain", name, arguments) == result


def test_images_of_results_are_blocks() -> None:
    image = BinaryContent(data=b"dot", media_type="image/png")
    shown = ToolReturn(return_value="a dot", content=["see", image], metadata={"not": "shown"})
    assert agent_tools._plain(shown) == [{"type": "text", "text": "a dot"}, {"type": "text", "text": "see"}, DOT]
    assert agent_tools._plain(["a dot:", image]) == [{"type": "text", "text": "a dot:"}, DOT]
    assert agent_tools._plain(image) == [DOT]


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("where", {"place": {"name": "nowhere"}}, "there is no such place"),
        ("where", {"place": {"height": 1}}, "the argument place.name: Field required"),
        (
            "where",
            {"place": {"name": "x", "height": -1}},
            "the argument place.height: Input should be greater than or equal to 0",
        ),
        ("wants_approval", {}, "it asks for an approval of its own, which is not supported here"),
    ],
)
async def test_why_a_tool_gave_nothing_is_told_in_words_for_the_model(name: str, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await ran("plain", name, arguments)
    assert caught.value.reason == reason


async def test_the_functions_of_an_own_class_are_tools() -> None:
    assert await ran("Counter", "double", {"x": 4}) == "8"
    with pytest.raises(ToolFailed, match="the argument x is not a whole number"):
        await ran("Counter", "double", {"x": "4"})


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (f"agent:{HERE}:plain:gone", f"{HERE}:plain has no tool gone"),
        ("agent:no_such_module:agent:where", "cannot import no_such_module: no such module"),
        (f"agent:{HERE}:Place:where", "neither a pydantic_ai.Agent nor a class with a method respond"),
    ],
)
def test_a_tool_that_the_code_no_longer_has_says_so(source: str, why: str) -> None:
    with pytest.raises(NoFunction) as caught:
        resolve(source)
    assert str(caught.value) == why
