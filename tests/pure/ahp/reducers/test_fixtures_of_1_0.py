"""The protocol's cases for the reducers of AHP 0.9 and 1.0; skipped where these files are not available."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from sessions_app.ahp.versions.v0_9 import reducers as v0_9
from sessions_app.ahp.versions.v1_0 import reducers as v1_0
from tests.paths import ROOT
from tests.pure.ahp.reducers.test_fixtures import without_nulls

FIXTURES = ROOT.parent / "shared" / "ahp1" / "reducer-fixtures"

pytestmark = pytest.mark.skipif(not FIXTURES.exists(), reason=f"needs the protocol's reducer fixtures in {FIXTURES}")


def folded(reducers: Any, case: dict[str, Any]) -> Any:
    state = case["initial"]
    for action in case["actions"]:
        before, sent = copy.deepcopy(state), copy.deepcopy(action)
        following = reducers.reduce(state, action)
        assert (state, action) == (before, sent), "nothing that was given is changed"
        state = following
    return state


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_of_the_protocol_ends_in_the_expected_state(path: Path) -> None:
    case = json.loads(path.read_text())
    expected = without_nulls(case["expected"])
    assert without_nulls(folded(v1_0, case)) == expected
    if {action["type"] for action in case["actions"]}.isdisjoint(ADDED):
        assert without_nulls(folded(v0_9, case)) == expected


def test_there_are_cases_for_most_actions() -> None:
    cases = [json.loads(path.read_text()) for path in FIXTURES.glob("*.json")]
    named = {action["type"] for case in cases for action in case["actions"]}
    known = {name for steps in v1_0.STEPS.values() for name in steps}
    assert len(known & named) > 0.8 * len(known)


ADDED = {
    "session/chatsReordered",
    "session/mcpServerBackgroundRequested",
    "chat/isReadChanged",
    "chat/isArchivedChanged",
    "chat/backgroundWorkSet",
    "chat/backgroundWorkRemoved",
    "chat/movableChanged",
    "chat/changesetsChanged",
    "chat/canvasesChanged",
}


@pytest.mark.rule("V305", "V330")
def test_a_client_of_0_9_ignores_the_actions_that_1_0_added() -> None:
    names_0_9, names_1_0 = ({name for steps in each.STEPS.values() for name in steps} for each in (v0_9, v1_0))
    assert names_1_0 - names_0_9 == ADDED
    chat: dict[str, Any] = {"status": 1, "turns": []}
    assert v0_9.reduce(chat, {"type": "chat/isReadChanged", "isRead": True}) is chat
