"""`file:` URIs and the paths that they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.workspace import paths
from sessions_app.workspace.errors import BadUri, FileError, Outside

_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=60).filter(
    lambda name: name not in (".", "..")
)


@given(st.lists(_NAMES, max_size=8).map(tuple))
def test_a_path_survives_its_uri(path: paths.Path) -> None:
    assert paths.parse(paths.uri_of(path)) == path


@given(st.one_of(st.text(), st.text("file:/.%20efEF?#\\~a").map("file://".__add__)))
def test_any_text_is_a_usable_path_or_refused(text: str) -> None:
    try:
        path = paths.parse(text)
    except FileError:
        return
    paths.check(path)
    assert paths.parse(paths.uri_of(path)) == path


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///", ()),
        ("file:///a/b", ("a", "b")),
        ("FILE:///a", ("a",)),
        ("file://localhost/a", ("a",)),
        ("file:///a//b/./c/", ("a", "b", "c")),
        ("file:///a/../b", ("b",)),
        ("file:///a/%2e%2e/b/%2E", ("b",)),
        ("file:///a%20b/%C3%A9/é", ("a b", "é", "é")),
        ("file:///%252e%252e/%252F", ("%2e%2e", "%2F")),
        ("file:///a%0Ab\\c", ("a\nb\\c",)),
        ("file:///%F0%9F%98%80", ("😀",)),
        ("file:///e%CC%81", ("e\u0301",)),
    ],
)
def test_a_uri_is_decoded_once_and_resolved(uri: str, path: paths.Path) -> None:
    assert paths.parse(uri) == path


@pytest.mark.parametrize(
    "uri", ["file:///..", "file:///a/../../b", "file:///%2e%2e/etc/passwd", "file:///a/.%2e/%2e./x", "file:////../x"]
)
def test_dots_do_not_lead_above_the_root(uri: str) -> None:
    with pytest.raises(Outside):
        paths.parse(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/a",
        "a",
        "file:",
        "file:a",
        "file:/a",
        "file://",
        "file://a",
        "file://other/a",
        "file://127.0.0.1/a",
        "file://localhost:80/a",
        "file://localhost@evil/a",
        "file:\\\\a",
        "https:///a",
        "ahp-session:/a",
        " file:///a",
        "file:///a?x",
        "file:///a#x",
        "file:///a%2fb",
        "file:///a%2Fb",
        "file:///..%2f..%2fetc",
        "file:///a%00",
        "file:///a\0",
        "file:///%",
        "file:///%zz",
        "file:///%2",
        "file:///%FF",
        "file:///%C0%AE%C0%AE/x",
        "file:///%ED%A0%80",
        "file:///\ud800",
        "file:///" + "a" * 256,
        "file:///" + "é" * 128,
        "file:///" + "a/" * 200,
        "file:///" + "/".join(["a" * 200] * 20),
        "file:///" + "%61" * 6000,
        "file:///" + "/" * 20_000,
    ],
)
def test_other_texts_are_refused(uri: str) -> None:
    with pytest.raises(BadUri):
        paths.parse(uri)


def test_a_name_may_have_255_bytes() -> None:
    assert paths.parse("file:///" + "é" * 127 + "a") == ("é" * 127 + "a",)
