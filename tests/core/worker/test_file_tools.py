"""Turns whose agent works on its session's files: real files, a real worker, the scripted model."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_app import exact_json
from agents_app.spec import AgentSpec, ToolSpec
from agents_app.tools.signature import describe
from agents_app.tools.source import BUILTINS
from sessions_app.core.base.errors import ContentNotFound
from sessions_app.core.records import file_edits, stored_messages
from sessions_app.core.sessions import creating, deleting, removing, state
from sessions_app.core.tenancy import access, usage_entries
from sessions_app.core.turns import Permission
from sessions_app.core.workspaces import volume
from sessions_app.models import FileVersion, Measure, Session, SessionDiffs, ToolCall, Workspace
from tests.core.conftest import World, wait_for, wait_for_state
from tests.core.dispatching import events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = ("read_file", "write_file", "edit_file", "list_files", "search_files")
CODE = "def one():\n    return 1\n"


@pytest.fixture
def volume_directory(settings: Any, tmp_path: Path) -> Iterator[Path]:
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path
    settings.AGENTHOST_SANDBOX_UID = os.geteuid() or 64_321
    volume.forget()
    yield tmp_path
    volume.forget()


@pytest.fixture
def coder(agents: Callable[..., AgentSpec], volume_directory: Path) -> AgentSpec:
    return agents(tools=tuple(ToolSpec(name, f"builtin:{name}", None, *describe(BUILTINS[name])) for name in TOOLS))


def trusted(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "trust": True} for name in names or TOOLS]


def results(session: Session) -> list[Any]:
    return [exact_json.loads(line.content) for line in stored_messages.read(session, "full") if line.role == "tool"]


def tree_of(volume_directory: Path, session: Session) -> Path:
    workspace = Workspace.objects.get(sessions=session.pk)
    return volume_directory / str(session.tenant_id) / workspace.public_id / "tree"


def play(world: World, model: ModelServer, session: Session, *steps: Any) -> list[Any]:
    """Run a turn with these calls, one a step; the results."""
    before = len(results(session))
    scripted = [[call(name, arguments, id=f"{before}-{number}")] for number, (name, arguments) in enumerate(steps)]
    accepted = world.say(session, model.script(*scripted, [text("done")]))
    assert wait_for_state(accepted, "done", "error").state == "done"
    return results(session)[before:]


def test_an_agent_writes_reads_edits_lists_and_searches_its_sessions_files(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    found = play(
        alice,
        model,
        session,
        ("write_file", {"path": "src/a.py", "content": CODE}),
        ("read_file", {"path": "src/a.py"}),
        ("edit_file", {"path": "src/a.py", "old_text": "return 1", "new_text": "return 2"}),
        ("list_files", {}),
    )
    found += play(
        alice,
        model,
        session,
        ("write_file", {"path": "src/node_modules/b{1}.py", "content": "return 3\n"}),
        ("search_files", {"pattern": r"return \d"}),
        ("search_files", {"pattern": "return", "path": "src/node_modules/b{1}.py"}),
        ("list_files", {"pattern": "**/*.py"}),
    )
    (tree_of(volume_directory, session) / "link.py").symlink_to("src/a.py")
    found += play(
        alice,
        model,
        session,
        ("search_files", {"pattern": "(", "glob": "*.py"}),
        ("list_files", {"path": "none"}),
        ("search_files", {"pattern": "def", "path": "link.py"}),
    )
    assert found[0] == "Created src/a.py (2 lines)."
    assert found[1] == "src/a.py: lines 1 to 2 of 2\n     1\tdef one():\n     2\t    return 1"
    assert found[2].startswith("Edited src/a.py (+1 -1 lines).\n--- src/a.py\n")
    assert found[3] == "src/\nsrc/a.py"
    # Generated directories are searched if they are asked for.
    assert found[5] == "1 match in 1 file:\nsrc/a.py:2:     return 2"
    assert found[6] == "1 match in 1 file:\nsrc/node_modules/b{1}.py:1: return 3"
    assert found[7] == "src/a.py"
    assert found[8].startswith("Tool execution failed: the pattern is not valid (not a regular expression: ")
    assert found[9] == "Tool execution failed: none does not exist; list_files shows what does"
    assert found[10] == "1 match in 1 file:\nlink.py:1: def one():"
    file = tree_of(volume_directory, session) / "src" / "a.py"
    assert file.read_text() == CODE.replace("1", "2")


def test_an_edit_is_an_event_a_part_of_its_call_and_of_the_sessions_changed_files(
    alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    play(alice, model, session, ("write_file", {"path": "a.py", "content": CODE}))
    play(alice, model, session, ("edit_file", {"path": "a.py", "old_text": "1", "new_text": "2"}))
    [created, edited] = [payload["edits"] for _, payload in events(session, "call_finished")]
    uri = f"file:///sessions/{session.public_id}/a.py"
    assert (created[0]["uri"], created[0]["before"], created[0]["added"], created[0]["removed"]) == (uri, None, 2, 0)
    assert (edited[0]["before"], edited[0]["added"], edited[0]["removed"]) == (created[0]["after"], 1, 1)
    [first, second] = [payload["diffs"] for _, payload in events(session, "diffs_changed")]
    assert first == created
    # All edits of a file together: it did not exist before the session.
    assert second == [{**created[0], "after": edited[0]["after"]}]
    shown = state.read(alice.caller, session)
    calls = [part.call for turn in shown.turns for part in turn.parts if part.call is not None]
    assert [each.edits for each in calls] == [created, edited]
    assert shown.summary.diffs == second
    own = shown.summary.uri
    before, after = edited[0]["before"]["content"], edited[0]["after"]["content"]
    assert file_edits.content(alice.caller, own, before) == CODE.encode()
    assert file_edits.content(alice.caller, own, after) == CODE.replace("1", "2").encode()


def test_a_file_that_is_as_it_was_is_no_changed_file(
    alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    play(alice, model, session, ("write_file", {"path": "a", "content": "x\n"}))
    SessionDiffs.objects.all().update(diffs="[]")
    there = ("edit_file", {"path": "a", "old_text": "x", "new_text": "y"})
    back = ("edit_file", {"path": "a", "old_text": "y", "new_text": "x"})
    play(alice, model, session, there, back)
    assert [len(payload["diffs"]) for _, payload in events(session, "diffs_changed")] == [1, 1, 0]
    # The law of states would compare a list that this test has changed.
    play(alice, model, session, there)
    assert state.read(alice.caller, session).summary.diffs == events(session, "diffs_changed")[-1][1]["diffs"]


def test_two_edits_of_one_file_in_one_step_both_count(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    play(alice, model, session, ("write_file", {"path": "a", "content": "".join(f"{n}\n" for n in range(20))}))
    edits = [
        call("edit_file", {"path": "a", "old_text": f"{n}\n", "new_text": f"new {n}\n"}, id=f"e{n}", index=i)
        for i, n in enumerate((12, 14, 16, 18))
    ]
    wait_for_state(alice.say(session, model.script([*edits], [text("done")])), "done")
    content = (tree_of(volume_directory, session) / "a").read_text()
    assert [n for n in (12, 14, 16, 18) if f"new {n}\n" in content] == [12, 14, 16, 18]
    assert [diff["added"] for diff in state.read(alice.caller, session).summary.diffs or []] == [20]


def test_files_that_are_written_in_one_step_are_all_among_the_changed_ones(
    alice: World,
    coder: AgentSpec,
    volume_directory: Path,
    start_worker: Any,
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, names = alice.session(tools=trusted()), [f"f{n}" for n in range(4)]
    record, first = file_edits.record, threading.Event()

    def record_slowly(*given: Any) -> file_edits.Recorded:
        recorded = record(*given)
        if not first.is_set():
            first.set()
            # Meanwhile the other tools come to their ends.
            wait_for(lambda: sorted(each.name for each in tree_of(volume_directory, session).iterdir()) == names, "all files")
        return recorded

    monkeypatch.setattr(file_edits, "record", record_slowly)
    start_worker()
    writes = [call("write_file", {"path": name, "content": "x\n"}, id=name, index=n) for n, name in enumerate(names)]
    wait_for_state(alice.say(session, model.script(writes, [text("done")])), "done")
    changed = state.read(alice.caller, session).summary.diffs or []
    assert sorted(edit["uri"].rpartition("/")[2] for edit in changed) == names


def test_the_list_of_changed_files_is_bounded_and_has_the_last_ones(
    alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_worker()
    session = alice.session(tools=trusted())

    def shown(*names: str) -> list[str]:
        play(alice, model, session, *(("write_file", {"path": name, "content": "x\n"}) for name in names))
        return [edit["uri"].rpartition("/")[2] for edit in state.read(alice.caller, session).summary.diffs or []]

    monkeypatch.setattr(file_edits, "MOST_FILES", 3)
    assert shown("a", "b", "c", "d") == ["b", "c", "d"]
    monkeypatch.setattr(file_edits, "MOST_DIFFS_BYTES", 500)
    assert shown("e") == ["d", "e"]


def test_an_edit_waits_for_a_permission_and_a_trusted_reader_does_not(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "edit_file"}, {"name": "write_file"}, *trusted("read_file")])
    steps = [
        [call("write_file", {"path": "a", "content": "x\n"}, id="w")],
        [call("read_file", {"path": "a"}, id="r")],
        [call("edit_file", {"path": "a", "old_text": "x", "new_text": "y"}, id="e")],
    ]
    accepted = alice.say(session, model.script(*steps, [text("ok")]))
    wait_for(lambda: ToolCall.objects.filter(session=session, call_id="w", state="pending").exists(), "the question")
    wait_for_state(accepted, "waiting")
    assert not Workspace.objects.filter(sessions=session.pk).exists()
    alice.answer(session, Permission(0, "w", granted=True))
    wait_for(lambda: ToolCall.objects.filter(session=session, call_id="e", state="pending").exists(), "the second question")
    wait_for_state(accepted, "waiting")
    alice.answer(session, Permission(0, "e", granted=False))
    wait_for_state(accepted, "done")
    assert (tree_of(volume_directory, session) / "a").read_text() == "x\n"
    assert results(session)[1] == "a: lines 1 to 1 of 1\n     1\tx"
    assert results(session)[2].startswith("Tool call denied")


def asked(session: Session, call_id: str) -> dict[str, Any]:
    """The payload of the event with which this call asks for a permission."""
    found: dict[str, Any] = wait_for(
        lambda: next((payload for _, payload in events(session, "call_ready") if payload["call"] == call_id), None),
        "the question",
    )
    return found


def test_a_call_that_asks_shows_the_change_that_it_would_make(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "edit_file"}, {"name": "write_file"}])
    steps = [
        [call("write_file", {"path": "a.py", "content": CODE}, id="w")],
        [call("edit_file", {"path": "a.py", "old_text": "return 1", "new_text": "return 2"}, id="e")],
        [call("edit_file", {"path": "a.py", "old_text": "nothing like it", "new_text": ""}, id="wrong")],
    ]
    accepted = alice.say(session, model.script(*steps, [text("ok")]))
    [created] = asked(session, "w")["edits"]
    assert (created["before"], created["added"], created["removed"]) == (None, 2, 0)
    own = state.read(alice.caller, session).summary.uri
    assert file_edits.content(alice.caller, own, created["after"]["content"]) == CODE.encode()
    wait_for_state(accepted, "waiting")
    # Looking makes no workspace and no file.
    assert not Workspace.objects.filter(sessions=session.pk).exists()
    alice.answer(session, Permission(0, "w", granted=True))
    [edited] = asked(session, "e")["edits"]
    assert (edited["uri"], edited["before"], edited["added"], edited["removed"]) == (created["uri"], created["after"], 1, 1)
    wait_for_state(accepted, "waiting")
    live = state.read(alice.caller, session).live
    assert live is not None
    shown = [part.call for part in live.parts if part.call is not None and part.call.status == "asking"]
    assert [each.preview for each in shown] == [[edited]]
    assert (tree_of(volume_directory, session) / "a.py").read_text() == CODE
    alice.answer(session, Permission(0, "e", granted=True))
    # A call that would fail has nothing to show.
    assert "edits" not in asked(session, "wrong")
    wait_for_state(accepted, "waiting")
    alice.answer(session, Permission(0, "wrong", granted=False))
    wait_for_state(accepted, "done")
    assert [payload["edits"] for _, payload in events(session, "call_finished") if "edits" in payload] == [[created], [edited]]


def test_a_file_that_changed_after_the_question_is_not_overwritten_and_an_edit_still_finds_its_place(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=[{"name": "edit_file"}, {"name": "write_file"}])
    steps = [
        [call("write_file", {"path": "a", "content": "one\ntwo\n"}, id="made")],
        [
            call("write_file", {"path": "a", "content": "all new\n"}, id="w", index=0),
            call("write_file", {"path": "b", "content": "b\n"}, id="new", index=1),
            call("edit_file", {"path": "a", "old_text": "two", "new_text": "2"}, id="e", index=2),
        ],
    ]
    accepted = alice.say(session, model.script(*steps, [text("ok")]))
    asked(session, "made")
    wait_for_state(accepted, "waiting")
    alice.answer(session, Permission(0, "made", granted=True))
    asked(session, "e")
    wait_for_state(accepted, "waiting")
    tree = tree_of(volume_directory, session)
    (tree / "a").write_text("by hand\ntwo\n")
    (tree / "b").write_text("by hand\n")
    alice.answer(session, *(Permission(0, call_id, granted=True) for call_id in ("w", "new", "e")))
    wait_for_state(accepted, "done")
    assert (tree / "a").read_text() == "by hand\n2\n"
    assert (tree / "b").read_text() == "by hand\n"
    refused = [result for result in results(session) if "has changed since the client saw" in result]
    assert [result.removeprefix("Tool execution failed: ")[:1] for result in refused] == ["a", "b"]


def test_previews_leave_room_for_the_contents_of_edits_that_are_made(
    alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_edits, "MOST_KEPT_OF_SESSION", 200)
    start_worker()
    session = alice.session(tools=[{"name": "write_file"}])
    writes = [call("write_file", {"path": name, "content": name * 60}, id=name, index=n) for n, name in enumerate("abc")]
    accepted = alice.say(session, model.script(writes, [text("ok")]))
    asked(session, "c")
    wait_for_state(accepted, "waiting")
    kept = FileVersion.objects.filter(session=session)
    assert [bytes(row.content)[:1] for row in kept] == [b"a"]
    alice.answer(session, *(Permission(0, name, granted=name == "c") for name in "abc"))
    wait_for_state(accepted, "done")
    assert sorted(bytes(row.content)[:1] for row in kept.all()) == [b"a", b"c"]


def test_a_workspace_that_an_agents_tool_makes_begins_with_the_agents_template(
    alice: World, coder: AgentSpec, agents: Any, volume_directory: Path, tmp_path: Path, start_worker: Any, model: ModelServer
) -> None:
    template = tmp_path / "starter"
    template.mkdir()
    (template / "README").write_text("begin\n")
    agents(tools=coder.tools, template=str(template))
    start_worker()
    session = alice.session(tools=trusted())
    [found] = play(alice, model, session, ("list_files", {}))
    assert found == "README"


def test_no_path_leads_out_of_the_workspace(
    alice: World, bob: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    hers, his = alice.session(tools=trusted()), bob.session(tools=trusted())
    play(bob, model, his, ("write_file", {"path": "secret", "content": "bob's\n"}))
    play(alice, model, hers, ("write_file", {"path": "a", "content": "x\n"}))
    tree, other = tree_of(volume_directory, hers), tree_of(volume_directory, his)
    (tree / "passwd").symlink_to("/etc/passwd")
    (tree / "root").symlink_to("/")
    (tree / "up").symlink_to("../../")
    (tree / "other").symlink_to(other)
    os.mkfifo(tree / "pipe")
    outside = "{} is outside of the workspace; give a path relative to the working directory"
    climbing = ["../../etc/passwd", "/etc/passwd", f"/sessions/{his.public_id}/secret", f"../{his.public_id}/secret"]
    reads = [*climbing, "passwd", "root/etc/passwd", "up/agenthost-volume", "other/secret"]
    found = play(alice, model, hers, *(("read_file", {"path": path}) for path in reads[:3]))
    found += play(alice, model, hers, *(("read_file", {"path": path}) for path in reads[3:6]))
    found += play(alice, model, hers, *(("read_file", {"path": path}) for path in reads[6:]))
    assert found == ["Tool execution failed: " + outside.format(path) for path in reads]
    writes = ["other/secret", "passwd", "pipe"]
    refused = play(alice, model, hers, *(("write_file", {"path": path, "content": "hers"}) for path in writes))
    assert refused[:2] == ["Tool execution failed: " + outside.format(path) for path in writes[:2]]
    assert refused[2] == "Tool execution failed: pipe is neither a file nor a directory"
    assert (other / "secret").read_text() == "bob's\n"


def test_a_full_workspace_keeps_the_file_as_it_was_and_names_the_limit(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer, settings: Any
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    play(alice, model, session, ("write_file", {"path": "a", "content": "x\n" * 500}))
    settings.AGENTHOST_WORKSPACE_BYTES = 8_192
    found = play(
        alice,
        model,
        session,
        ("edit_file", {"path": "a", "old_text": "x\n", "new_text": "yes\n" * 20, "replace_all": True}),
        ("write_file", {"path": "b", "content": "z" * 9_000}),
    )
    for result, path in zip(found, ("a", "b"), strict=True):
        assert result == (
            f"Tool execution failed: there is no room left in the workspace, and {path} was not changed; delete files, or write"
            " less (over the limit of 8,192 bytes in a workspace (AGENTHOST_WORKSPACE_BYTES))"
        )
    tree = tree_of(volume_directory, session)
    assert (tree / "a").read_text() == "x\n" * 500
    assert sorted(path.name for path in tree.iterdir()) == ["a"]
    assert len(events(session, "diffs_changed")) == 1


def test_an_edit_keeps_mode_and_line_ends(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    play(alice, model, session, ("write_file", {"path": "run.sh", "content": "echo ü\r\nexit 1"}))
    file = tree_of(volume_directory, session) / "run.sh"
    file.chmod(0o755)
    play(alice, model, session, ("edit_file", {"path": "run.sh", "old_text": "ü\nexit 1", "new_text": "\U0001f600\nexit 0"}))
    assert file.read_bytes() == "echo \U0001f600\r\nexit 0".encode()
    assert file.stat().st_mode & 0o777 == 0o755


def test_without_workspaces_the_tools_name_the_setting(
    alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer, settings: Any
) -> None:
    settings.AGENTHOST_WORKSPACES_DIR = None
    start_worker()
    [result] = play(alice, model, alice.session(tools=trusted()), ("read_file", {"path": "a"}))
    assert result == ("Tool execution failed: this server has no workspaces: its operator has to set AGENTHOST_WORKSPACES_DIR")


def test_kept_contents_are_bounded_and_count_until_their_session_is_deleted(
    alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(file_edits, "MOST_KEPT_OF_SESSION", 250)
    monkeypatch.setattr(file_edits, "MOST_KEPT_OF_FILE", 200)
    start_worker()
    before = usage_entries.used(alice.caller.tenant, Measure.BYTES)
    session = alice.session(tools=trusted())
    play(
        alice,
        model,
        session,
        ("write_file", {"path": "a", "content": "a" * 150}),
        ("write_file", {"path": "b", "content": "b" * 150}),
        ("write_file", {"path": "c", "content": "c" * 201}),
        ("write_file", {"path": "again", "content": "a" * 150}),
    )
    assert [(row.size, bytes(row.content)) for row in FileVersion.objects.filter(session=session)] == [(150, b"a" * 150)]
    stored = usage_entries.bytes_of_settings(session) + usage_entries.bytes_of_history(session) + 150
    assert usage_entries.bytes_of_session(session) == stored
    uri = state.read(alice.caller, session).summary.uri
    names = [payload["edits"][0]["after"]["content"] for _, payload in events(session, "call_finished")]
    for name in (*names[1:3], "not-kept", "../x", names[0].upper()):
        with pytest.raises(ContentNotFound):
            file_edits.content(alice.caller, uri, name)
    deleting.delete(alice.caller, session)
    with pytest.raises(ContentNotFound):
        file_edits.content(alice.caller, uri, names[0])
    assert usage_entries.used(session.tenant_id, Measure.BYTES) == before
    assert removing.remove_session(session.pk)
    assert not FileVersion.objects.exists()


def test_another_tenant_reads_no_content(
    alice: World, bob: World, coder: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    play(alice, model, session, ("write_file", {"path": "a", "content": "hers\n"}))
    [(_, payload)] = events(session, "call_finished")
    uri, name = state.read(alice.caller, session).summary.uri, payload["edits"][0]["after"]["content"]
    assert file_edits.content(alice.caller, uri, name) == b"hers\n"
    with pytest.raises(ContentNotFound):
        file_edits.content(bob.caller, uri, name)


def test_a_fork_shows_the_edits_of_the_copied_calls(
    alice: World, coder: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted())
    play(alice, model, session, ("write_file", {"path": "a", "content": "x\n"}))
    last = state.read(alice.caller, session).turns[-1].id
    wanted = creating.ClientSessionRequest(uri="sailor:/fork", agent="sailor", fork=creating.Fork(session, last))
    fork = access.session(alice.caller, creating.create(alice.caller, wanted).public_id)
    shown = state.read(alice.caller, fork)
    [edit] = [each for turn in shown.turns for part in turn.parts if part.call for each in part.call.edits]
    assert file_edits.content(alice.caller, "sailor:/fork", edit["after"]["content"]) == b"x\n"
    assert shown.summary.diffs is None
