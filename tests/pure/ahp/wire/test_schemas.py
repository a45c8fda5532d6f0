"""Our declarations against the protocol's own schemas; skipped where these files are not available.

Both are brought into one plain notation and compared, so no definition, member, demand or word is forgotten. Where they differ on
purpose, the difference and its reason stand here.
"""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, is_typeddict

import pytest

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.wire import commands, envelopes, errors
from sessions_app.core.base.shapes import is_number, members, variants
from tests.paths import ROOT

SCHEMAS = ROOT.parent / "shared" / "ahp" / "schema"
FILES = ("state", "actions", "commands", "notifications", "errors")

pytestmark = pytest.mark.skipif(not SCHEMAS.exists(), reason=f"needs the protocol's JSON Schemas in {SCHEMAS}")

MODULES = [
    importlib.import_module(f"sessions_app.ahp.versions.v0_1.wire.{name}")
    for name in (
        *("enumerations", "messages", "tools", "questions", "config", "terminals", "state"),
        *("actions", "envelopes", "commands", "notifications", "errors"),
    )
]

RENAMED = {"ResourceReponsePart": "ContentRefPart"}

CODES = {"JsonRpcErrorCode", "AhpErrorCode"}
NO_VALUE = {"AhpErrorDetailsMap"}
"""A table of the other definitions, never sent."""

OPTIONAL = {
    ("ActionEnvelope", "origin"),
    ("Turn", "usage"),
    ("ActiveTurn", "usage"),
    ("SessionActivityChangedAction", "activity"),
    ("SessionMetaChangedAction", "_meta"),
}
"""A3: listed as required, and left out on the wire all the same."""

CORRECTED: dict[tuple[str, str], Any] = {
    # A4
    ("SessionActiveClientChangedAction", "activeClient"): ("one of", frozenset({"SessionActiveClient", "null"})),
    # A5
    **{
        ("ToolDefinition", name): (
            "object",
            (
                ("properties", False, ("map", "any")),
                ("required", False, ("list", "string")),
                ("type", True, frozenset({"object"})),
            ),
        )
        for name in ("inputSchema", "outputSchema")
    },
    **{
        (holder, name): ("object", (("content", True, "ContentRef"), ("uri", True, "string")))
        for holder in ("FileEdit", "ToolResultFileEditContent")
        for name in ("before", "after")
    },
    **{
        (holder, "edits"): ("object", (("items", True, ("list", "FileEdit")),))
        for holder in ("ToolCallPendingConfirmationState", "SessionToolCallReadyAction")
    },
    # A6
    ("SessionToolCallApprovedAction", "approved"): frozenset({True}),
    ("SessionToolCallDeniedAction", "approved"): frozenset({False}),
    # R262: what a session is called by never changes, and the host must leave it out.
    ("SessionSummaryChangedNotification", "changes"): (
        "object",
        (
            ("activity", False, "string"),
            ("diffs", False, ("list", "FileEdit")),
            ("model", False, "ModelSelection"),
            ("modifiedAt", False, "number"),
            ("project", False, "ProjectInfo"),
            ("status", False, "number"),
            ("title", False, "string"),
            ("workingDirectory", False, "string"),
        ),
    ),
    # R80: what the action is is judged after other questions.
    ("DispatchActionParams", "action"): ("object", (("type", True, "string"),)),
}

UNNAMED = {
    *("FileEditSide", "FileEditDiff", "FileEdits", "ToolSchema", "ToolCallError", "SessionSummaryChanges", "DispatchedAction"),
}
"""Objects that we have a name for and the schemas have not."""


@cache
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in FILES:
        for definition, schema in json.loads((SCHEMAS / f"{name}.schema.json").read_text())["$defs"].items():
            found.setdefault(definition, schema)
    return found


def ours(name: str) -> Any:
    for module in MODULES:
        declared = getattr(module, RENAMED.get(name, name), None)
        if declared is not None:
            return declared
    pytest.fail(f"nothing of ours is called {name}")


def plain(word: str) -> str:
    return re.sub("[^a-z0-9]", "", word.lower())


# --- both sides in one notation ---


