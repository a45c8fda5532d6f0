"""AAP version 1: bare ids, cursor names, histories inside sessions; the rest equals version 2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.client import Client, grant, pointers, tool, user
from tests.e2e.client_v1 import ClientV1
from tests.e2e.client_v2 import ClientV2, old_tool, opening_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SECRET = "sk-clients-canary-v1-77c0"


@pytest.fixture
def older(server: Server) -> Iterator[ClientV1]:
    client = ClientV1(server.origin(), server.keys.alice)
    yield client
    client.close()


@pytest.fixture
def nobody_else(server: Server) -> Iterator[tuple[ClientV1, Client]]:
    """A tenant of one's own, with applications of the oldest and the newest version."""
    client = server.new_tenant()
    older = ClientV1(server.origin(), client.key)
    yield older, client
    older.close()


@pytest.mark.rule("A111", "A115", "A102")
def test_meta_is_version_2s_but_for_its_number(older: ClientV1, server: Server) -> None:
    newer = ClientV2(server.origin(), server.keys.alice)
    assert older.meta() == {**newer.meta(), "version": 1}
    newer.close()


# --- lists ---


@pytest.mark.rule("A112", "A33")
def test_the_list_is_of_bare_ids_and_its_only_page_has_no_cursor(nobody_else: tuple[ClientV1, Client]) -> None:
    older, new = nobody_else
    assert older.ok("GET", "/sessions") == {"sessions": []}
    made = [new.create("pilot", tools=[{**old_tool("x"), "parameters": {}}]) for _ in range(3)]
    assert older.ok("GET", "/sessions") == {"sessions": made[::-1]}


@pytest.mark.rule("A112", "A34", "A35")
def test_either_name_of_the_cursor_gives_the_next_page(nobody_else: tuple[ClientV1, Client]) -> None:
    older, new = nobody_else
    made = [new.create() for _ in range(101)]
    first = older.ok("GET", "/sessions")
    assert set(first) == {"sessions", "next", "nextCursor"}
    assert first["next"] == first["nextCursor"]
    assert first["sessions"] == made[:50:-1]
    second = older.ok("GET", "/sessions", params={"after": first["nextCursor"]})
    assert second == older.ok("GET", "/sessions", params={"after": first["next"]})
    assert older.ok("GET", "/sessions", params={"after": second["next"]}) == {"sessions": made[:1]}
    assert older.all_ids() == made[::-1]
    assert new.ok("GET", "/sessions", params={"after": first["next"]})["sessions"][0]["sessionId"] == second["sessions"][0]


@pytest.mark.rule("A112", "A42")
def test_a_cursor_that_was_never_made_is_400(older: ClientV1) -> None:
    for bad in ("", "x", "sess_0000000000000000"):
        assert older.get("/sessions", params={"after": bad}).status_code == 400


# --- histories ---


@pytest.mark.rule("A113", "A114", "A36", "A37")
def test_a_session_has_every_declared_history_or_the_one_asked_for(older: ClientV1) -> None:
    session, _ = older.open("echo", "hi", tools=[old_tool("mine")])
    said = [user("hi"), {"role": "assistant", "content": "echo: hi"}]
    plain = {"sessionId": session, "agent": {"name": "echo"}, "tools": [old_tool("mine")]}
    assert older.ok("GET", f"/session/{session}") == {**plain, "history": {"compacted": said, "full": said}}
    for kind in ("compacted", "full"):
        asked = older.ok("GET", f"/session/{session}", params={"history": kind})
        assert asked == {**plain, "history": {kind: said}}


@pytest.mark.rule("A113", "A114")
def test_undeclared_histories_are_left_out_without_an_error(older: ClientV1) -> None:
    session, _ = older.open("bare", "hi", stream="delta")
    plain = {"sessionId": session, "agent": {"name": "bare"}}
    full = {"full": [user("hi"), {"role": "assistant", "content": "echo: hi"}]}
    assert older.ok("GET", f"/session/{session}") == {**plain, "history": full}
    assert older.ok("GET", f"/session/{session}?history=full") == {**plain, "history": full}
    assert older.ok("GET", f"/session/{session}?history=compacted") == plain
    session, _ = older.open("mute", "hi")
    for query in ("", "?history=full", "?history=compacted"):
        assert older.ok("GET", f"/session/{session}{query}") == {"sessionId": session, "agent": {"name": "mute"}}


@pytest.mark.rule("A113", "A46")
def test_another_kind_of_history_is_400(older: ClientV1) -> None:
    session = older.create()
    for bad in ("all", "", "FULL", "full,compacted"):
        assert older.get(f"/session/{session}", params={"history": bad}).status_code == 400, bad
    assert older.get("/session/nothing", params={"history": "all"}).status_code == 404


