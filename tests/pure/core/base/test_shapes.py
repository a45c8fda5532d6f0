"""Shapes: reading clients' input, checking the server's output."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from agents_app import exact_json
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.base.shapes import MOST_FAULTS, NonEmpty, Number, Rule, Shape, Unique


class Leaf(TypedDict):
    name: str
    size: NotRequired[int]
    weight: NotRequired[Number]
    anything: NotRequired[Any]


class Branch(TypedDict):
    leaf: Leaf
    leaves: NotRequired[list[Leaf]]
    named: NotRequired[dict[str, Leaf]]
    inner: NotRequired[Branch]
    owner: NotRequired[Leaf | None]
    holder: NotRequired[str | Leaf]


class Circle(TypedDict):
    kind: Literal["circle"]
    radius: Number


class OpenLine(TypedDict):
    kind: Literal["line"]
    closed: Literal[False]
    end: str


class ClosedLine(TypedDict):
    kind: Literal["line"]
    closed: Literal[True]


class Named(TypedDict):
    title: str


BRANCH: Shape[Branch] = Shape(Branch)
FIGURE: Shape[Circle | OpenLine | ClosedLine] = Shape(Circle | OpenLine | ClosedLine)


def complaint(shape: Shape[Any], value: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        shape.read(value)
    return caught.value.describe("it")


def test_a_valid_value_is_returned_as_the_same_object() -> None:
    value = {"leaf": {"name": "a", "size": 1}, "leaves": [{"name": "b"}], "more": {"of": None}}
    assert BRANCH.read(value) is value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "it must be an object"),
        ([], "it must be an object"),
        ({}, "it.leaf is required"),
        ({"leaf": None}, "it.leaf must not be null"),
        ({"leaf": {}}, "it.leaf.name is required"),
        ({"leaf": {"name": 1}}, "it.leaf.name must be a string"),
        ({"leaf": {"name": "a", "size": "1"}}, "it.leaf.size must be an integer"),
        ({"leaf": {"name": "a", "size": 1.5}}, "it.leaf.size must be an integer"),
        ({"leaf": {"name": "a", "size": True}}, "it.leaf.size must be an integer"),
        ({"leaf": {"name": "a", "weight": False}}, "it.leaf.weight must be a number"),
        ({"leaf": {"name": "a"}, "leaves": {}}, "it.leaves must be an array"),
        ({"leaf": {"name": "a"}, "leaves": [{"name": "b"}, {}]}, "it.leaves[1].name is required"),
        ({"leaf": {"name": "a"}, "leaves": [None]}, "it.leaves[0] must be an object"),
        ({"leaf": {"name": "a"}, "named": []}, "it.named must be an object"),
        ({"leaf": {"name": "a"}, "named": {"x": {"name": 0}}}, "it.named.x.name must be a string"),
        ({"leaf": {"name": "a"}, "inner": {"leaf": 3}}, "it.inner.leaf must be an object"),
        ({"leaf": {"name": "a"}, "holder": 3}, "it.holder must be an object or a string"),
        ({"leaf": {"name": "a"}, "holder": {}}, "it.holder.name is required"),
        ({"leaf": 1, "leaves": 2}, "it.leaf must be an object; it.leaves must be an array"),
    ],
)
def test_a_fault_names_its_path_and_the_expected_type(value: object, words: str) -> None:
    assert complaint(BRANCH, value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"radius": 1}, "it.kind is required"),
        ({"kind": "square"}, "it.kind must be one of circle, line"),
        ({"kind": []}, "it.kind must be one of circle, line"),
        ({"kind": "circle"}, "it.radius is required"),
        ({"kind": "line"}, "it.closed is required"),
        ({"kind": "line", "closed": 1}, "it.closed must be one of false, true"),
        ({"kind": "line", "closed": False}, "it.end is required"),
    ],
)
def test_a_variant_is_chosen_by_its_constants_one_after_the_other(value: object, words: str) -> None:
    assert complaint(FIGURE, value) == words


def test_every_variant_is_read() -> None:
    for value in (
        {"kind": "circle", "radius": 0.5},
        {"kind": "line", "closed": True},
        {"kind": "line", "closed": False, "end": ""},
    ):
        assert FIGURE.read(value) is value


def test_variants_without_constants_differ_by_their_required_members() -> None:
    shape: Shape[Any] = Shape(Leaf | Named)
    assert shape.read({"name": "a"})
    assert shape.read({"title": "a"})
    assert complaint(shape, {"title": 1}) == "it.title must be a string"
    assert complaint(shape, {}) == "it must be an object with one of name, title"


@pytest.mark.rule("R30")
def test_unknown_members_are_kept() -> None:
    value = {"leaf": {"name": "a", "x": 1, "size": 2.0}, "y": None}
    assert BRANCH.read(value) == {"leaf": {"name": "a", "x": 1, "size": 2}, "y": None}


@pytest.mark.rule("R36")
def test_null_for_an_optional_member_is_read_as_absent() -> None:
    value = {"leaf": {"name": "a", "size": None, "anything": None}, "leaves": None, "named": {"x": {"name": "b", "weight": None}}}
    assert BRANCH.read(value) == {"leaf": {"name": "a"}, "named": {"x": {"name": "b"}}}
    assert value["leaf"] == {"name": "a", "size": None, "anything": None}, "what came in stays as it came"


def test_null_is_kept_for_a_member_that_may_be_null() -> None:
    value = {"leaf": {"name": "a"}, "owner": None}
    assert BRANCH.read(value) == value
    assert BRANCH.faults(value) == []


@pytest.mark.rule("R35")
def test_a_whole_number_is_read_as_an_integer_however_it_was_written() -> None:
    read = BRANCH.read({"leaf": {"name": "a", "size": 3.0}, "leaves": [{"name": "b", "size": 1e3}]})
    assert repr(read) == repr({"leaf": {"name": "a", "size": 3}, "leaves": [{"name": "b", "size": 1000}]})


def test_numbers_stay_exact() -> None:
    value = exact_json.loads('{"leaf":{"name":"a","weight":0.1000000000000000000000001},"leaves":[{"name":"b","weight":1.0}]}')
    assert exact_json.dumps(BRANCH.read(value)) == exact_json.dumps(value)
    assert complaint(BRANCH, {"leaf": {"name": "a", "size": exact_json.loads("1e400")}}) == "it.leaf.size must be an integer"


def test_a_string_may_be_required_not_to_be_empty() -> None:
    shape: Shape[str] = Shape(NonEmpty)
    assert shape.read("a") == "a"
    assert complaint(shape, "") == "it must not be empty"
    assert complaint(shape, 3) == "it must be a string"


def test_only_the_first_faults_are_reported() -> None:
    shape: Shape[Any] = Shape(list[str])
    assert complaint(shape, [0] * 1_000_000).count("must be a string") == MOST_FAULTS


def test_a_fault_never_contains_a_value_and_cuts_long_names() -> None:
    words = complaint(BRANCH, {"leaf": {"name": ["hush-hush"]}, "named": {"k" * 10_000: 1}})
    assert "hush-hush" not in words
    assert len(words) < 300


# --- notes, and shapes that drop unknown members ---


class Entry(TypedDict):
    name: Annotated[str, "A description.", Rule(lambda name: None if name.islower() else "must be lower case")]
    value: NotRequired[str | list[Leaf]]


ENTRIES: Shape[list[Entry]] = Shape(Annotated[list[Entry], Unique("name", "is there already")], unknown="drop", most_faults=100)


def test_a_rule_checks_a_value_that_has_the_right_type() -> None:
    assert ENTRIES.read([{"name": "a"}, {"name": "b", "value": [{"name": "x"}]}])
    assert complaint(ENTRIES, [{"name": "A"}, {"name": 1}]) == "it[0].name must be lower case; it[1].name must be a string"
    assert complaint(ENTRIES, [{"name": "a", "value": 1}]) == "it[0].value must be an array or a string"


def test_names_that_must_be_unique_are_checked_among_items_without_faults() -> None:
    assert complaint(ENTRIES, [{"name": "a"}, {"name": "a"}, {}, 1]) == (
        "it[1].name is there already; it[2].name is required; it[3] must be an object"
    )


@pytest.mark.rule("A11", "A94")
def test_unknown_members_are_dropped_and_the_others_keep_their_order() -> None:
    value = [{"y": 1, "value": [{"name": "x", "z": 1}], "x": 2, "name": "a"}]
    assert repr(ENTRIES.read(value)) == "[{'value': [{'name': 'x'}], 'name': 'a'}]"


def test_faults_are_reported_from_the_place_of_the_value() -> None:
    with pytest.raises(InvalidInput) as caught:
        ENTRIES.read([{"name": 1}], ("body", 2))
    assert [fault.path for fault in caught.value.faults] == [("body", 2, 0, "name")]


def test_a_shape_says_how_many_faults_it_reports() -> None:
    assert complaint(ENTRIES, [0] * 150_000).count("must be an object") == 100


def test_a_union_of_lists_needs_a_rule() -> None:
    with pytest.raises(TypeError, match="nothing distinguishes"):
        Shape[Any](list[Leaf] | list[Named]).read([])


# --- what the server sends ---


@pytest.mark.rule("R35", "R36")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"leaf": {"name": "a", "size": None}}, ["it.leaf.size must be left out instead of null"]),
        ({"leaf": {"name": "a", "size": 3.0}}, ["it.leaf.size must be an integer"]),
        ({"leaf": {"name": "a", "sise": 3}}, ["it.leaf.sise is not a member that this version knows"]),
        (
            {"leaf": {"name": "a"}, "leaves": [{"name": 1}, {}]},
            ["it.leaves[0].name must be a string", "it.leaves[1].name is required"],
        ),
        ({"leaf": {"name": "a", "size": 3, "weight": 1.5}}, []),
    ],
)
def test_output_is_checked_strictly(value: object, words: list[str]) -> None:
    assert [fault.describe("it") for fault in BRANCH.faults(value)] == words


def test_a_declaration_without_a_json_shape_raises_type_error() -> None:
    with pytest.raises(TypeError):
        Shape[Any](set[str]).read([])
    with pytest.raises(TypeError, match="nothing distinguishes"):
        Shape[Any](Named | TypedDict("Same", {"title": int})).read({})  # type: ignore[operator]
