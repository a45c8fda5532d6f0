"""The root's state under its actions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sessions_app.ahp.versions.v0_1 import reducers as v0_1
from sessions_app.ahp.versions.v0_1.wire.state import RootState
from sessions_app.core.base.shapes import Shape

ROOT_STATE: Shape[RootState] = Shape(RootState)
AGENT = {"provider": "echo", "displayName": "Echo", "description": "", "models": []}
CONFIG = {
    "schema": {"type": "object", "properties": {"theme": {"type": "string", "title": "Theme"}}},
    "values": {"theme": "light", "size": 2},
}


def after(state: dict[str, Any], **action: Any) -> dict[str, Any]:
    found = cast(dict[str, Any], v0_1.reduce_root(cast(RootState, state), action, 1))
    assert ROOT_STATE.faults(found) == []
    return found


@pytest.mark.rule("R400")
def test_agents_are_replaced_whole() -> None:
    assert after({"agents": [AGENT, AGENT]}, type="root/agentsChanged", agents=[]) == {"agents": []}


@pytest.mark.rule("R400")
def test_the_number_of_sessions_is_replaced() -> None:
    assert after({"agents": [], "activeSessions": 4}, type="root/activeSessionsChanged", activeSessions=0) == {
        "agents": [],
        "activeSessions": 0,
    }


@pytest.mark.rule("R400")
def test_terminals_are_replaced_whole() -> None:
    info = {"resource": "t:/1", "title": "sh", "claim": {"kind": "client", "clientId": "c"}}
    state = after({"agents": [AGENT]}, type="root/terminalsChanged", terminals=[info])
    assert state == {"agents": [AGENT], "terminals": [info]}
    assert after(state, type="root/terminalsChanged", terminals=[]) == {"agents": [AGENT], "terminals": []}


@pytest.mark.rule("R401")
@pytest.mark.parametrize(
    ("members", "values"),
    [
        ({"config": {"theme": "dark"}}, {"theme": "dark", "size": 2}),
        ({"config": {"theme": "dark"}, "replace": False}, {"theme": "dark", "size": 2}),
        ({"config": {"theme": "dark"}, "replace": None}, {"theme": "dark", "size": 2}),
        ({"config": {"new": []}}, {"theme": "light", "size": 2, "new": []}),
        ({"config": {}}, {"theme": "light", "size": 2}),
        ({"config": {"theme": "dark"}, "replace": True}, {"theme": "dark"}),
        ({"config": {}, "replace": True}, {}),
    ],
)
def test_configuration_is_overlaid_or_replaced_and_its_schema_stays(members: dict[str, Any], values: dict[str, Any]) -> None:
    state = after({"agents": [], "config": CONFIG}, type="root/configChanged", **members)
    assert state["config"] == {"schema": CONFIG["schema"], "values": values}


@pytest.mark.rule("R401")
@pytest.mark.parametrize("state", [{"agents": []}, {"agents": [], "activeSessions": 2}])
def test_configuration_of_a_root_without_any_changes_nothing(state: dict[str, Any]) -> None:
    assert after(state, type="root/configChanged", config={"theme": "dark"}) is state


@pytest.mark.rule("R71")
def test_the_empty_root_has_agents_and_a_count() -> None:
    assert v0_1.root_state() == {"agents": [], "activeSessions": 0}
    assert ROOT_STATE.faults(v0_1.root_state()) == []
