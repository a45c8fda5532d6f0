"""The operator's rules of access to files: patterns, order, defaults, and the faults of an agents file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agents_app import access_rules, loader, spec
from agents_app.access_rules import AccessRule, Policy, strictest
from agents_app.errors import AgentsFileError
from agents_app.tools.files.uses import use_of
from tests import costs


def names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("**", ["", "a", "a/b"], []),
        (".env", [".env", "a/.env", "a/.env/below"], ["", "env", ".env2", "a.env"]),
        ("*.pem", ["a.pem", "keys/a.pem", "a.pem/inside"], ["pem", "a.pem2"]),
        ("/*.pem", ["a.pem"], ["keys/a.pem"]),
        ("/secrets", ["secrets", "secrets/a", "secrets/a/b"], ["a/secrets", "secrets2", ""]),
        ("secrets/**", ["secrets", "secrets/a/b"], ["a/secrets/b", ""]),
        ("src/*/test", ["src/a/test", "src/a/test/b"], ["src/test", "src/a/b/test"]),
        ("src/**/test", ["src/test", "src/a/test", "src/a/b/test/c"], ["src/a", "test"]),
        ("**/a/**/b", ["a/b", "x/a/y/b"], ["b/a", "a"]),
        ("a[bc]/?", ["ab/x", "ac/y/z"], ["ad/x", "ab/", "ab"]),
    ],
)
def test_a_pattern_names_paths_and_all_below_them(pattern: str, matching: list[str], other: list[str]) -> None:
    rule = AccessRule((pattern,), "deny")
    assert [path for path in matching if not rule.matches(names(path))] == []
    assert [path for path in other if rule.matches(names(path))] == []


def test_a_rule_that_restricts_ignores_letter_case_and_unicode_form_and_one_that_allows_does_not() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for spelling in (composed, decomposed, "CAF\u00c9", "CaFE\u0301"):
        assert AccessRule((composed,), "deny").matches((spelling, "menu"))
        assert AccessRule((decomposed.upper(),), "ask").matches((spelling,))
        assert AccessRule((composed,), "allow").matches((spelling,)) is (spelling == composed)
    assert AccessRule(("stra\u00dfe",), "deny").matches(("STRASSE",))


def test_the_first_rule_that_matches_decides() -> None:
    policy = Policy(
        [
            AccessRule(("/secrets/public",), "allow", ("read",)),
            AccessRule(("/secrets",), "deny"),
            AccessRule(("**",), "ask", ("write",)),
        ],
        "agent",
    )
    assert policy.decide("read", names("secrets/public/a")) == "allow"
    assert policy.decide("write", names("secrets/public/a")) == "deny"
    assert policy.decide("read", names("secrets/a")) == "deny"
    assert policy.decide("read", names("src")) == "allow"
    assert policy.decide("write", names("src")) == "ask"


def test_rules_apply_to_their_subjects_alone() -> None:
    rules = [AccessRule(("a",), "deny"), AccessRule(("b",), "ask", ("read",), ("client",))]
    agent, client = Policy(rules, "agent"), Policy(rules, "client")
    assert (agent.decide("read", ("a",)), client.decide("read", ("a",))) == ("deny", "allow")
    assert (agent.decide("read", ("b",)), client.decide("read", ("b",))) == ("allow", "ask")
    assert not Policy([AccessRule(("**",), "allow")], "agent").restricts


def test_programs_are_not_free_where_a_rule_restricts_files() -> None:
    """Rules of paths cannot restrict what a program opens."""
    rule = AccessRule((".env",), "deny", applies_to=("agent", "client"))
    assert Policy([rule], "agent").decide("run", ("src",)) == "ask"
    assert Policy([rule], "client").decide("run", ("src",)) == "deny"
    allowing = AccessRule(("**",), "allow", ("run",), ("agent", "client"))
    assert Policy([rule, allowing], "client").decide("run", ()) == "allow"
    assert Policy([AccessRule(("/a",), "deny", ("run",))], "agent").decide("run", ("b",)) == "allow"
    assert strictest(["allow", "deny", "ask"]) == "deny"
    assert strictest([]) == "allow"


def test_a_hostile_name_costs_little_time() -> None:
    rule = AccessRule(("**/a*/**/a*/**/a*b*c*d*e*f",) * 10, "deny")
    begun = time.process_time()
    assert not rule.matches(("a" * 255,) * 128)
    assert time.process_time() - begun < 125 * costs.reading_numbers()


AGENT = '[[agents]]\nname = "coder"\nmodel = "demo:guide"\n'


def read(tmp_path: Path, text: str) -> list[spec.AgentSpec]:
    file = tmp_path / "agents.toml"
    file.write_text(text)
    return loader.load(file)


def test_an_agent_has_its_own_rules_before_those_of_the_server(tmp_path: Path) -> None:
    text = f"""
