"""The protocol's own cases for reducers; skipped where these files are not available."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessions_app.ahp.versions.v0_1 import reducers as v0_1
from sessions_app.ahp.versions.v0_1.wire import envelopes, state, terminals
from sessions_app.core.base.shapes import Shape
from tests.paths import ROOT

FIXTURES = ROOT.parent / "shared" / "ahp" / "reducer-fixtures"
NOW = 9999

REDUCERS: dict[str, tuple[Any, Shape[Any]]] = {
    "root": (v0_1.reduce_root, Shape(state.RootState)),
    "session": (v0_1.reduce_session, Shape(state.SessionState)),
    "terminal": (v0_1.reduce_terminal, Shape(terminals.TerminalState)),
}

pytestmark = pytest.mark.skipif(not FIXTURES.exists(), reason=f"needs the protocol's reducer fixtures in {FIXTURES}")


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
@pytest.mark.parametrize("cleaned", [False, True], ids=["as written", "as read from a client"])
def test_a_case_of_the_protocol_comes_out_as_it_says(path: Path, cleaned: bool) -> None:
    case = json.loads(path.read_text())
    reduce, shape = REDUCERS[case["reducer"]]
    held, actions = case["initial"], case["actions"]
    if cleaned:
        held = shape.read(held)
        actions = [envelopes.ACTION.read(action) if action["type"] in envelopes.TYPES else action for action in actions]
    for action in actions:
        held = reduce(held, action, NOW)
    assert without_nulls(held) == without_nulls(case["expected"])
    if cleaned:
        assert shape.faults(held) == []


def test_there_are_cases_for_every_action() -> None:
    cases = [json.loads(path.read_text()) for path in FIXTURES.glob("*.json")]
    assert {action["type"] for case in cases for action in case["actions"]} >= set(envelopes.TYPES)