def theirs_in_notation(schema: dict[str, Any], at: tuple[str, str]) -> Any:
    if at in CORRECTED:
        return CORRECTED[at]
    schema = {key: value for key, value in schema.items() if key != "description"}
    if "$ref" in schema:
        return referred(schema["$ref"].removeprefix("#/$defs/"))
    if "oneOf" in schema:
        # An empty schema among them is a slip of whatever wrote the files.
        choices = [theirs_in_notation(choice, ("", "")) for choice in schema["oneOf"] if choice]
        return joined([choice for choice in choices if choice is not None])
    if "enum" in schema:
        return frozenset(schema["enum"])
    match schema.get("type"):
        case None:
            return "any"
        case "array":
            return ("list", theirs_in_notation(schema["items"], ("", "")))
        case "object":
            if "properties" in schema:
                demanded = set(schema.get("required", ()))
                return (
                    "object",
                    tuple(
                        sorted(
                            (name, name in demanded, theirs_in_notation(value, ("", "")))
                            for name, value in schema["properties"].items()
                        )
                    ),
                )
            return ("map", theirs_in_notation(schema.get("additionalProperties", {}), ("", "")))
        case kind:
            return kind


def referred(name: str) -> Any:
    """A reference; to a scalar or an enumeration it counts as what that is (A1, A2)."""
    if name == "":
        return None
    if name in ("URI", "SessionStatus"):
        return "string" if name == "URI" else "number"
    enumeration, _, member = name.partition(".")
    if enumeration == "ActionType":
        return frozenset(word for word in envelopes.TYPES if plain(word) == plain(member))
    if enumeration == "NotificationType":
        return frozenset({f"notify/{member[0].lower()}{member[1:]}"})
    if get_origin(declared := ours(enumeration)) is Literal:
        words = get_args(declared)
        return frozenset(word for word in words if not member or plain(word) == plain(member))
    return RENAMED.get(name, name)


def ours_in_notation(declared: Any) -> Any:
    if get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    if declared is Any:
        return "any"
    if declared in (str, bool, type(None)):
        return {str: "string", bool: "boolean", type(None): "null"}[declared]
    # R35 makes integers of numbers; the schemas know only the one kind.
    if declared is int or is_number(declared):
        return "number"
    if is_typeddict(declared):
        return object_of(declared) if declared.__name__ in UNNAMED else declared.__name__
    if get_origin(declared) is Literal:
        return frozenset(get_args(declared))
    if get_origin(declared) is list:
        return ("list", ours_in_notation(get_args(declared)[0]))
    if get_origin(declared) is dict:
        return ("map", ours_in_notation(get_args(declared)[1]))
    return joined([ours_in_notation(variant) for variant in variants(declared)])


def object_of(declared: Any) -> Any:
    return (
        "object",
        tuple(sorted((name, member.required, ours_in_notation(member.declared)) for name, member in members(declared).items())),
    )


def joined(choices: list[Any]) -> Any:
    """A choice; one among words is just more words, and one that has a name stands for its members."""
    flat = set()
    for choice in choices:
        union = UNIONS.get(choice) if isinstance(choice, str) else None
        flat |= set(union) if union else {choice}
    if all(isinstance(choice, frozenset) for choice in flat):
        return frozenset().union(*flat)
    return ("one of", frozenset(flat))


UNIONS: dict[str, list[Any]] = {
    "SessionToolCallConfirmedAction": ["SessionToolCallApprovedAction", "SessionToolCallDeniedAction"],
}


def resolved(notation: Any) -> Any:
    """With the names of unions replaced by what they stand for: our declarations have forgotten those names."""
    if isinstance(notation, str) and notation in schemas() and "oneOf" in schemas()[notation]:
        if notation == "StringOrMarkdown":
            return ("one of", frozenset({"string", "Markdown"}))
        return resolved(theirs_in_notation(schemas()[notation], ("", "")))
    if isinstance(notation, tuple):
        return tuple(resolved(part) for part in notation)
    if isinstance(notation, frozenset):
        return frozenset(resolved(part) for part in notation)
    return notation


# --- comparing ---


def definitions(kind: str) -> list[str]:
    if not SCHEMAS.exists():
        return []
    objects = [name for name, schema in schemas().items() if schema.get("type") == "object" and name not in NO_VALUE]
    unions = [name for name, schema in schemas().items() if "oneOf" in schema]
    return objects if kind == "objects" else unions


