"""Versions that a client offers to a host of AHP 0.1, 0.9 and 1.0."""

from __future__ import annotations

import pytest

from sessions_app.ahp.versions import offers
from sessions_app.ahp.versions.v0_1 import negotiation as v0_1
from sessions_app.ahp.versions.v0_9 import negotiation

CASES = [
    (["1.0.0", "0.9.0", "0.1.0"], "1.0.0"),
    (["0.1.0", "0.9.0", "1.0.0"], "1.0.0"),
    (["0.1.0", "0.9.0"], "0.9.0"),
    (["0.9.0", "0.9.2", "0.9.1"], "0.9.2"),
    (["1.4.0"], "1.4.0"),
    (["1.0.0", "1.10.0", "1.9.0"], "1.10.0"),
    (["2.0.0", "1.0.0"], "1.0.0"),
    (["0.10.0", "0.9.0"], "0.9.0"),
    (["0.10.0"], "unsupported"),
    (["0.10.0", "0.1.0"], "0.1.0"),
    (["0.8.0", "0.5.1"], "unsupported"),
    (["0.1.0", "0.1.3"], "0.1.0"),
    ([], "unsupported"),
    (["1.0"], "invalid"),
    (["v1.0.0"], "invalid"),
    (["01.0.0"], "invalid"),
    (["1.0.0-beta"], "invalid"),
    (["1.0.0 "], "invalid"),
    ([""], "invalid"),
    (["١.0.0"], "invalid"),
    (["1.0.0\n"], "invalid"),
    (["1.0.0", "x"], "invalid"),
    (["x", "0.9.0", "0.1.0"], "invalid"),
    (["x", "0.1.0"], "0.1.0"),
    (["x", "0.8.0"], "invalid"),
    (["x", "0.8.0", "0.1.0"], "0.1.0"),
]


def expected_of(offered: list[str]) -> str:
    if offers.malformed(offered) is not None:
        return "invalid"
    choices = (negotiation.choose_1(offered), negotiation.choose_0_9(offered), v0_1.choose(offered))
    return next((choice for choice in choices if choice is not None), "unsupported")


@pytest.mark.parametrize(("offered", "expected"), CASES)
def test_the_highest_version_of_the_newest_family_is_chosen(offered: list[str], expected: str) -> None:
    assert expected_of(offered) == expected


@pytest.mark.parametrize(
    ("params", "dialect"),
    [
        ({"clientInfo": {"name": "vscode-editor-window"}}, "by provider"),
        ({"clientInfo": {"name": "vscode-agents-window"}, "_meta": {"vscode.ahpSessionUris": False}}, "by provider"),
        ({"clientInfo": {"name": "vscode-agents-window"}, "_meta": {"vscode.ahpSessionUris": True}}, "editor"),
        ({"clientInfo": {"name": "other"}, "_meta": {"vscode.ahpSessionUris": True}}, ""),
        ({"clientInfo": "vscode-editor-window"}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_only_the_editor_without_its_flag_is_shown_agents_in_uris(params: object, dialect: str) -> None:
    assert negotiation.dialect(params) == dialect


@pytest.mark.parametrize(
    ("params", "new"),
    [
        ({"channel": "ahp-root://", "lastSeenServerSeq": 1, "subscriptions": []}, True),
        ({"lastSeenServerSeq": 1, "subscriptions": ["echo:/a", "ahp-session:/b"]}, True),
        ({"lastSeenServerSeq": 1, "subscriptions": ["echo:/a"]}, False),
        ({"lastSeenServerSeq": 1, "subscriptions": 7}, False),
        ({"channel": "ahp-root://", "protocolVersions": ["0.1.0"]}, False),
    ],
)
def test_a_reconnect_of_an_unknown_client_is_known_by_its_channels(params: object, new: bool) -> None:
    assert negotiation.is_new_reconnect(params) == new
