"""The URIs of sessions and chats in AHP 0.9 and 1.0."""

from __future__ import annotations

import pytest

from sessions_app.ahp.versions.v0_9.spelling import Spelled, chat_uri, fault_of_new, fault_of_new_chat, session_uri, spelled


@pytest.mark.parametrize(
    ("uri", "family", "canonical", "by_provider"),
    [
        ("ahp-session:/abc", "1", "ahp-session:/abc", "echo:/sess_1"),
        ("echo:/abc", "1", "echo:/abc", "echo:/abc"),
        ("echo:/abc", "0.1", "ahp-session:/sess_1", "echo:/sess_1"),
        ("echo:/sess_1", "", "ahp-session:/sess_1", "echo:/sess_1"),
    ],
)
def test_a_session_keeps_the_uri_of_a_newer_client_and_gets_one_otherwise(
    uri: str, family: str, canonical: str, by_provider: str
) -> None:
    assert session_uri(uri, family, "echo", "sess_1") == canonical
    assert session_uri(uri, family, "echo", "sess_1", by_provider=True) == by_provider


@pytest.mark.parametrize("session", ["ahp-session:/a", "echo:/ab", "echo:/abc", "x:/ü?%20"])
def test_a_chat_is_found_by_the_uri_that_is_made_of_its_session(session: str) -> None:
    assert chat_uri("ahp-session:/a") == "ahp-chat://default/YWhwLXNlc3Npb246L2E"
    assert "=" not in chat_uri(session)
    assert spelled(chat_uri(session)) == Spelled("chat", session)


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("ahp-session:/sess_1", Spelled("session", "ahp-session:/sess_1", "sess_1")),
        ("echo:/sess_1", Spelled("session", "echo:/sess_1", "sess_1", "echo")),
        ("ahp-chat:/sess_1", Spelled("chat", "", "sess_1")),
        (chat_uri("echo:/sess_1"), Spelled("chat", "echo:/sess_1", "sess_1", "echo")),
        ("ahp-chat://default/%%%", Spelled("chat", "")),
        (chat_uri(chat_uri("echo:/a")), Spelled("chat", "")),
        ("ahp-chat:/other", Spelled("session", "ahp-chat:/other")),
    ],
)
def test_a_uri_is_read_as_a_session_or_a_chat(uri: str, meant: Spelled) -> None:
    assert spelled(uri) == meant


@pytest.mark.parametrize(
    "uri",
    ["", "plain", "x:", "ahp-root:/a", "AHP-CHAT:/a", "mcp:/a", "agenthost:/root", "a:/" + "x" * 1000, "a:/ü", "ahp-terminal:/1"],
)
def test_a_uri_of_something_else_is_not_taken_for_a_session(uri: str) -> None:
    assert fault_of_new(uri) is not None


@pytest.mark.parametrize("uri", ["ahp-session:/a", "echo:/a", "a://b/c"])
def test_any_other_uri_may_name_a_session(uri: str) -> None:
    assert fault_of_new(uri) is None


@pytest.mark.parametrize(
    "uri",
    ["", "plain", "ahp-chat://default/YQ", "AHP-CHAT://default/YQ", "ahp-chat:/sess_1", "echo:/sess_1", "ahp-session:/sess_1"],
)
def test_a_chat_is_not_named_like_the_chat_of_another_session(uri: str) -> None:
    assert fault_of_new_chat(uri) is not None
    assert fault_of_new_chat("ahp-chat:/mine") is None
