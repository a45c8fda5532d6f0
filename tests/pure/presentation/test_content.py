"""Content made harmless: whatever was stored, a page can show it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.presentation.content import IMAGE_SHOWN, TEXT_SHOWN, Block, blocks, cut, pretty

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.text() | JSON.map(json.dumps))
def test_any_stored_text_gives_blocks(content: str) -> None:
    for block in blocks(content):
        assert not block.image or block.image.startswith("data:image/")


@given(st.text())
def test_a_plain_text_comes_back_whole_or_says_how_much_is_missing(text: str) -> None:
    excerpt = cut(text, 5)
    assert text.startswith(excerpt.text)
    assert len(excerpt.text) + excerpt.hidden == len(text)


def test_arguments_keep_their_order_and_their_numbers() -> None:
    assert (
        pretty('{"b":12345678901234567890123,"a":[1.0,"ä"]}')
        == '{\n  "b": 12345678901234567890123,\n  "a": [\n    1.0,\n    "ä"\n  ]\n}'
    )


@pytest.mark.parametrize("text", ["{broken", "", "[" * 100_000, "9" * 5000, '{"a": NaN}'])
def test_what_is_no_json_is_shown_as_it_is(text: str) -> None:
    assert pretty(text) == text


def test_an_unknown_block_is_shown_as_it_was_stored() -> None:
    assert [(block.kind, block.excerpt.text) for block in blocks('[{"type":"video","x":1}]')] == [
        ("unreadable", '{"type":"video","x":1}')
    ]


def test_a_large_inline_picture_is_only_named_until_it_is_asked_for() -> None:
    url = "data:image/png;base64,iVBORw0KGgo" + "A" * (IMAGE_SHOWN + 1)
    content = json.dumps([{"type": "image", "url": url}])
    (named,) = blocks(content)
    assert (named.image, named.excerpt.text) == ("", "inline image/png, 112 KB, not shown")
    (shown,) = blocks(content, most=None)
    assert shown.image == url


def test_a_long_text_is_cut() -> None:
    (block,) = blocks(json.dumps("x" * (TEXT_SHOWN + 7)))
    assert (len(block.excerpt.text), block.excerpt.hidden) == (TEXT_SHOWN, 7)


def test_the_lines_of_a_diff_are_told_apart_also_those_that_look_like_its_head() -> None:
    text = "Edited a.\n--- a\n+++ a\n@@ -1,3 +1,3 @@\n same\n--- minus\n+++ plus\n\\ No newline at end of file"
    kinds = [kind for kind, _ in Block("diff", cut(text)).diff_lines]
    assert kinds == ["note", "head", "head", "place", "same", "removed", "added", "same"]
