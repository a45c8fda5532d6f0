"""A run's plan: which tools run without asking, whose tool a name is, and what a client's change does to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from agents_app.fair.threads import FairPool
from agents_app.runtime import loop
from agents_app.spec import AgentSpec, ToolSpec
from sessions_app.core.records.session_settings import Settings as SessionSettings
from sessions_app.core.records.session_settings import parsed
from sessions_app.core.turns import ActiveClient, Claimed
from sessions_app.core.worker import planning
from sessions_app.core.worker.loading import Loaded
from sessions_app.core.worker.planning import ClientChoices

PARAMETERS = {"type": "object", "properties": {}}
SPEC = AgentSpec(
    "sailor",
    "demo:demo",
    client_tools=True,
    tools=(
        ToolSpec("tides", "python:tests.core.tools:hidden", title="Tide table", parameters=PARAMETERS),
        ToolSpec("log", "python:tests.core.tools:hidden", parameters=PARAMETERS, expose=False),
        ToolSpec("off", "python:tests.core.tools:hidden", parameters=PARAMETERS),
    ),
)


def tool(name: str, title: str = "", description: str = "of the application") -> dict[str, Any]:
    return {"name": name, "description": description, "parameters": PARAMETERS, **({"title": title} if title else {})}


def settings_with(*client_tools: dict[str, Any], trust: bool = False) -> SessionSettings:
    return parsed(json.dumps([{"name": "tides", "trust": trust}]), json.dumps(list(client_tools)))


@pytest.fixture
def pool() -> Iterator[FairPool]:
    pool = FairPool(1)
    yield pool
    pool.close()


def loaded_with(settings: SessionSettings, spec: AgentSpec = SPEC, stored: int = 0) -> Loaded:
    return Loaded(
        public_id="t1",
        session_public_id="s1",
        run=1,
        step=0,
        parts=[],
        spec=spec,
        options={},
        settings=settings,
        messages=[],
        tokens=(0, 0, 0),
        seconds_left=None,
        has_calls=False,
        budget=None,
        stored=stored,
    )


def plan_of(pool: FairPool, choices: ClientChoices, **given: Any) -> loop.Plan:
    return planning.make(loaded_with(choices.settings, **given), choices, pool, Claimed(1, 1, 1, 1), lambda _: None)


def test_only_enabled_and_internal_tools_are_in_the_plan(pool: FairPool) -> None:
    plan = plan_of(pool, ClientChoices(settings_with(tool("notes")), ""))
    assert [schema.name for schema in plan.tool_schemas] == ["tides", "log", "notes"]


def test_a_tool_asks_unless_it_is_internal_trusted_or_approved_for_the_session(pool: FairPool) -> None:
    choices = ClientChoices(settings_with(), "")
    plan = plan_of(pool, choices)
    assert (plan.why_free("tides"), plan.why_free("log")) == ("", "not-needed")
    choices.settings = settings_with(trust=True)
    assert (plan.why_free("tides"), plan.why_free("off")) == ("setting", "")
    choices.settings, choices.approval = settings_with(), planning.AUTO
    assert (plan.why_free("tides"), plan.why_free("log")) == ("setting", "not-needed")


def test_a_change_adds_the_active_clients_tools_and_keeps_one_tool_per_name(pool: FairPool) -> None:
    choices = ClientChoices(settings_with(tool("notes", "Notes of the application")), "")
    plan = plan_of(pool, choices)
    assert (plan.client_tools, plan.titles) == ({"notes": None}, {"tides": "Tide table", "notes": "Notes of the application"})
    of_client = [tool(name, title, "of c1") for name, title in (("open", "Open a file"), ("notes", "Mine"), ("tides", "Mine"))]
    choices.active_clients = [ActiveClient("c1", of_client)]
    change = planning.change(SPEC, choices, plan)
    assert [schema.name for schema in change.tool_schemas] == ["tides", "log", "notes", "open"]
    # The server's tool comes before an application's, and that one before a client's.
    assert [schema.description for schema in change.tool_schemas] == ["", "", "of the application", "of c1"]
    assert {name: change.client_tools[name] for name in ("notes", "open")} == {"notes": None, "open": "c1"}
    assert change.titles == {"open": "Open a file", "notes": "Notes of the application", "tides": "Tide table"}
    assert loop.changed(plan, change).tool_schemas == change.tool_schemas
    choices.active_clients = []
    assert [schema.name for schema in planning.change(SPEC, choices, plan).tool_schemas] == ["tides", "log", "notes"]


def test_an_agent_without_client_tools_gets_none(pool: FairPool) -> None:
    spec = replace(SPEC, client_tools=False)
    choices = ClientChoices(settings_with(tool("notes")), "", [ActiveClient("c1", [tool("open")])])
    plan = plan_of(pool, choices, spec=spec)
    change = planning.change(spec, choices, plan)
    assert [schema.name for schema in plan.tool_schemas] == [schema.name for schema in change.tool_schemas] == ["tides", "log"]
    assert plan.client_tools == change.client_tools == {}


def test_bytes_of_earlier_runs_count_towards_the_turns_limit(pool: FairPool, settings: Settings) -> None:
    settings.AGENTHOST_TURN_BYTES, settings.AGENTHOST_MESSAGE_BYTES = 1000, 600
    choices = ClientChoices(settings_with(), "")
    limits = [plan_of(pool, choices, stored=stored).size_limits for stored in (0, 700)]
    assert [limit.left for limit in limits] == [1000, 300]