[[access]]
paths = ["**/.env"]
decision = "deny"
applies_to = ["agent", "client"]
{AGENT}
[[agents.access]]
paths = ["/src", "*.md"]
operations = ["write"]
decision = "ask"
[[agents]]
name = "other"
model = "demo:guide"
"""
    coder, other = read(tmp_path, text)
    server = AccessRule(("**/.env",), "deny", ("read", "write"), ("agent", "client"))
    assert coder.access == (AccessRule(("/src", "*.md"), "ask", ("write",), ("agent",)), server)
    assert other.access == (server,)
    assert loader.server_access(tmp_path / "agents.toml") == (server,)
    document, secrets = spec.to_document(coder)
    assert spec.from_document(document, secrets) == coder
    # Workers of a release that does not know the rules leave its turns alone.
    assert spec.format_of(coder) == 5
    assert "access" not in spec.to_document(read(tmp_path, AGENT)[0])[0]


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (
            'decision = "deny"',
            'agents[0].access[0] (coder) paths: is required: a list of patterns, such as ["**/.env", "/secrets/**"]',
        ),
        ('paths = ["a"]', "agents[0].access[0] (coder) decision: is required"),
        ('paths = []\ndecision = "deny"', "agents[0].access[0] (coder) paths: must have 1 to 100 patterns"),
        ('paths = ["a"]\ndecision = "maybe"', "agents[0].access[0] (coder) decision: must be one of allow, ask, deny"),
        (
            'paths = ["a"]\ndecision = "ask"\noperations = ["delete"]',
            "agents[0].access[0] (coder) operations: may hold only read, write, run",
        ),
        ('paths = ["a"]\ndecision = "ask"\noperations = []', "agents[0].access[0] (coder) operations: must not be empty"),
        ('paths = ["a"]\ndecision = "ask"\npath = "b"', "agents[0].access[0] (coder) path: unknown key"),
        (
            'paths = ["../a"]\ndecision = "ask"',
            "agents[0].access[0] (coder) paths: '../a': a pattern has no .. in it: it begins at the root of the workspace",
        ),
        (
            'paths = ["file:///a"]\ndecision = "ask"',
            "a pattern is a path in the workspace, such as /secrets/** or *.pem, not a URI",
        ),
        ('paths = ["*.{pem,key}"]\ndecision = "ask"', "write one pattern for each alternative"),
        ('paths = ["/"]\ndecision = "deny"', "** names everything"),
        (
            'paths = ["a"]\ndecision = "ask"\noperations = ["run"]\napplies_to = ["client"]',
            "clients cannot be asked for run: a terminal is allowed or denied",
        ),
    ],
)
def test_a_fault_of_a_rule_names_its_place(tmp_path: Path, rule: str, fault: str) -> None:
    with pytest.raises(AgentsFileError) as failed:
        read(tmp_path, f"{AGENT}[[agents.access]]\n{rule}\n")
    assert any(fault in str(each) for each in failed.value.faults), [str(each) for each in failed.value.faults]


def test_more_rules_than_the_limit_are_a_fault(tmp_path: Path) -> None:
    rule = '[[access]]\npaths = ["a"]\ndecision = "deny"\n'
    with pytest.raises(AgentsFileError, match="more than 100 rules"):
        read(tmp_path, rule * (access_rules.MOST_RULES + 1) + AGENT)


def test_the_tools_that_use_files_are_known_by_their_source_not_their_name(tmp_path: Path) -> None:
    tools = """
[[agents.tools]]
builtin = "read_file"
name = "look"
[[agents.tools]]
builtin = "run_command"
[[agents.tools]]
builtin = "calculator"
[[agents.mcp]]
name = "git"
command = ["/opt/git-mcp"]
workspace = "read"
"""
    [coder] = read(tmp_path, AGENT + tools)
    looked = use_of(coder, "look")
    assert looked is not None
    assert (looked.operations, looked.path({"path": "a"}), looked.path({})) == (("read",), "a", ".")
    ran = use_of(coder, "run_command")
    assert ran is not None
    assert ran.operations == ("run",)
    assert use_of(coder, "calculator") is None
    assert use_of(coder, "read_file") is None
