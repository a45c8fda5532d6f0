"""An agent that edits files, as clients of both protocols and a second client see it."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from tests.e2e.ahp_steps import call_action, create_session, start_turn, wait_for_call, wait_for_end
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.client import Client, grant
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

CODE = 'def greet():\n    return "h\u00e9llo"\n'
TRUSTED = ["read_file", "list_files", "search_files"]

pytestmark = pytest.mark.slow


def edits_of(turn: dict[str, Any]) -> list[dict[str, Any]]:
    calls = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    return [block for call in calls for block in call.get("content", []) if block["type"] == "fileEdit"]


def changes(notification: dict[str, Any], uri: str) -> dict[str, Any]:
    """The diffs of a session that the notification reports."""
    of_session = notification["type"] == "notify/sessionSummaryChanged" and notification["session"] == uri
    return {name: value for name, value in notification["changes"].items() if name == "diffs"} if of_session else {}


async def content(client: Watcher, side: dict[str, Any]) -> str:
    found: str = (await client.request("resourceRead", {"uri": side["content"]["uri"]}))["data"]
    return found


@pytest.mark.rule("R172", "R155", "R262", "R339")
async def test_two_clients_see_an_edit_that_one_of_them_permits(server: Server, model: ModelServer) -> None:
    script = model.script(
        [steps.call("write_file", {"path": "src/greet.py", "content": CODE}, id="w")],
        [steps.call("edit_file", {"path": "src/greet.py", "old_text": "greet", "new_text": "hail"}, id="e")],
        [steps.text("done")],
    )
    async with watching(server, server.keys.alice, "editor") as one, watching(server, server.keys.alice, "reader") as two:
        uri = await create_session(one, "coder")
        await two.subscribe(uri)
        hints = {tool["name"]: tool.get("annotations", {}) for tool in one.state(uri)["serverTools"]}
        assert hints == {
            **{name: {"readOnlyHint": True} for name in TRUSTED},
            **{name: {} for name in ("write_file", "edit_file")},
        }
        turn = await start_turn(one, uri, script)
        for name in ("write_file", "edit_file"):
            call = await wait_for_call(two, uri, name, "pending-confirmation")
            await two.dispatch(
                call_action("toolCallConfirmed", uri, turn, call["toolCallId"], approved=True, confirmed="user-action")
            )
        ended = [await wait_for_end(client, uri, turn) for client in (one, two)]
        assert ended[0] == ended[1]
        created, edited = edits_of(ended[0])
        assert "before" not in created
        assert created["after"]["uri"].endswith("/src/greet.py")
        assert edited["diff"] == {"added": 1, "removed": 1}
        before, after = [await content(two, edited[side]) for side in ("before", "after")]
        assert [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[:1] in "+-"] == [
            "- def greet():",
            "+ def hail():",
        ]
        whole = {"after": edited["after"], "diff": {"added": 2, "removed": 0}}
        for client in (one, two):
            assert client.state(uri)["summary"]["diffs"] == [whole]
        await two.until(lambda: {"diffs": [whole]} in [changes(each, uri) for each in two.heard])
        # A new client's snapshot is the same state.
        await one.check(uri)
        read = await one.request("resourceRead", {"uri": edited["after"]["uri"]})
        assert read["data"] == after == CODE.replace("greet", "hail")


@pytest.mark.rule("R339")
async def test_contents_that_do_not_exist_are_not_found(server: Server, model: ModelServer) -> None:
    script = model.script([steps.call("write_file", {"path": "a", "content": "hers\n"}, id="w")], [steps.text("done")])
    async with watching(server, server.keys.alice, "owner") as owner, watching(server, server.keys.bob, "other") as other:
        uri = await create_session(owner, "coder", config={"approval": "auto"})
        turn = await wait_for_end(owner, uri, await start_turn(owner, uri, script))
        [edit] = edits_of(turn)
        there = edit["after"]["content"]["uri"]
        assert there.startswith(f"{uri}/content/")
        assert (await owner.request("resourceRead", {"uri": there}))["data"] == "hers\n"
        missing = [
            (other, there),
            (owner, f"{uri}/content/{'0' * 64}"),
            (owner, f"{uri}/content/not-kept"),
            (owner, f"{uri}x/content/{'0' * 64}"),
        ]
        for client, wrong in missing:
            with pytest.raises(RPCError) as failed:
                await client.request("resourceRead", {"uri": wrong})
            assert failed.value.code == -32006
        await owner.request("disposeSession", {"session": uri})
        with pytest.raises(RPCError) as failed:
            await owner.request("resourceRead", {"uri": there})
        assert failed.value.code == -32006


def test_over_aap_the_result_has_the_difference_and_edits_need_a_permission(alice: Client, model: ModelServer) -> None:
    script = model.script(
        [steps.call("write_file", {"path": "a.txt", "content": "one\r\ntwo\r\n"}, id="w")],
        [steps.call("read_file", {"path": "a.txt"}, id="r")],
        [steps.call("edit_file", {"path": "a.txt", "old_text": "two\n", "new_text": "2 <b>\n"}, id="e")],
        [steps.call("search_files", {"pattern": "2 <"}, id="s"), steps.call("list_files", {}, id="l")],
        [steps.call("read_file", {"path": "../../../etc/passwd"}, id="out")],
        [steps.text("done")],
    )
    tools = [{"name": name, "trust": True} for name in TRUSTED] + [{"name": "write_file"}, {"name": "edit_file"}]
    session = alice.create({"name": "coder", "tools": tools})
    assert alice.turn(session, {"role": "user", "content": script}).stop == "tool_use"
    second = alice.turn(session, grant("w"))
    assert (second.stop, second.results["r"]) == (
        "tool_use",
        "a.txt: lines 1 to 2 of 2; lines end with CR LF\n     1\tone\n     2\ttwo",
    )
    third = alice.turn(session, grant("e"))
    assert third.stop == "end_turn"
    assert third.results["e"] == "Edited a.txt (+1 -1 lines).\n--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2 <b>"
    assert third.results["s"] == "1 match in 1 file:\na.txt:2: 2 <b>"
    assert third.results["l"] == "a.txt"
    assert "is outside of the workspace" in third.results["out"]
