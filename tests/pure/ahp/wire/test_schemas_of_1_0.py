"""The declarations of 0.9 and 1.0 against the schemas of these versions; skipped where these files are not available."""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, is_typeddict

import pytest

from agents_app.exact_json import LongNumber
from sessions_app.ahp.versions.v0_9.wire import commands, envelopes
from sessions_app.ahp.versions.v1_0.wire import commands as commands_of_1_0
from sessions_app.ahp.versions.v1_0.wire import envelopes as envelopes_of_1_0
from sessions_app.core.base.shapes import is_number, members, variants
from tests.paths import ROOT

SCHEMAS = ROOT.parent / "shared" / "ahp1" / "schema"
pytestmark = pytest.mark.skipif(not SCHEMAS.exists(), reason=f"needs the schemas of AHP 0.9 and 1.0 in {SCHEMAS}")

_0_1 = ("enumerations", "messages", "tools", "questions", "config", "terminals", "state", "commands", "envelopes", "errors")
_0_9 = (
    *("enumerations", "messages", "tools", "questions", "config", "terminals", "customizations", "resources", "chat", "state"),
    *("chat_actions", "session_actions", "actions", "envelopes", "commands", "notifications", "errors"),
)
_1_0 = ("chat", "actions", "envelopes", "commands")
ADDED_BY_1_0 = ("1.0", (("v1_0", _1_0),))
UNCHANGED_SINCE_0_1 = ("0.9", (("v0_9", _0_9), ("v0_1", _0_1)))

NOT_SERVED = re.compile(
    r"Annotation(?!sSummary)|Changeset|Canvas|Otlp|Telemetry|AhpError|JsonRpcError|ResourceWatch|BackgroundWork$|ProtocolNotification"
    r"|Resource(List|Read|Write|Copy|Move|Delete|Mkdir|Resolve|Change|Type)|DirectoryEntry|ContentEncoding|InvokeChangeset"
    r"|(Create|Dispose)Terminal|ChatSource$|SideChatS|SessionForkSource|BaseParams|PaginatedResult|ResourceRequestResult"
)
"""Definitions of what this host does not serve, or of what others have written out."""
ELSEWHERE = {"URI", "StringOrMarkdown", "SessionStatus", "PaginatedParams"}

LEFT_OUT = {
    ("InitializeResult", "telemetry"),
    ("InitializeResult", "automations"),
    ("SessionState", "changesets"),
    ("ChatState", "changesets"),
    ("ChatState", "canvases"),
    ("ChatOriginSideChat", "selection"),
}
"""Members that are never sent here."""
OPTIONAL = {("MoveChatParams", "requestId")}
"""The schema requires it, and other texts of the protocol do not know it."""
TOLERANT = "channel"
"""A command that is bound to the root may come without its channel."""


@cache
def definitions(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"ahp-{version}-derived.schema.json").read_text())["$defs"]
    return found


def declared_in(places: tuple[tuple[str, tuple[str, ...]], ...], name: str) -> Any:
    for version, modules in places:
        for module in modules:
            found = vars(importlib.import_module(f"sessions_app.ahp.versions.{version}.wire.{module}")).get(name)
            if found is not None:
                return found
    return None


def objects(version: str) -> list[str]:
    if not SCHEMAS.exists():
        return []
    served = [name for name in definitions(version) if not NOT_SERVED.search(name) and name not in ELSEWHERE]
    changed = [name for name in served if version == "0.9" or definitions("0.9").get(name) != definitions(version)[name]]
    return [name for name in changed if definitions(version)[name].get("type") == "object"]


def kind_of_schema(version: str, schema: dict[str, Any]) -> set[str]:
    """What a value may be, roughly: the JSON types and words that it allows."""
    if "$ref" in schema:
        return kind_of_schema(version, definitions(version)[schema["$ref"].removeprefix("#/$defs/")])
    if "const" in schema:
        return {f"={schema['const']}"}
    if "enum" in schema:
        return {f"={word}" for word in schema["enum"]}
    if "oneOf" in schema:
        return set().union(*(kind_of_schema(version, each) for each in schema["oneOf"] if each))
    kind = schema.get("type", "any")
    if kind == "array":
        return {f"[{each}" for each in kind_of_schema(version, schema.get("items", {}))}
    return {"number" if kind == "integer" else kind}


