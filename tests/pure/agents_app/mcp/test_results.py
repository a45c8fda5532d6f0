"""Results of MCP servers' tools, as content for the model."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent

from agents_app.errors import ToolFailed
from agents_app.mcp import results
from agents_app.runtime.messages import Content
from tests.fakes.mcp_server import PIXEL


def content(*texts: str, structured: Any = None, limit: int = 10_000) -> Content:
    result = CallToolResult(content=[TextContent(text=text) for text in texts], structured_content=structured)
    return results.content(result, limit)


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{"a":1,"b":[2]}'], {"b": [2], "a": 1}),
        (["7"], {"result": 7}),
        (["Ada"], {"result": "Ada"}),
        (["true"], {"result": True}),
        (["1", "2"], {"result": [1, 2]}),
        (['{"a":1}', '{"a":2}'], {"result": [{"a": 1}, {"a": 2}]}),
    ],
)
def test_structured_content_that_the_text_says_is_not_said_twice(texts: list[str], structured: Any) -> None:
    assert content(*texts, structured=structured) == "\n".join(texts)


@pytest.mark.parametrize(
    ("texts", "structured", "shown"),
    [
        (["Two berths are free."], {"free": 2}, 'Two berths are free.\n{"free":2}'),
        (["1"], {"result": True}, '1\n{"result":true}'),
        ([], {"a": None}, '{"a":null}'),
        (["a", "b"], {"result": ["a"]}, 'a\nb\n{"result":["a"]}'),
    ],
)
def test_structured_content_that_no_text_says_is_kept(texts: list[str], structured: Any, shown: str) -> None:
    assert content(*texts, structured=structured) == shown


def test_no_content_is_an_empty_text() -> None:
    assert content() == ""


@pytest.mark.parametrize(
    ("kind", "data"), [("image/png", "not base64!"), ("text/html", PIXEL), ("image/png\nX: y", PIXEL), ("image/png;x=y,", PIXEL)]
)
def test_an_image_that_is_none_is_a_word(kind: str, data: str) -> None:
    result = CallToolResult(content=[TextContent(text="look"), ImageContent(data=data, mime_type=kind)])
    found = results.content(result, 10_000)
    assert isinstance(found, str)
    assert found.startswith("look\n[an image of type")


def test_an_image_over_the_limit_is_left_out_and_the_rest_stays() -> None:
    result = CallToolResult(content=[ImageContent(data=PIXEL, mime_type="image/png"), TextContent(text="look")])
    assert results.content(result, 90) == "[an image of type image/png, left out because it is larger than 90 bytes]\nlook"


def test_a_failure_has_the_tools_words_and_no_more_of_them_than_fits() -> None:
    for texts, words in ((["a", "b"], "a\nb"), ([], "the tool failed without a reason"), (["x" * 9_000], "x" * 4_000)):
        with pytest.raises(ToolFailed) as caught:
            results.content(CallToolResult(content=[TextContent(text=text) for text in texts], is_error=True), 10_000)
        assert caught.value.reason == words


def test_characters_that_no_store_holds_are_replaced() -> None:
    assert content("a\x00b") == "a\ufffdb"
