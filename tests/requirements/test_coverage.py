"""The rules and the tests name each other, both ways."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.paths import ROOT

TESTS = ROOT / "tests"
RULES = ROOT / "docs" / "rules"
PROTOCOLS = {"aap": r"\*\*(A\d+)\.", "ahp": r"\*\*(R\d+)\*\*", "ahp1": r"\*\*(V\d+)\*\*"}
"""Each protocol, and the pattern of a rule's number in its page in ``docs/rules``."""

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@cache
def manifest(protocol: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((TESTS / "requirements" / f"{protocol}.toml").read_text())


def is_there(protocol: str, entry: dict[str, Any]) -> bool:
    """Whether the version that the rule is about is still served; a rule without one always is."""
    versions = TESTS.parent / "sessions_app" / protocol / "versions"
    return "version" not in entry or (versions / f"v{entry['version']}.py").exists()


def marks_of_module(tree: ast.AST) -> list[ast.expr]:
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
    ]
    return [mark for value in values for mark in (value.elts if isinstance(value, ast.List) else [value])]


def is_slow(marks: list[ast.expr]) -> bool:
    """Whether all cases of the marked tests are in the second tier, not only some of the parameters."""
    return any(ast.unparse(mark) == "pytest.mark.slow" for mark in marks)


def marked_rules(tree: ast.AST, *, first_tier: bool = False) -> Iterator[tuple[str, int]]:
    """The ids in every ``rule(...)`` mark that stands on a test, a class of tests or a module's ``pytestmark``.

    ``first_tier``: leave out tests, classes and modules that are marked slow.
    """
    of_module = marks_of_module(tree)
    if first_tier and is_slow(of_module):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = node.decorator_list if node.name.startswith("test_") else []
        elif isinstance(node, ast.ClassDef):
            marks = node.decorator_list if node.name.startswith("Test") else []
        elif node is tree and of_module:
            marks, of_module = of_module, []
        else:
            continue
        for mark in [] if first_tier and is_slow(marks) else marks:
            for call in ast.walk(mark):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.rule":
                    for argument in call.args:
                        assert isinstance(argument, ast.Constant), "a rule mark names its rules in plain strings"
                        yield str(argument.value), call.lineno


@cache
def parsed_tests() -> list[tuple[str, ast.AST]]:
    """The modules that name a rule; to parse the others would take most of the time."""
    texts = {str(path.relative_to(TESTS)): path.read_text() for path in sorted(TESTS.rglob("test_*.py"))}
    return [(name, ast.parse(text)) for name, text in texts.items() if "mark.rule(" in text]


@cache
def rules_in_tests(*, first_tier: bool = False) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file, tree in parsed_tests():
        for rule, line in marked_rules(tree, first_tier=first_tier):
            found.setdefault(rule, []).append(f"{file}:{line}")
    return found


@every_protocol
def test_every_rule_that_is_called_tested_has_a_test(protocol: str) -> None:
    entries = manifest(protocol).items()
    tested = {rule for rule, entry in entries if entry["status"] == "tested" and is_there(protocol, entry)}
    assert sorted(tested - set(rules_in_tests())) == []


@every_protocol
def test_every_rule_has_a_test_in_the_first_tier(protocol: str) -> None:
    only_slow = rules_in_tests().keys() - rules_in_tests(first_tier=True).keys()
    assert sorted(only_slow & manifest(protocol).keys()) == []


def test_no_rule_of_aap_waits_for_anything() -> None:
    assert {rule: entry["status"] for rule, entry in manifest("aap").items() if entry["status"] != "tested"} == {}


def test_no_test_names_an_unknown_rule() -> None:
    known = {rule for protocol in PROTOCOLS for rule in manifest(protocol)}
    assert {rule: places for rule, places in rules_in_tests().items() if rule not in known} == {}


@every_protocol
def test_every_entry_has_a_title_and_a_known_status(protocol: str) -> None:
    for rule, entry in manifest(protocol).items():
        assert set(entry) - {"version"} == {"title", "status"}, rule
        assert entry.get("version", 1) in (1, 2), rule
        assert entry["title"].strip(), rule
        assert entry["status"] == "tested" or entry["status"].startswith("later: "), rule


@every_protocol
def test_the_manifest_lists_exactly_the_rules_of_the_page(protocol: str) -> None:
    numbers = re.findall(PROTOCOLS[protocol], (RULES / f"{protocol}.md").read_text())
    assert len(numbers) == len(set(numbers)), "a rule's number is used twice"
    assert list(manifest(protocol)) == sorted(numbers, key=lambda rule: int(rule[1:]))


def test_every_rule_that_code_and_docs_cite_exists() -> None:
    known = {rule for protocol in PROTOCOLS for rule in manifest(protocol)}
    missing = []
    for folder in ("agenthost", "agents_app", "sessions_app", "tests", "docs"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".py", ".md"):
                cited = re.findall(r"\(([ARV]\d+(?:, [ARV]\d+)*)\)", path.read_text())
                missing += [
                    f"{path.relative_to(ROOT)}: {rule}" for each in cited for rule in each.split(", ") if rule not in known
                ]
    assert missing == []


def test_a_mark_is_found_wherever_pytest_would_find_it() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.slow, pytest.mark.rule("A1")]
@pytest.mark.rule("A2", "A3")
class TestThing:
    @pytest.mark.rule("A4")
    async def test_that(self): ...
    @pytest.mark.rule("A5")
    def helper(self): ...
"""
    assert [rule for rule, _ in marked_rules(ast.parse(source))] == ["A1", "A2", "A3", "A4"]
    assert list(marked_rules(ast.parse(source), first_tier=True)) == []


def test_a_test_counts_for_the_first_tier_unless_all_its_cases_are_slow() -> None:
    source = """
import pytest
@pytest.mark.rule("A1")
@pytest.mark.slow
def test_this(): ...
@pytest.mark.rule("A2")
@pytest.mark.parametrize("case", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_that(case): ...
"""
    assert [rule for rule, _ in marked_rules(ast.parse(source), first_tier=True)] == ["A2"]