def kind_of(declared: Any) -> set[str]:
    if get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    if declared is Any:
        return {"any"}
    if declared in (int, float, LongNumber) or is_number(declared):
        return {"number"}
    if declared in (str, bool, type(None)):
        return {{str: "string", bool: "boolean", type(None): "null"}[declared]}
    if is_typeddict(declared) or get_origin(declared) is dict:
        return {"object"}
    if get_origin(declared) is Literal:
        return {f"={word}" for word in get_args(declared)}
    if get_origin(declared) is list:
        return {f"[{each}" for each in kind_of(get_args(declared)[0])}
    return set().union(*(kind_of(each) for each in variants(declared)))


def compare(version: str, name: str, declared: Any) -> None:
    schema, found = definitions(version)[name], members(declared)
    expected = {member: value for member, value in schema["properties"].items() if (name, member) not in LEFT_OUT}
    assert set(found) == set(expected)
    for member, value in expected.items():
        tolerant = (member == TOLERANT and value.get("enum", [value.get("const")]) == ["ahp-root://"]) or (
            name,
            member,
        ) in OPTIONAL
        required = member in schema.get("required", ()) and not tolerant
        assert found[member].required == required, member
        if (name, member) != ("DispatchActionParams", "action") and value != {}:
            theirs = kind_of_schema(version, value)
            assert kind_of(found[member].declared) == theirs, member


@pytest.mark.rule("V161", "V231")
@pytest.mark.parametrize("name", objects("0.9"))
def test_an_object_of_0_9_has_the_members_of_its_definition(name: str) -> None:
    declared = declared_in(UNCHANGED_SINCE_0_1[1], name)
    assert declared is not None, f"{name} is not declared"
    compare("0.9", name, declared)


HOLDERS = {"McpServerStartingState", "ConfigPropertySchema", "SessionConfigPropertySchema"}
"""Of these 1.0 adds members that this host neither sends nor reads."""


@pytest.mark.rule("V330")
@pytest.mark.parametrize("name", [name for name in objects("1.0") if name not in HOLDERS])
def test_an_object_that_1_0_changes_has_the_members_of_its_definition(name: str) -> None:
    declared = declared_in(ADDED_BY_1_0[1], name)
    assert declared is not None, f"{name} is not declared"
    compare("1.0", name, declared)


@pytest.mark.rule("V330")
def test_all_types_of_actions_are_known() -> None:
    # The schemas have only stubs of automations and canvases.
    assert (len(envelopes.KNOWN), len(envelopes_of_1_0.KNOWN)) == (96, 106)
    for version, known in (("0.9", envelopes.KNOWN), ("1.0", envelopes_of_1_0.KNOWN)):
        named = {
            schema["properties"]["type"]["const"]
            for name, schema in definitions(version).items()
            if name.endswith("Action") and "properties" in schema
        }
        assert named <= known


def test_clients_may_dispatch_the_actions_of_the_rules() -> None:
    assert (len(envelopes.FROM_CLIENTS), len(envelopes_of_1_0.FROM_CLIENTS)) == (44, 47)
    assert envelopes.FROM_CLIENTS <= envelopes.KNOWN
    assert envelopes_of_1_0.FROM_CLIENTS <= envelopes_of_1_0.KNOWN


def test_the_commands_are_those_that_the_host_serves() -> None:
    assert set(commands_of_1_0.COMMANDS) - set(commands.COMMANDS) == {"moveChat"}
    for method, command in commands_of_1_0.COMMANDS.items():
        assert command.params.declared.__name__ == f"{method[0].upper()}{method[1:]}Params"
