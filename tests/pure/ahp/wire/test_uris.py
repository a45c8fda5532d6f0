"""Addresses that a client may choose."""

from __future__ import annotations

import pytest

from sessions_app.ahp import uris


@pytest.mark.rule("R60")
@pytest.mark.parametrize(
    ("uri", "scheme"),
    [
        ("echo:/1", "echo"),
        ("echo:/a/b%20c", "echo"),
        ("urn:uuid:1b4e28ba", "urn"),
        ("Echo+x.1-2:/a", "Echo+x.1-2"),
        ("echo://host:80/a?b=c#d", "echo"),
        ("agenthost:/terminal/1", "agenthost"),
        ("echo:a", "echo"),
    ],
)
def test_a_uri_with_scheme_and_path_is_one(uri: str, scheme: str) -> None:
    assert uris.scheme(uri) == scheme


@pytest.mark.rule("R60")
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "echo",
        "/a",
        ":/a",
        "1echo:/a",
        "echo:",
        "echo://host",
        "echo:?a",
        "echo:#a",
        "echo:/a b",
        "echo:/ä",
        "echo:/%zz",
        "echo:/a\n",
        "echo:/%2",
        "ec ho:/a",
        "echo:/<a>",
        "echo://a[b/c d",
    ],
)
def test_anything_else_is_none(uri: str) -> None:
    assert uris.scheme(uri) is None
