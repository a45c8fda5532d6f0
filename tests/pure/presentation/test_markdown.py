"""Markdown in transcripts: readable, and harmless whatever it is."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from sessions_app.presentation import markdown

ALLOWED = {
    "p", "ul", "ol", "li", "blockquote", "em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td", "br", "hr",
    "code", "pre", "a",
}  # fmt: skip
ATTRIBUTES = {"a": {"href", "rel", "target"}, "p": {"class"}, "pre": {"class"}}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert name in ATTRIBUTES.get(tag, set()), (tag, name)
            if name == "href":
                assert value is not None
                assert value.lower().startswith(("http:", "https:", "mailto:")), value

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> str:
    reader = Reader()
    reader.feed(str(markdown.render(text)))
    reader.close()
    return reader.text


PIECES = some.sampled_from(
    ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[a](javascript:alert(1))", "![x](http://evil/x.png)",
     "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,x)", '[a](http://x" onclick="alert(1))', "<http://a.b>", "`", "```\n",
     "> ", "- ", "1. ", "| a | b |\n|---|---|\n", "# ", "**", "_", "\n\n", "&lt;", "&#106;avascript:", "]", "(", "<!--", "\0"]
)  # fmt: skip


@given(some.lists(PIECES | some.text(max_size=20), max_size=12).map("".join))
@example("<svg/onload=alert(1)>")
@example("[a]: javascript:alert(1)\n\n[a]")
@example("[x](http://a.b '\"><script>')")
@example('!["><script>](http://a)')
def test_no_text_becomes_a_tag_or_an_address_that_is_not_on_the_list(text: str) -> None:
    read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**bold** and `code`", "<p><strong>bold</strong> and <code>code</code></p>"),
        ("- one\n- two", "<ul><li>one</li><li>two</li></ul>"),
        ("# Title", '<p class="ah-heading">Title</p>'),
        ("```py\nx < 1\n```", '<pre class="ah-code"><code>x &lt; 1\n</code></pre>'),
        ("[a](https://a.b)", '<p><a href="https://a.b" rel="noopener noreferrer nofollow" target="_blank">a</a></p>'),
        ("[a](ftp://a.b)", "<p>a</p>"),
        ("![cat](https://a.b/c.png)",
         '<p>[image: <a href="https://a.b/c.png" rel="noopener noreferrer nofollow" target="_blank">cat</a>]</p>'),
    ],
)  # fmt: skip
def test_markdown_is_shown_as_people_read_it(text: str, expected: str) -> None:
    assert str(markdown.render(text)) == expected


def test_tables_of_models_are_tables() -> None:
    shown = str(markdown.render("| a | b |\n|---|---|\n| 1 | 2 |"))
    assert shown == "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>"


def test_deep_nesting_is_shown_and_takes_little_time() -> None:
    for text in (">" * 20_000, "- " * 10_000, "[" * 20_000, "*a " * 6_000, "`" * 20_000, "![" * 9_000):
        read(text)
