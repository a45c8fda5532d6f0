"""Parameters of tools, as MCP servers and libraries write them, are taken by every vendor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents_app import providers
from agents_app.providers import schemas
from agents_app.runtime.interface import Finish, ModelRequest
from agents_app.runtime.messages import Message, ToolSchema
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.google_server import GoogleServer
from tests.fakes.model_server import ModelServer
from tests.fakes.responses_server import ResponsesServer
from tests.fakes.scripted_server import ScriptedServer
from tests.network.agents_app.providers.vendors import LIMITS

TEXT = {"type": "string"}
BY_ID = {"type": "object", "properties": {"id": TEXT}, "required": ["id"]}
BY_NAME = {"type": "object", "properties": {"name": TEXT, "loud": {"type": "boolean"}}, "required": ["name"]}


def of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, of({})),
    "no properties": ({"type": "object"}, of({})),
    "plain": (BY_ID, BY_ID),
    "alternatives alone": ({"anyOf": [BY_ID, BY_NAME]}, of({"id": TEXT, "name": TEXT, "loud": {"type": "boolean"}})),
    "alternatives beside": (
        of({"dry": {"type": "boolean"}}, required=["dry"], oneOf=[{"required": ["dry"]}, BY_ID], description="x"),
        of({"dry": {"type": "boolean"}, "id": TEXT}, required=["dry"], description="x"),
    ),
    "all of these": (
        {"allOf": [BY_ID, BY_NAME], "additionalProperties": False},
        of({"id": TEXT, "name": TEXT, "loud": {"type": "boolean"}}, required=["id", "name"], additionalProperties=False),
    ),
    "a reference": ({"$ref": "#/$defs/Ship", "$defs": {"Ship": BY_ID}}, {**BY_ID, "$defs": {"Ship": BY_ID}}),
    "a reference that leads nowhere": ({"$ref": "#/$defs/Ship"}, of({})),
    "a reference to itself": ({"$ref": "#"}, of({})),
    "a circle": ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, of({}, **{"$defs": {"A": {"$ref": "#/$defs/A"}}})),
    "perhaps null": ({"type": ["object", "null"], "properties": {"id": TEXT}}, of({"id": TEXT})),
    "an array of anything": (
        of({"a": {"type": "array"}, "b": {"anyOf": [{"type": "array", "prefixItems": [TEXT]}, {"type": "null"}]}}),
        of(
            {
                "a": {"type": "array", "items": {}},
                "b": {"anyOf": [{"type": "array", "prefixItems": [TEXT], "items": {}}, {"type": "null"}]},
            }
        ),
    ),
    "alternatives further down": (of({"at": {"oneOf": [BY_ID, BY_NAME]}}), of({"at": {"oneOf": [BY_ID, BY_NAME]}})),
    "a property called anyOf": (of({"anyOf": TEXT}), of({"anyOf": TEXT})),
    "no table where one is due": ({"anyOf": "x", "properties": {}, "required": None}, of({}, required=None)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_of_it(kind: str) -> None:
    given, expected = KINDS[kind]
    assert schemas.of_object(given) == expected


def test_order_and_what_was_given_stay() -> None:
    given = {"properties": {"b": TEXT, "a": {"type": "array"}}, "type": "object", "required": ["b"]}
    assert list(schemas.of_object(given)) == ["properties", "type", "required"]
    assert given["properties"]["a"] == {"type": "array"}  # type: ignore[index]


SERVERS: dict[str, type[ScriptedServer]] = {
    "openai-chat:gpt-test": ModelServer,
    "openai-responses:gpt-5.2": ResponsesServer,
    "anthropic:claude-sonnet-4-5": AnthropicServer,
    "google:gemini-3-pro": GoogleServer,
}


@pytest.fixture(params=SERVERS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(model: str) -> Iterator[ScriptedServer]:
    kind = SERVERS[model]
    with ModelServer(strict=True) if kind is ModelServer else kind() as serving:
        yield serving


async def test_every_vendor_takes_them(model: str, server: ScriptedServer) -> None:
    tools = [ToolSchema(f"tool_{number}", "Does.", given) for number, (given, _) in enumerate(KINDS.values())]
    vendor, _, name = model.partition(":")
    provider = providers.find(vendor)
    assert provider is not None
    asked = ModelRequest(name, "", [Message("user", "x")], tools, api_key="k", base_url=server.url, limits=LIMITS)
    found = [event async for batch in provider.stream(asked) for event in batch]
    assert server.requests[0].refused == ""
    assert found[-1] == Finish("stop")
