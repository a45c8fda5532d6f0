"""The OpenAPI documents: valid, complete and in accordance with the running code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from pytest_django import Settings

from agents_app.spec import HISTORY_KINDS, IMAGE_KINDS, STREAM_MODES
from sessions_app.aap import problems, stream
from sessions_app.aap.openapi import document as documents
from sessions_app.aap.openapi.document import UndescribedError, document
from sessions_app.aap.openapi.routes import Routed, routes

VERSIONS = sorted(routes())
METHODS = {"get", "put", "post", "delete", "patch", "head", "options"}


@pytest.fixture(autouse=True)
def _made_anew() -> None:
    documents._made.cache_clear()


def made(version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document(version))
    return found


def operations(version: int) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in made(version)["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    }


def test_every_version_that_has_an_address_is_described() -> None:
    assert 3 in VERSIONS
    assert [made(version)["components"]["schemas"]["Meta"]["properties"]["version"]["const"] for version in VERSIONS] == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_the_document_is_valid_openapi_3_1(version: int, capfd: pytest.CaptureFixture[str]) -> None:
    found = made(version)
    assert found["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(found).iter_errors()] == []
    # Whatever drf-spectacular could not make sense of it would say here.
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_shape_of_the_document_is_used(version: int) -> None:
    text = document(version).decode()
    shapes = made(version)["components"]["schemas"]
    assert [name for name in shapes if f'"#/components/schemas/{name}"' not in text] == []


def inline_branches(schema: Any, place: str = "") -> Iterator[str]:
    """Where an alternative is a shape without a name."""
    if isinstance(schema, list):
        for number, each in enumerate(schema):
            yield from inline_branches(each, f"{place}/{number}")
    if isinstance(schema, dict):
        for word in ("oneOf", "anyOf", "allOf"):
            yield from (f"{place}/{word}/{number}" for number, each in enumerate(schema.get(word, ())) if each.keys() != {"$ref"})
        for name, each in schema.items():
            yield from inline_branches(each, f"{place}/{name}")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_alternative_is_a_shape_with_a_name(version: int) -> None:
    """Generators of clients name the others themselves: two of them get the same name, and a module is missing."""
    assert list(inline_branches(made(version)["components"])) == []
    assert list(inline_branches({"oneOf": [{"type": "string"}]})) == ["/oneOf/0"]


@pytest.mark.rule("A122")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_answer_says_that_it_has_a_request_id(version: int) -> None:
    for operation in operations(version).values():
        for status, answer in operation["responses"].items():
            assert "X-Request-Id" in answer["headers"], (operation["operationId"], status)


@pytest.mark.rule("A6")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_refusal_is_a_problem_document_of_its_status(version: int) -> None:
    for operation in operations(version).values():
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                continue
            [(form, shown)] = answer["content"].items()
            assert form == problems.CONTENT_TYPE
            assert shown["schema"] == {"$ref": "#/components/schemas/Problem"}
            assert {example["value"]["status"] for example in shown["examples"].values()} == {int(status)}


NOT_OVER_AAP = {
    *("agent_unknown", "address_taken", "turn_unknown", "not_possible", "dispatched_before", "content_not_found"),
    *("path_outside", "path_not_found", "path_taken", "workspace_full", "workspaces_off", "files_away"),
    *("access_denied", "access_needed", "file_changed", "watches_off"),
    *("terminal_not_found", "terminal_taken", "terminals_unavailable", "template_unusable"),
    *("token_not_found", "webhook_not_found", "key_not_found"),
    *("tenant_not_found", "member_not_found", "invitation_unusable", "right_missing", "reason_needed"),
}
"""Errors of the core that no request of this protocol can meet."""


@pytest.mark.rule("A6")
def test_every_error_of_the_core_is_documented_where_it_may_be_met() -> None:
    told = {
        name
        for operation in operations(3).values()
        for answer in operation["responses"].values()
        for form in answer.get("content", {}).values()
        for name in form["examples"]
    }
    untold = {kind.code for kind in problems.TABLE} - told
    assert untold == NOT_OVER_AAP, "an error is either among an operation's refusals or another face's"


@pytest.mark.rule("A2")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_operation_names_the_scope_that_it_needs(version: int) -> None:
    for (method, path), operation in operations(version).items():
        needed = "meta:read" if path == "/meta" else "sessions:read" if method == "GET" else "sessions:write"
        assert f"`{needed}`" in operation["description"], (method, path)
        assert operation["security"] == [{"key": []}]


@pytest.mark.rule("A2")
def test_a_public_meta_is_documented_as_one_that_needs_no_key(settings: Settings) -> None:
    settings.AGENTHOST_PUBLIC_META = True
    found = operations(3)
    assert found["GET", "/meta"]["security"] == [{"key": []}, {}]
    assert found["GET", "/sessions"]["security"] == [{"key": []}]


@pytest.mark.rule("A55")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_events_of_a_stream_are_those_that_the_encoder_shows(version: int) -> None:
    kinds = made(version)["components"]["schemas"]["Event"]["discriminator"]["mapping"]
    assert set(kinds) == {name for mode in get_args(stream.Mode) for name in stream.event_names(mode)}


@pytest.mark.rule("A23")
def test_the_capabilities_are_those_that_agents_can_declare() -> None:
    kinds = {"history": HISTORY_KINDS, "stream": STREAM_MODES, "application": ("tools",), "image": IMAGE_KINDS}
    shown = made(3)["components"]["schemas"]["Capabilities"]["properties"]
    assert {name: tuple(schema["properties"]) for name, schema in shown.items()} == kinds


@pytest.mark.rule("A104")
@pytest.mark.parametrize("version", [version for version in VERSIONS if version < 3])
def test_a_stream_that_begins_a_session_has_one_event_more(version: int) -> None:
    shapes = made(version)["components"]["schemas"]
    more = set(shapes["OpeningEvent"]["discriminator"]["mapping"]) - set(shapes["Event"]["discriminator"]["mapping"])
    assert more == {"session_start"}


@pytest.mark.rule("A102")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_tools_schema_has_the_name_that_the_version_knows(version: int) -> None:
    name, other = ("parameters", "inputSchema") if version == 3 else ("inputSchema", "parameters")
    shapes = made(version)["components"]["schemas"]
    assert name in shapes["ToolSpecification"]["properties"]
    assert name in shapes["ToolSpecification"]["required"]
    assert f'"{other}"' not in json.dumps(shapes)


@pytest.mark.rule("A120", "A121", "A123", "A98")
@pytest.mark.parametrize("version", VERSIONS)
def test_additions_of_this_server_are_described_in_every_version(version: int) -> None:
    found = operations(version)
    [joined] = [operation for (_method, path), operation in found.items() if path.endswith("/events/stream")]
    assert {"Last-Event-ID", "after", "stream", "follow"} <= {each["name"] for each in joined["parameters"]}
    assert {"200", "204", "400", "404", "410", "422"} <= joined["responses"].keys()
    [cancel] = [operation for (_method, path), operation in found.items() if path.endswith("/cancel")]
    assert cancel["requestBody"]["required"] is False
    [turn] = [operation for operation in found.values() if operation["operationId"] == "sendTurn"]
    assert {"Idempotency-Key", "X-Turn-Deadline"} <= {each["name"] for each in turn["parameters"]}
    assert {"X-Turn-Id", "RateLimit", "RateLimit-Policy"} <= turn["responses"]["200"]["headers"].keys()
    assert {"Retry-After", "RateLimit", "RateLimit-Policy"} <= turn["responses"]["429"]["headers"].keys()


def test_a_route_without_a_description_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    described(monkeypatch, without=("GET", "/meta"))
    with pytest.raises(UndescribedError, match="GET /meta has no description"):
        document(3)


def test_a_description_without_a_route_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    described(monkeypatch, beside=("PUT", "/meta"))
    with pytest.raises(UndescribedError, match=r"without a route.*PUT.*/meta"):
        document(3)


def described(
    monkeypatch: pytest.MonkeyPatch, *, without: tuple[str, str] | None = None, beside: tuple[str, str] | None = None
) -> None:
    true = routes()[3].description()
    told = {place: operation for place, operation in true.operations.items() if place != without}
    if beside is not None:
        told[beside] = told["GET", "/meta"]
    monkeypatch.setattr(Routed, "description", lambda _self: replace(true, operations=told))


def test_the_documentation_is_not_loaded_before_it_is_requested() -> None:
    code = (
        "import sys, agenthost.asgi\n"
        "from django.urls import get_resolver\n"
        "get_resolver().resolve('/aap/v1/meta')\n"
        "print({'drf_spectacular', 'jsonschema', 'json_schema', 'v3_description', 'v3_examples'}"
        " & {name.rpartition('.')[2] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
