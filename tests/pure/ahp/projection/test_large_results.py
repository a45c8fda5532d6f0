"""Blocks of tool results in the state: small ones are complete, large ones are references."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.core.records import tool_contents

SMALL = "x" * values.MOST_INLINE
LARGE = SMALL + "x"


def of(content: Any, *, failed: bool = False) -> dict[str, Any]:
    return values.tool_result(content, failed=failed, call="a/b", outcome=None, session="echo:/s")


@pytest.mark.rule("R156", "R172")
def test_a_small_block_is_complete_and_a_large_one_is_referred_to() -> None:
    assert of(SMALL)["content"] == [{"type": "text", "text": SMALL}]
    reference = {
        "type": "resource",
        "uri": "echo:/s/content/result-1-a%2Fb",
        "sizeHint": values.MOST_INLINE + 1,
        "contentType": "text/plain",
    }
    blocks = of([{"type": "text", "text": "before"}, {"type": "text", "text": LARGE}])["content"]
    assert blocks == [{"type": "text", "text": "before"}, {"type": "text", "text": "x" * values.EXCERPT + values.MORE}, reference]


def test_a_large_image_is_referred_to_with_its_type() -> None:
    picture = bytes(range(256)) * 300
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    assert of([{"type": "image", "url": url}])["content"] == [
        {
            "type": "resource",
            "uri": "echo:/s/content/result-0-a%2Fb",
            "sizeHint": len(picture),
            "contentType": "image/png",
        }
    ]
    assert tool_contents.data_of({"type": "image", "url": url}) == (picture, "image/png")


def test_the_size_is_that_of_the_bytes_and_an_error_is_short() -> None:
    result = of("\u00e9" * values.MOST_INLINE + "!", failed=True)
    assert result["content"][1]["sizeHint"] == 2 * values.MOST_INLINE + 1
    assert len(result["error"]["message"]) == values.EXCERPT
