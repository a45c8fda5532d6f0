"""Turns whose agent works under the operator's rules of access: real files, a real worker, the scripted model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_app.access_rules import AccessRule
from agents_app.spec import AgentSpec, ToolSpec
from agents_app.tools.signature import describe
from agents_app.tools.source import BUILTINS
from sessions_app.core.turns import Accepted, Decision, Permission, calls
from sessions_app.models import Session, ToolCall
from tests.core.conftest import World, wait_for, wait_for_state
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.core.worker.test_file_tools import TOOLS, play, results, tree_of, trusted, volume_directory
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text

__all__ = ["volume_directory"]
pytestmark = pytest.mark.django_db(transaction=True)

RULES = (
    AccessRule(("**/.env",), "deny"),
    AccessRule(("/guarded",), "ask"),
    AccessRule(("/src",), "ask", ("write",)),
)


@pytest.fixture
def coder(agents: Callable[..., AgentSpec], volume_directory: Path) -> AgentSpec:
    made = [ToolSpec(name, f"builtin:{name}", None, *describe(BUILTINS[name])) for name in (*TOOLS, "run_command")]
    return agents(tools=tuple(made), access=RULES)


@pytest.fixture
def session(alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer, volume_directory: Path) -> Session:
    """A session that trusts every tool, with files."""
    start_worker()
    made = alice.session(tools=trusted(*TOOLS, "run_command"))
    play(alice, model, made, ("write_file", {"path": "plain.txt", "content": "plain words\n"}))
    tree = tree_of(volume_directory, made)
    for name, content in {".env": "KEY=1", "src/.env": "KEY=2", "guarded/a": "guarded words", "src/b": "source words"}.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(content)
        os.chown(tree / name, tree.stat().st_uid, tree.stat().st_gid)
        os.chown((tree / name).parent, tree.stat().st_uid, tree.stat().st_gid)
    return made


def ask(world: World, model: ModelServer, session: Session, name: str, arguments: dict[str, Any], call_id: str) -> Accepted:
    """Start a turn with one call, which has to be permitted although the session trusts its tool."""
    accepted = world.say(session, model.script([call(name, arguments, id=call_id)], [text("done")]))
    wait_for(lambda: ToolCall.objects.filter(session=session, call_id=call_id, state="pending").exists(), "the question")
    wait_for_state(accepted, "waiting")
    return accepted


def test_what_a_rule_denies_is_refused_hidden_and_not_searched(alice: World, session: Session, model: ModelServer) -> None:
    found = play(
        alice,
        model,
        session,
        ("read_file", {"path": ".env"}),
        ("read_file", {"path": "none/.ENV"}),
        ("write_file", {"path": "src/.env", "content": "x"}),
    )
    found += play(
        alice,
        model,
        session,
        ("list_files", {}),
        ("search_files", {"pattern": "KEY|words"}),
        ("list_files", {"pattern": ".env"}),
    )
    denied = "Tool execution failed: the operator's rules of access do not permit this: "
    assert found[:3] == [f"{denied}.env", f"{denied}none/.ENV", f"{denied}src/.env"]
    assert found[3] == "guarded/\nguarded/ [cannot be listed: needs permission]\nplain.txt\nsrc/\nsrc/b"
    assert found[4] == (
        "2 matches in 2 files:\nplain.txt:1: plain words\nsrc/b:1: source words\n"
        "[incomplete: 1 files were left out: the user has to be asked; give the path of one]"
    )
    assert found[5] == "Nothing in . matches .env."


def test_a_link_to_what_a_rule_denies_is_refused(
    alice: World, session: Session, model: ModelServer, volume_directory: Path
) -> None:
    tree = tree_of(volume_directory, session)
    (tree / "notes").symlink_to(".env")
    (tree / "open").symlink_to("guarded/a")
    found = play(alice, model, session, ("read_file", {"path": "notes"}), ("read_file", {"path": "open"}))
    assert found[0] == "Tool execution failed: notes: the operator's rules of access do not permit this"
    assert "want the user to be asked about this path itself" in found[1]
    assert found[1].endswith("/guarded/a)")


@pytest.mark.rule("R163", "R389")
def test_a_rule_that_asks_counts_more_than_the_sessions_trust(alice: World, session: Session, model: ModelServer) -> None:
    accepted = ask(alice, model, session, "read_file", {"path": "guarded/a"}, "r")
    alice.answer(session, Permission(0, "r", granted=True))
    wait_for_state(accepted, "done")
    assert results(session)[-1] == "guarded/a: lines 1 to 1 of 1\n     1\tguarded words"
    # One call was permitted: the next one asks again.
    accepted = ask(alice, model, session, "read_file", {"path": "guarded/a"}, "again")
    alice.answer(session, Permission(0, "again", granted=False))
    wait_for_state(accepted, "done")
    assert results(session)[-1].startswith("Tool call denied")


def test_a_permission_for_one_path_opens_no_other(
    alice: World, session: Session, model: ModelServer, volume_directory: Path
) -> None:
    """A file that becomes a link while the user is asked is not followed to another path that would have to be asked for."""
    tree = tree_of(volume_directory, session)
    (tree / "src" / "c").symlink_to("../guarded/a")
    accepted = ask(alice, model, session, "write_file", {"path": "src/c", "content": "overwritten"}, "w")
    alice.answer(session, Permission(0, "w", granted=True))
    wait_for_state(accepted, "done")
    assert "want the user to be asked about this path itself" in results(session)[-1]
    assert (tree / "guarded" / "a").read_text() == "guarded words"


def test_a_permission_to_write_a_file_makes_its_missing_directories(
    alice: World, session: Session, model: ModelServer, volume_directory: Path
) -> None:
    accepted = ask(alice, model, session, "write_file", {"path": "src/new/deep/file", "content": "x"}, "w")
    alice.answer(session, Permission(0, "w", granted=True))
    wait_for_state(accepted, "done")
    assert results(session)[-1].startswith("Created src/new/deep/file")
    assert (tree_of(volume_directory, session) / "src/new/deep/file").read_text() == "x"
    accepted = ask(alice, model, session, "write_file", {"path": "guarded/new/file", "content": "x"}, "g")
    alice.answer(session, Permission(0, "g", granted=True))
    wait_for_state(accepted, "done")
    assert (tree_of(volume_directory, session) / "guarded/new/file").read_text() == "x"


def test_a_permission_to_list_a_directory_opens_what_is_below_it(alice: World, session: Session, model: ModelServer) -> None:
    accepted = ask(alice, model, session, "search_files", {"pattern": "words", "path": "guarded"}, "s")
    alice.answer(session, Permission(0, "s", granted=True))
    wait_for_state(accepted, "done")
    assert results(session)[-1] == "1 match in 1 file:\nguarded/a:1: guarded words"


def allow_in_session(world: World, session: Session, call_id: str, turn: str) -> None:
    decision = Decision(approved=True, option="allow-in-session")
    calls.confirm(world.caller, session, turn, call_id, decision, dispatched=None)


@pytest.mark.rule("R166")
def test_a_permission_for_the_session_is_remembered_for_its_path_tool_and_session_alone(
    alice: World, session: Session, model: ModelServer, volume_directory: Path
) -> None:
    accepted = ask(alice, model, session, "read_file", {"path": "guarded/a"}, "r")
    allow_in_session(alice, session, "r", accepted.public_id)
    wait_for_state(accepted, "done")
    # Another spelling of the same path.
    assert "guarded words" in play(alice, model, session, ("read_file", {"path": "./guarded//../guarded/a"}))[0]
    (tree_of(volume_directory, session) / "guarded" / "b").write_text("others")
    for number, (name, arguments) in enumerate(
        (
            ("read_file", {"path": "guarded/b"}),
            ("read_file", {"path": "guarded/A"}),
            ("search_files", {"pattern": "words", "path": "guarded/a"}),
        )
    ):
        accepted = ask(alice, model, session, name, arguments, f"other-{number}")
        alice.answer(session, Permission(0, f"other-{number}", granted=False))
        wait_for_state(accepted, "done")
    other = alice.session(tools=trusted())
    accepted = ask(alice, model, other, "read_file", {"path": "guarded/a"}, "other")
    alice.answer(other, Permission(0, "other", granted=False))
    wait_for_state(accepted, "done")


def test_arguments_that_a_client_edits_are_judged_as_they_run(alice: World, session: Session, model: ModelServer) -> None:
    accepted = ask(alice, model, session, "read_file", {"path": "guarded/a"}, "r")
    decision = Decision(approved=True, input='{"path": ".env"}')
    calls.confirm(alice.caller, session, accepted.public_id, "r", decision, dispatched=None)
    wait_for_state(accepted, "done")
    assert results(session)[-1] == "Tool execution failed: the operator's rules of access do not permit this: .env"


def test_commands_ask_where_a_rule_restricts_files(alice: World, session: Session, model: ModelServer) -> None:
    """A command can open every file of the workspace, whatever the rules say."""
    accepted = ask(alice, model, session, "run_command", {"command": "cat .env"}, "c")
    alice.answer(session, Permission(0, "c", granted=False))
    wait_for_state(accepted, "done")


def test_a_hidden_tool_can_be_permitted_if_a_rule_asks(
    alice: World, agents: Callable[..., AgentSpec], volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    tool = ToolSpec("read_file", "builtin:read_file", None, *describe(BUILTINS["read_file"]), expose=False)
    agents(tools=(tool,), access=RULES)
    start_worker()
    hidden = alice.session(tools=[])
    accepted = ask(alice, model, hidden, "read_file", {"path": "guarded/none"}, "r")
    alice.answer(hidden, Permission(0, "r", granted=True))
    wait_for_state(accepted, "done")
    assert "guarded/none does not exist" in results(hidden)[-1]
