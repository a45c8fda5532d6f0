"""What no event becomes in AHP 0.9 and 1.0: URIs inside of actions, risk, sign-ins, further chats, MCP servers, changesets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.wire import commands as commands_0_9
from sessions_app.ahp.versions.v0_9.wire import envelopes as v0_9
from sessions_app.ahp.versions.v1_0.wire import commands as commands_1_0
from sessions_app.ahp.versions.v1_0.wire import envelopes as v1_0
from sessions_app.core.base.events import Kind
from sessions_app.core.base.shapes import members
from tests.pure.ahp.projection.test_actions_of_1_0 import EVENTS, FLAGS, sent

each_version = pytest.mark.parametrize(
    ("face", "wire", "commands"),
    [(Face("0.9"), v0_9, commands_0_9), (Face("1"), v1_0, commands_1_0)],
    ids=["0.9", "1.0"],
)
CHAT = {"resource": "ahp-chat:/a", "title": "", "status": 1, "modifiedAt": "2026-01-01T00:00:00.000Z"}
TURNS = {"turnStarted", "delta", "reasoning", "responsePart", "turnComplete", "turnCancelled", "error", "usage", "truncated"}


def all_envelopes(face: Face) -> list[dict[str, Any]]:
    """Of every event that has one."""
    return [envelope for kind, payload, _ in EVENTS + FLAGS for _, envelope in sent(face, kind, payload)]


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(each)


@pytest.mark.rule("V3")
@each_version
def test_the_channel_is_beside_an_action_and_never_in_it(face: Face, wire: Any, commands: Any) -> None:
    for envelope in all_envelopes(face):
        assert {"session", "terminal", "resource"}.isdisjoint(envelope["action"]), envelope
        assert envelope["channel"].startswith("ahp-chat:") == envelope["action"]["type"].startswith("chat/")
    for word, declared in wire.TYPES.items():
        for action in declared:
            assert {"session", "terminal"}.isdisjoint(members(action)), word
    assert {f"chat/{name}" for name in TURNS} <= wire.KNOWN
    assert {f"session/{name}" for name in TURNS}.isdisjoint(wire.KNOWN)
    for method, command in commands.COMMANDS.items():
        params = members(command.params.declared)
        assert "channel" in params, method
        assert {"session", "terminal"}.isdisjoint(params), method


@pytest.mark.rule("V71")
@each_version
@pytest.mark.parametrize("code", ["provider_failed", "internal", "quota_tokens", "of a later release"])
def test_an_error_has_a_type_and_a_message_and_no_stack(face: Face, wire: Any, commands: Any, code: str) -> None:
    failed = {"turn": "t", "run": 1, "error": code, "duration_ms": 5, "failure": {"stack": "/srv/agent.py"}, "stack": "x"}
    ((_, envelope),) = sent(face, Kind.TURN_FAILED, failed)
    assert wire.envelope_faults(envelope) == []
    error = envelope["action"]["part"]["error"]
    assert set(error) == {"errorType", "message"}
    assert error["errorType"] == code
    assert error["message"].endswith(".")


@pytest.mark.rule("V166", "V170", "V204")
@each_version
def test_no_call_is_judged_or_waits_for_a_sign_in(face: Face, wire: Any, commands: Any) -> None:
    found = all_envelopes(face)
    waiting = [node for each in found for node in nodes(each) if node.get("status") == "pending-confirmation"]
    assert waiting, "some call waits for a confirmation"
    assert {"chat/toolCallReady", "session/inputNeededSet"} <= {each["action"]["type"] for each in found}
    assert {"chat/toolCallAuthRequired", "chat/toolCallAuthResolved"}.isdisjoint(each["action"]["type"] for each in found)
    for node in (node for each in found for node in nodes(each)):
        assert {"riskAssessment", "auth"}.isdisjoint(node), node
        assert node.get("status") != "auth-required"
        assert node.get("kind") != "toolAuthentication"
        assert node.get("contributor", {}).get("kind", "client") == "client"
    # Other hosts send them, and only hosts.
    assert {"chat/toolCallAuthRequired", "chat/toolCallAuthResolved"} <= wire.KNOWN - wire.FROM_CLIENTS


@pytest.mark.rule("V125", "V253", "V255", "V256")
@each_version
def test_the_host_adds_no_chats_servers_or_changesets(face: Face, wire: Any, commands: Any) -> None:
    types = {each["action"]["type"] for each in all_envelopes(face)}
    assert {"session/chatUpdated", "session/customizationsChanged", "session/customizationToggled"} <= types
    never = {"session/chatAdded", "session/chatRemoved", "session/defaultChatChanged", "session/chatsReordered"}
    never |= {"session/customizationUpdated", "session/customizationRemoved", "session/mcpServerStateChanged"}
    never |= {"session/changesetsChanged", "chat/changesetsChanged", "chat/canvasesChanged", "canvas/stateChanged"}
    assert never.isdisjoint(types)
    assert {each.partition("/")[0] for each in types} == {"session", "chat"}
    assert {node["type"] for each in all_envelopes(face) for node in nodes(each) if "type" in node}.isdisjoint({"mcpServer"})


@pytest.mark.rule("V120")
@each_version
def test_actions_on_the_catalogue_of_chats_have_their_members(face: Face, wire: Any, commands: Any) -> None:
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("chatAdded", {"summary": CHAT}, True),
        ("chatAdded", {"summary": {"resource": "ahp-chat:/a"}}, False),
        ("chatAdded", {}, False),
        ("chatRemoved", {"chat": "ahp-chat:/a"}, True),
        ("chatRemoved", {}, False),
        ("chatUpdated", {"chat": "ahp-chat:/a", "changes": {"title": "T"}}, True),
        ("chatUpdated", {"chat": "ahp-chat:/a", "changes": {"title": 7}}, False),
        ("chatUpdated", {"changes": {}}, False),
        ("defaultChatChanged", {"defaultChat": "ahp-chat:/a"}, True),
        ("defaultChatChanged", {}, True),
        ("chatsReordered", {"chats": ["ahp-chat:/a"]}, face.family == "1"),
        ("chatsReordered", {}, False),
    ]
    for name, given, fits in cases:
        envelope = {"channel": "ahp-session:/a", "serverSeq": 1, "action": {"type": f"session/{name}", **given}}
        assert (wire.envelope_faults(envelope) == []) == fits, (name, given)
        # The host alone sends them.
        assert f"session/{name}" not in wire.FROM_CLIENTS
