"""The security page: every attack on it names tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
ATTACKS = re.findall(r"^- (?:.+\n?)(?:^  .+\n?)*", PAGE.split("## Attacks")[1].split("## What is not stopped")[0], re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_page_lists_attacks_at_each_of_its_borders() -> None:
    borders = re.findall(r"^(\d)\. \*\*", PAGE, re.MULTILINE)
    assert borders == re.findall(r"^### (\d)\. ", PAGE, re.MULTILINE) != []
    assert len(ATTACKS) == len(re.findall(r"^- \*\*", "".join(ATTACKS), re.MULTILINE))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack[4:40])
def test_an_attack_names_the_tests_that_show_what_stops_it(attack: str) -> None:
    named = TEST.findall(attack)
    assert named
    assert [(path, name) for path, name in named if name not in _functions(path)] == []