@pytest.mark.rule("A114", "A38", "A99")
def test_the_compacted_history_is_shorter_and_the_full_one_exact(older: ClientV1) -> None:
    prompt = "first " + "x" * 800
    session = older.create("forgetful", messages=[prompt])
    for number in range(3):
        older.turn(session, f"message {number} " + "y" * 600)
    histories = older.ok("GET", f"/session/{session}")["history"]
    assert list(histories) == ["compacted", "full"]
    assert len(histories["full"]) == 8
    assert len(histories["compacted"]) < 8
    assert histories["compacted"] == histories["full"][-len(histories["compacted"]) :]
    assert user(prompt) == histories["full"][0] not in histories["compacted"]


@pytest.mark.rule("A111")
def test_version_1_has_no_history_endpoint(older: ClientV1) -> None:
    session = older.create()
    assert older.get(f"/session/{session}/history?type=full").status_code == 404
    assert older.get(f"/session/{session}/history").status_code == 404


@pytest.mark.rule("A114", "A30")
def test_secrets_are_redacted_in_version_1(older: ClientV1, server: Server) -> None:
    session, _ = older.open({"name": "pilot", "options": {"model_key": SECRET}}, "hi")
    response = older.get(f"/session/{session}")
    assert response.json()["agent"]["options"] == {"model_key": "***"}
    assert SECRET not in response.text
    assert SECRET not in server.log_text()


# --- the rest ---


@pytest.mark.rule("A115", "A104", "A103")
@pytest.mark.parametrize("stream", ["delta", "message", "none"])
def test_a_conversation_from_its_creation_to_its_end(older: ClientV1, server: Server, model: ModelServer, stream: str) -> None:
    metres = {"delta": 1101, "message": 1102, "none": 1103}[stream]
    prompt = model.script(
        [
            steps.thinking("Hm."),
            steps.text("On it."),
            steps.call("mine", {}, id="c1"),
            steps.call("order_rope", {"metres": metres}, id="c2"),
        ],
        [steps.text("Ready.")],
    )
    seed = [{"role": "system", "content": "Be kind."}, user("hello"), {"role": "assistant", "content": "Ahoy."}]
    agent = {"name": "pilot", "tools": [{"name": "order_rope"}]}
    session, asked = older.open(agent, *seed, prompt, stream=stream, tools=[old_tool("mine")])
    assert asked.stop == "tool_use"
    pending = older.history(session)[-1]["content"]
    assert [block["toolCallId"] for block in pending if block["type"] == "tool_use"] == ["c1", "c2"]
    answered = older.turn(session, tool("c1", "calm"), grant("c2"), stream=stream)
    assert (answered.stop, answered.text) == ("end_turn", "Ready.")
    assert server.tools.executions("order_rope", metres=metres) == 1
    full = older.history(session)
    assert full[:4] == [*seed, user(prompt)]
    assert [*asked.messages, *answered.messages] == [line for line in full[4:] if line.get("toolCallId") != "c1"]
    assert older.request("DELETE", f"/session/{session}").status_code == 204
    assert older.get(f"/session/{session}").status_code == 404


@pytest.mark.rule("A115", "A103", "A7", "A102")
def test_an_invalid_creation_makes_no_session(nobody_else: tuple[ClientV1, Client]) -> None:
    older, _ = nobody_else
    assert pointers(older.refused_opening({"agent": {"name": "echo"}, "messages": []})) == ["/messages"]
    system = {"role": "system", "content": "x"}
    assert pointers(older.refused_opening({"agent": {"name": "echo"}, "messages": [system]})) == ["/messages/0/role"]
    newer = {"name": "mine", "description": "", "parameters": {}}
    assert pointers(older.refused_opening(opening_body("echo", "x", tools=[newer]))) == ["/tools/0/inputSchema"]
    assert older.ok("GET", "/sessions") == {"sessions": []}


@pytest.mark.rule("A115", "A105")
def test_a_creation_whose_agent_fails_leaves_a_session(older: ClientV1, model: ModelServer) -> None:
    session, outcome = older.open("echo", model.script([steps.status(400)]), stream="delta")
    assert outcome.stop == "error"
    assert older.turn(session, "again").text == "echo: again"


@pytest.mark.rule("A115", "A120", "A121")
def test_extensions_are_available_in_version_1(older: ClientV1, model: ModelServer) -> None:
    def cancel_one() -> bool:
        with older.open_stream("echo", model.script([steps.text("half"), steps.hang()])) as (session, stream):
            stream.until("text_delta")
            with older.join(session, after=stream.seen[0].id) as again:
                receipt = older.cancel(session)
                assert (set(receipt), receipt["cancelled"]) == ({"cancelled", "providerClosed"}, True)
                assert [event.name for event in again.rest()] == ["turn_start", "text_delta", "turn_stop"]
        return bool(receipt["providerClosed"])

    # A cancel waits a second for the provider's end. A machine under pressure may lose one, but not every time.
    assert any(cancel_one() for _ in range(5))


@pytest.mark.rule("A111", "A1")
def test_paths_and_methods_are_version_2s(older: ClientV1) -> None:
    session = older.create()
    assert older.get(f"/sessions/{session}").status_code == 404
    assert older.post("/sessions", {}).status_code == 405
    assert older.get("/session").headers["Allow"] == "PUT"
    assert older.request("HEAD", f"/session/{session}").status_code == 200