@pytest.mark.rule("R37")
@pytest.mark.parametrize("name", definitions("objects"))
def test_an_object_has_the_members_of_its_definition(name: str) -> None:
    schema, found = schemas()[name], members(ours(name))
    expected = {
        member: (
            member in schema.get("required", ()) and (name, member) not in OPTIONAL,
            resolved(theirs_in_notation(value, (name, member))),
        )
        for member, value in schema["properties"].items()
    }
    assert {member: (entry.required, resolved(ours_in_notation(entry.declared))) for member, entry in found.items()} == expected


@pytest.mark.rule("R37")
@pytest.mark.parametrize("name", definitions("unions"))
def test_a_choice_has_the_variants_of_its_definition(name: str) -> None:
    assert resolved(ours_in_notation(ours(name))) == resolved(name)


@pytest.mark.rule("R37", "R370")
def test_every_definition_is_an_object_a_choice_or_a_list_of_codes() -> None:
    assert set(schemas()) - set(definitions("objects")) - set(definitions("unions")) == CODES | NO_VALUE


@pytest.mark.rule("R37")
def test_no_object_of_ours_is_unknown_to_the_schemas() -> None:
    names = {
        declared.__name__
        for module in MODULES
        for declared in vars(module).values()
        if is_typeddict(declared) and not declared.__name__.startswith("_")
    }
    unknown = names - {RENAMED.get(name, name) for name in schemas()} - UNNAMED
    # One is half of a definition that is written out where it is used; the other is what the method is called with (R260).
    assert unknown == {"Markdown", "NotificationParams"}


@pytest.mark.rule("R32")
def test_the_error_codes_are_those_of_the_schemas() -> None:
    assert {int(code) for code in errors.Code} == set(schemas()["AhpErrorCode"]["enum"])
    of_json_rpc = {value for name, value in vars(jsonrpc).items() if name.isupper() and isinstance(value, int) and value < 0}
    assert of_json_rpc == set(schemas()["JsonRpcErrorCode"]["enum"])


@pytest.mark.rule("R37")
def test_every_method_has_the_params_and_the_result_of_its_name() -> None:
    for method, command in commands.COMMANDS.items():
        name = method[0].upper() + method[1:]
        assert command.params.declared is ours(f"{name}Params"), method
        if f"{name}Result" in schemas():
            assert command.result.declared is ours(f"{name}Result"), method
        elif method != "reconnect":
            assert command.result.declared is None, method
    for method, shape in commands.NOTICES.items():
        assert shape.declared is ours(f"{method[0].upper()}{method[1:]}Params"), method
    taking = {name for name in schemas() if name.endswith("Params")}
    assert len(commands.COMMANDS) + len(commands.NOTICES) == len(taking)


# --- what only the page of the rules lists ---

RULES = SCHEMAS.parent / "RULES.md"


def rule(number: str) -> str:
    found = re.search(rf"^- \*\*{number}\*\* (.*)$", RULES.read_text(), re.MULTILINE)
    assert found is not None, number
    return found[1]


def test_every_enumeration_has_the_words_of_the_rules() -> None:
    listed = {
        name: {word.strip() for word in words.rstrip(". ").split(",")}
        for name, words in re.findall(r"`(\w+)` ([^·`]+)", rule("A2"))
    }
    assert len(listed) > 20
    assert {name: set(get_args(ours(name))) for name in listed} == listed


def actions_named(text: str) -> set[str]:
    """``root/a``, or ``session/`` once and then the rest of each name."""
    found, prefix = set(), ""
    for word in re.findall(r"`([\w/]+)`", text):
        if word.endswith("/"):
            prefix = word
        else:
            found.add(word if "/" in word else prefix + word)
    return found


@pytest.mark.rule("R85", "R86")
def test_who_may_send_which_action_is_as_the_rules_say() -> None:
    assert actions_named(rule("R85")) == set(envelopes.FROM_CLIENTS)
    assert actions_named(rule("R86")) == set(envelopes.TYPES) - envelopes.FROM_CLIENTS
