"""Parsing of ``/meta``, and option values of the chat."""

from __future__ import annotations

from typing import Any

import pytest

from agenthost.chat import options
from agenthost.chat.screen import Screen
from agenthost.client import agents
from agenthost.client.errors import ProtocolError, UsageError

META: dict[str, Any] = {
    "version": 3,
    "agents": [
        {
            "name": "demo",
            "version": "1.0.0",
            "tools": [{"name": "calculator", "description": "Calculates."}, {"description": "nameless"}],
            "options": [
                {"type": "select", "name": "manner", "options": ["brief", "long"], "default": "long"},
                {"type": "secret", "name": "password", "default": ""},
                {"type": "text", "name": "name", "default": ""},
            ],
            "capabilities": {"stream": {"message": {}, "none": {}}, "history": {"compacted": {}}, "new": {"thing": {}}},
            "unheard": 1,
        },
        {"name": "bare"},
        "no agent",
    ],
}


def test_meta_is_read_with_missing_and_unknown_members() -> None:
    demo, bare = agents.parse_meta(META)
    assert (demo.stream_mode, demo.history_kind, list(demo.tools)) == ("message", "compacted", ["calculator"])
    assert demo.options["manner"].choices == ("brief", "long")
    assert (bare.stream_mode, bare.history_kind, bare.version) == ("none", None, "")


@pytest.mark.parametrize("document", [None, [], {}, {"version": 3}, {"version": "3", "agents": []}, {"version": 2, "agents": []}])
def test_other_protocol_versions_are_refused(document: object) -> None:
    with pytest.raises(ProtocolError):
        agents.parse_meta(document)


def test_an_unknown_name_is_reported_with_the_most_similar_one() -> None:
    known = agents.parse_meta(META)
    with pytest.raises(UsageError, match=r"There is no agent 'dmeo'; did you mean demo\? Available:\n  demo"):
        agents.find(known, "dmeo")
    with pytest.raises(UsageError, match=r"no option 'xyz'\. It has manner, password, name\."):
        known[0].option("xyz")
    with pytest.raises(UsageError, match="It has none"):
        known[1].tool("calculator")


def given(*written: str, variables: tuple[str, ...] = ()) -> dict[str, str]:
    import io

    screen = Screen(io.StringIO(), io.StringIO(), colour=False)
    return options.from_arguments(agents.parse_meta(META)[0], written, variables, None, screen)


def test_options_are_read_from_arguments_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_PASSWORD", "sesame=open")
    assert given("name=a=b", "manner=brief", variables=("password=CHAT_PASSWORD",)) == {
        "password": "sesame=open",
        "name": "a=b",
        "manner": "brief",
    }
    assert given("password=", "name=") == {"password": "", "name": ""}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("password=seen", "password is a secret"),
        ("manner=rude", "manner cannot be 'rude'; choose one of brief, long"),
        ("manner", "needs a terminal"),
        ("nmae=x", "did you mean name"),
    ],
)
def test_an_invalid_option_value_is_refused_by_the_client(written: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        given(written)
    assert "seen" not in str(refused.value)


def test_a_secret_is_never_shown() -> None:
    demo = agents.parse_meta(META)[0]
    assert options.display(demo.options["password"], {"password": "sesame"}) == "***"
    assert options.display(demo.options["manner"], {}) == "long (default)"
