"""Pages as text: what a reader sees, in order, and never more time than the page's length is worth."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents_app.tools.markup import End, Start, tokens
from agents_app.tools.page import Page, readable


def text(page: str, limit: int = 100_000) -> str:
    return readable(page, "https://site.example/docs/page", limit).text


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("", ""),
        ("plain words", "plain words"),
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("<div>one</div><div>two</div>", "one\ntwo"),
        ("a<br>b<br/>c</br>d", "a\nb\nc\nd"),
        ("<h1>A</h1><h2>B <b>C</b></h2><p>d", "# A\n\n## B C\n\nd"),
        ("one  \n\t two", "one two"),
        ("<b>bold</b> <i>i</i><u>u</u>", "bold iu"),
        ("<hr>", "---"),
        ("x<!-- no -->y<!doctype z><?php no ?><![CDATA[no]]>", "xy"),
        # lists
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<ol start=7><li>a<li>b</ol>", "7. a\n8. b"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ul><li>a<br>b</ul>", "- a\n  b"),
        ("<dl><dt>t<dd>d<dt>u</dl>", "t\nd\nu"),
        # tables
        ("<table><tr><th>K<th>V<tr><td>a<td>1</table>", "K | V\na | 1"),
        ("<table><tbody><tr><td>a</td><td></td><td>b</td></tr></tbody></table>", "a | | b"),
        # code
        ("<pre>\n  a\n    b &lt;c&gt;\n</pre>z", "```\n  a\n    b <c>\n```\n\nz"),
        ("x <code>a  b</code>", "x a b"),
        ("<pre>let v: <a href=/vec>Vec</a> = 1;</pre>", "```\nlet v: Vec = 1;\n```"),
        # links
        ("see <a href=/x>this  page</a>.", "see [this page](https://site.example/x)."),
        ("<a href='b?c=1&amp;d=2#e'>x</a>", "[x](https://site.example/docs/b?c=1&d=2#e)"),
        ("<a href='//other.example'> x </a>y", "[x](https://other.example) y"),
        ("<a href=#top>top</a> <a>no</a> <a href=''>none</a>", "top no none"),
        ("<a href='javascript:alert(1)'>x</a><a href=mailto:a@b>m</a><a href='data:text/html,x'>d</a>", "xmd"),
        ("<a href=/a>one<a href=/b>two</a>", "[one](https://site.example/a)[two](https://site.example/b)"),
        ("<a href=/a><img alt='A cat'></a><a href=/b> </a>", "[[image: A cat]](https://site.example/a)"),
        ("<a href=/a><p>one</p><p>two</p></a>", "one\n\ntwo\n\n(https://site.example/a)"),
        ("<base href='https://else.example/d/'><a href=x>y</a>", "[y](https://else.example/d/x)"),
        ("<base href='file:///etc/'><a href=x>y</a>", "[y](https://site.example/docs/x)"),
        ("<a href='http://[x'>bad</a>", "bad"),
        # entities
        ("&lt;b&gt; &amp;amp; &eacute; &#233; &#xe9; &nbsp;&unknown; &amp", "<b> &amp; é é é &unknown; &"),
        ("&#" + "9" * 6_000 + "; &#0; &#xD800;", "\ufffd \ufffd \ufffd"),
        ("a < b > c <3 <- </ > d", "a < b > c <3 <- d"),
        # what is not shown
        ("a<script>if (1 < 2) '</p>'</script>b", "ab"),
        ("a<script><!-- <script> --></script>b", "ab"),
        ("a<style>b{}</style><SCRIPT>x</ScRiPt >b", "ab"),
        ("a<nav>menu<ul><li>x</ul></nav>b", "a\n\nb"),
        ("a<div hidden>x<div>y</div>z</div>b", "ab"),
        ("a<p hidden>x<p>b", "a\n\nb"),
        ("a<b><div hidden></b>x</div>b", "ab"),
        ("a<i style='color:red; DISPLAY : none'>x</i><i style=visibility:hidden>y</i>b", "ab"),
        ("a<i aria-hidden=true>x</i><div role=navigation>y</div><dialog>z</dialog><dialog open>b</dialog>", "a\nb"),
        ("<template>x</template><svg><title>y</title></svg><math>z</math><iframe>i</iframe>b", "b"),
        ("<select><option>x<option>y</select><textarea>z<b></textarea>b", "b"),
        ("<noscript>turn it on</noscript>", "turn it on"),
        ("<head><title>T</title></head>b", "b"),
        ("</nav></div></p>b", "b"),
        ("<nav><div>x</nav>b", "b"),
        # markup that does not end swallows the rest, as in a browser
        ("a<b", "a"),
        ("a<b c='", "a"),
        ("a<b c='x> d</b> e", "a"),
        ("a<!-- b", "a"),
        ("a<!--> b", "a b"),
        ("a<script>b", "a"),
        ("a<b c='>' d>e</b>", "ae"),
        ("a<img alt=x>b<img alt=''>c", "a[image: x]bc"),
        ("<plaintext>a<b>c", "```\na<b>c\n```"),
    ],
)
def test_a_page_reads_as_it_is_shown(page: str, shown: str) -> None:
    assert text(page) == shown


def test_the_title_is_told_apart() -> None:
    assert readable("<title> A &amp; \n B<b> </title><p>x", "https://a.example/", 100) == Page("A & B<b>", "x")
    assert readable("<title>one</title><title>two</title>", "https://a.example/", 100).title == "onetwo"
    assert len(readable(f"<title>{'x' * 10_000}</title>", "https://a.example/", 100).title) == 100


def test_reading_ends_where_the_text_is_long_enough() -> None:
    assert len(text("<p>" + "word " * 10_000, 500)) <= 500
    # Short links become long ones: what counts is what comes out.
    page = readable("<a href=x>y</a>" * 100_000, "https://a.example/" + "d" * 1_900 + "/", 50_000)
    assert len(page.text) <= 50_000


UNITS = [
    "<div>", "<ul><li>", "<", "<a ", '<a b="', "<a b='x' ", "<!--", "<!", "<?", "</", "</p x", "<title>",
    "<script>", "&", "&amp;", "&#1", "&#x", "<a href=x>y</a>",
    "<p>x", "<b>", "<b><p>x</b>", "</div>", "<table><tr><td>", "<p hidden>x", "<pre>\nx",
    "<![CDATA[", "<li>x",
    "<select><option>x", "<a href=x>", "<dl><dt><dd>", "<nav><a>",
    "<svg><title>", "<table>", "<h1><h2>", "<button><p>",
    "<i></b>", "<font></p>", "<a><div>", "<a><a href=y><b>", "<b><i><u><a><p>", "<nobr>", "<form><select><math>",
    "<img alt=x>", "<p style=';   ", "<svg><foreignObject><div>", "<template>", "<table>x<b>", "<table><td></table>",
]  # fmt: skip


def seconds(page: str) -> float:
    begun = time.thread_time()
    text(page, 2_000_000)
    return time.thread_time() - begun


@pytest.mark.parametrize("size", [80_000, pytest.param(400_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.timeout(60)
def test_time_grows_with_the_length_of_a_page_whatever_is_in_it(unit: str, size: int) -> None:
    whole = unit * (size // len(unit))
    # Quadratic time would be 64 times as long, each time. A collection of garbage can fall into one measurement, not into three.
    assert any(seconds(whole) < 40 * seconds(whole[: size // 8]) + size / 1e6 for _ in range(3))


@pytest.mark.parametrize("levels", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_any_number_of_levels_is_read_to_the_end(levels: int) -> None:
    assert text("<div>" * levels + "deep" + "</div>" * levels + "out") == "deep\nout"
    assert text("<b>" * levels + "<p>" + "</b>" * levels + "out") == "out"
    assert text("<ul><li>" * levels + "x").lstrip() == "- x"


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("<>/=\"'-!&#; \nabphidentrul1"), max_size=80))
def test_any_page_is_read(page: str) -> None:
    shown = readable(page, "https://a.example/", 1_000)
    assert len(shown.text) <= 1_000
    assert all(isinstance(token, Start | End | str) for token in tokens(page))


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([*UNITS, "x", "</p>", "</li>", "</ul>", "</a>", "</nav>", "</table>", "</pre>", "<td>"]), max_size=30
    )
)
def test_any_order_of_tags_is_read_and_what_is_behind_it_hidden_only_by_what_is_open(units: list[str]) -> None:
    readable("".join(units), "https://a.example/", 10_000)
