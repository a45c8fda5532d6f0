"""AAP version 3: creating, showing, listing and deleting sessions; options and their secrets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.e2e import agents_file
from tests.e2e.client import Client, client_tool, pointers, tool, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SECRET = "sk-clients-canary-41f7"


def refused(client: Client, body: dict[str, Any]) -> list[str]:
    """The pointers of a creation that must be refused."""
    response = client.post("/sessions", body)
    assert response.status_code == 422, response.text[:500]
    return pointers(response.json())


# --- creation ---


@pytest.mark.rule("A24")
def test_a_session_is_made_without_asking_the_model(alice: Client, model: ModelServer) -> None:
    response = alice.post("/sessions", {"agent": {"name": "echo"}, "messages": [user("hi")], "stream": "delta"})
    assert response.status_code == 201
    assert list(response.json()) == ["sessionId"]
    assert model.requests == []


@pytest.mark.rule("A25", "A67", "A73")
def test_without_agent_tools_exposed_tools_are_off_and_unexposed_ones_on(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    alice.turn(alice.create("pilot"), prompt)
    assert model.requests_of(prompt)[0].tool_names == ["whisper"]


@pytest.mark.rule("A26", "A52", "A50")
def test_options_left_out_take_the_defaults(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    session = alice.create({"name": "pilot", "options": {"tone": "formal"}})
    alice.turn(session, prompt)
    request = model.requests_of(prompt)[0]
    assert request.messages[0] == {"role": "system", "content": "Tone: formal. Units: metric."}
    assert (request.body["model"], request.body["temperature"]) == ("gpt-test", 0.25)
    assert request.api_key == agents_file.DEFAULT_KEY
    assert request.headers["x-team"] == agents_file.HEADER_SECRET
    alice.turn(session, prompt, agent={"options": {"brain": "gpt-other", "units": "imperial", "model_key": SECRET}})
    request = model.requests_of(prompt)[1]
    assert request.messages[0]["content"] == "Tone: formal. Units: imperial."
    assert (request.body["model"], request.api_key) == ("gpt-other", SECRET)


@pytest.mark.rule("A52")
def test_option_values_are_filled_in_once_as_plain_text(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    alice.turn(alice.create({"name": "pilot", "options": {"tone": "{units} {model_key} {{x}}"}}), prompt)
    assert model.requests_of(prompt)[0].messages[0]["content"] == "Tone: {units} {model_key} {{x}}. Units: metric."


@pytest.mark.rule("A27", "A52", "A36", "A37", "A13")
def test_the_seed_is_the_start_of_the_history_and_its_system_messages_follow_the_instructions(
    alice: Client, model: ModelServer
) -> None:
    seed = [
        {"role": "system", "content": "The user is a beginner."},
        user([{"type": "text", "text": "What is this?"}, {"type": "image", "url": "https://example.org/boat.png"}]),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "toolCallId": "c1", "name": "look", "input": {"z": 1, "a": {"y": 2, "b": 3}}},
            ],
        },
        tool("c1", [{"type": "text", "text": "a boat"}]),
        {"role": "assistant", "content": "A boat."},
    ]
    session = alice.create("pilot", messages=seed)
    assert alice.history(session) == seed
    prompt = model.script([steps.text("ok")])
    alice.turn(session, prompt)
    assert alice.history(session) == [*seed, user(prompt), {"role": "assistant", "content": "ok"}]
    sent = model.requests_of(prompt)[0].messages
    systems = [message["content"] for message in sent if message["role"] == "system"]
    assert "".join(str(one) for one in systems).index("Tone: brief") < "".join(str(one) for one in systems).index("beginner")
    assert [message["role"] for message in sent if message["role"] != "system"] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


@pytest.mark.rule("A27")
@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": None}])
def test_the_seed_may_be_empty(alice: Client, body: dict[str, Any]) -> None:
    assert alice.history(alice.create("echo", **body)) == []


@pytest.mark.rule("A28")
def test_an_unknown_agent_or_a_permission_in_the_seed_is_422(alice: Client) -> None:
    assert refused(alice, {"agent": {"name": "nobody"}}) == ["/agent/name"]
    assert refused(alice, {"agent": {}})[0].startswith("/agent")
    assert refused(alice, {"agent": "echo"}) == ["/agent"]
    assert refused(alice, {})[0] == "/agent"
    permission = {"role": "tool_permission", "toolCallId": "c", "granted": True}
    assert refused(alice, {"agent": {"name": "echo"}, "messages": [permission]})[0].startswith("/messages/0")


@pytest.mark.rule("A12", "A13", "A6")
@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"role": "user"}, "/content"),
        ({"role": "user", "content": 5}, "/content"),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, "/content"),
        ({"role": "user", "content": [{"type": "video", "url": "x"}]}, "/content/0/type"),
        ({"role": "user", "content": [{"text": "x"}]}, "/content/0/type"),
        ({"role": "user", "content": [{"type": "text"}]}, "/content/0/text"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "/content/0/text"),
        ({"role": "user", "content": ["x"]}, "/content/0"),
        ({"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}, "/content/0"),
        ({"role": "user", "content": [{"type": "tool_use", "toolCallId": "a", "name": "b", "input": {}}]}, "/content/0"),
        ({"role": "system", "content": [{"type": "text", "text": "x"}]}, "/content"),
        ({"role": "assistant", "content": [{"type": "tool_use", "name": "b", "input": {}}]}, "/content/0/toolCallId"),
        ({"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "a", "input": {}}]}, "/content/0/name"),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "a", "name": "b", "input": []}]},
            "/content/0/input",
        ),
        ({"role": "assistant", "content": [{"type": "thinking"}]}, "/content/0/thinking"),
        ({"role": "tool", "content": "x"}, "/toolCallId"),
        ({"role": "tool", "toolCallId": 5, "content": "x"}, "/toolCallId"),
        ({"role": "function", "content": "x"}, "/role"),
        ({"content": "x"}, "/role"),
        ("hello", ""),
    ],
)
def test_a_message_of_the_wrong_shape_is_422_at_its_place(alice: Client, message: Any, pointer: str) -> None:
    found = refused(alice, {"agent": {"name": "echo"}, "messages": [message]})
    assert any(one.startswith(f"/messages/0{pointer}") for one in found), found


@pytest.mark.rule("A15", "A6")
@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"description": "", "parameters": {}}, "/tools/0/name"),
        ({"name": "t", "parameters": {}}, "/tools/0/description"),
        ({"name": "t", "description": ""}, "/tools/0/parameters"),
        ({"name": "t", "description": "", "inputSchema": {}}, "/tools/0/parameters"),
        ({"name": "t", "description": "", "parameters": []}, "/tools/0/parameters"),
        ({"name": "", "description": "", "parameters": {}}, "/tools/0/name"),
        ({"name": "x" * 65, "description": "", "parameters": {}}, "/tools/0/name"),
        ({"name": "two words", "description": "", "parameters": {}}, "/tools/0/name"),
        ({"name": "naïve", "description": "", "parameters": {}}, "/tools/0/name"),
        ({"name": "t\n", "description": "", "parameters": {}}, "/tools/0/name"),
        ("t", "/tools/0"),
    ],
)
def test_a_tool_specification_of_the_wrong_shape_is_422_at_its_place(alice: Client, given: Any, pointer: str) -> None:
    assert pointer in refused(alice, {"agent": {"name": "echo"}, "tools": [given]})


@pytest.mark.rule("A15", "A29", "A11")
def test_client_tools_come_back_as_they_were_sent_keys_in_order(alice: Client) -> None:
    schema = '{"zeta":{"type":"object","b":1,"a":[{"d":1,"c":2}]},"type":"object","alpha":1.0,"big":12345678901234567890}'
    body = (
        '{"tools":[{"parameters":'
        + schema
        + ',"name":"'
        + "T_-9" * 16
        + '","title":"Ü","description":""}],"agent":{"name":"echo"}}'
    )
    made = alice.http.post("/sessions", content=body.encode(), headers={"Content-Type": "application/json"})
    text = alice.get(f"/sessions/{made.json()['sessionId']}").text.replace(": ", ":").replace(", ", ",")
    assert schema in text
    assert alice.session(made.json()["sessionId"])["tools"][0]["title"] == "Ü"


@pytest.mark.rule("A17", "A83", "A16")
@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        ({"options": {"tone": 5}}, "/agent/options/tone"),
        ({"options": {"tone": True}}, "/agent/options/tone"),
        ({"options": {"tone": None}}, "/agent/options/tone"),
        ({"options": {"tone": ["x"]}}, "/agent/options/tone"),
        ({"options": ["tone"]}, "/agent/options"),
        ({"options": {"mood": "x"}}, "/agent/options/mood"),
        ({"options": {"units": "nautical"}}, "/agent/options/units"),
        ({"options": {"units": ""}}, "/agent/options/units"),
        ({"tools": [{"name": "nothing"}]}, "/agent/tools/0/name"),
        ({"tools": [{"name": "whisper"}]}, "/agent/tools/0/name"),
        ({"tools": ["tide_table"]}, "/agent/tools/0"),
        ({"tools": [{"trust": True}]}, "/agent/tools/0/name"),
        ({"tools": [{"name": "tide_table", "trust": "yes"}]}, "/agent/tools/0/trust"),
        ({"tools": [{"name": "tide_table"}, {"name": "tide_table"}]}, "/agent/tools/1"),
        ({"tools": {}}, "/agent/tools"),
    ],
)
def test_an_agent_configuration_of_the_wrong_shape_is_422_at_its_place(alice: Client, config: Any, pointer: str) -> None:
    if config == {"options": {"tone": None}}:
        # Null for an optional field means that it was left out; both readings of that are in the rules.
        assert alice.post("/sessions", {"agent": {"name": "pilot", **config}}).status_code in (201, 422)
        return
    found = refused(alice, {"agent": {"name": "pilot", **config}})
    assert any(one.startswith(pointer) for one in found), found


# --- one session ---


@pytest.mark.rule("A29")
def test_a_session_shows_what_the_client_set_and_nothing_else(alice: Client) -> None:
    session = alice.create("pilot")
    assert alice.session(session) == {"sessionId": session, "agent": {"name": "pilot"}}
    tools = [client_tool("mine")]
    session = alice.create(
        {"name": "pilot", "tools": [{"name": "tide_table", "trust": True}, {"name": "fail"}], "options": {"tone": "x"}},
        tools=tools,
        messages=[user("hi")],
    )
    shown = alice.session(session)
    assert shown["agent"]["name"] == "pilot"
    assert [(one["name"], one.get("trust", False)) for one in shown["agent"]["tools"]] == [("tide_table", True), ("fail", False)]
    assert shown["agent"]["options"] == {"tone": "x"}
    assert shown["tools"] == tools
    assert set(shown) == {"sessionId", "agent", "tools"}


@pytest.mark.rule("A50", "A29", "A81")
def test_overrides_of_a_turn_stay(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    session = alice.create({"name": "pilot", "options": {"tone": "a"}, "tools": [{"name": "fail"}]}, tools=[client_tool("one")])
    alice.turn(
        session,
        prompt,
        agent={"name": "pilot", "options": {"units": "imperial"}, "tools": [{"name": "tide_table"}]},
        tools=[client_tool("two")],
    )
    assert sorted(model.requests_of(prompt)[0].tool_names) == ["tide_table", "two", "whisper"]
    alice.turn(session, prompt)
    assert sorted(model.requests_of(prompt)[1].tool_names) == ["tide_table", "two", "whisper"]
    shown = alice.session(session)
    assert shown["agent"]["options"] == {"tone": "a", "units": "imperial"}
    assert shown["tools"] == [client_tool("two")]
    alice.turn(session, prompt, agent={"tools": []}, tools=[])
    assert model.requests_of(prompt)[2].tool_names == ["whisper"]
    shown = alice.session(session)
    assert shown["agent"]["tools"] == []
    assert "tools" not in shown


@pytest.mark.rule("A50")
def test_another_agents_name_in_a_turn_is_422(alice: Client) -> None:
    session = alice.create("echo")
    assert pointers(alice.refused(session, "hi", agent={"name": "pilot"})) == ["/agent/name"]
    assert alice.turn(session, "hi", agent={"name": "echo"}).stop == "end_turn"


@pytest.mark.rule("A30", "A69", "A29", "A33")
def test_a_secret_is_shown_as_stars_everywhere(server: Server, model: ModelServer) -> None:
    somebody = server.new_tenant()
    session = somebody.create({"name": "pilot", "options": {"model_key": SECRET, "tone": "t"}})
    shown = {"sessionId": session, "agent": {"name": "pilot", "options": {"model_key": "***", "tone": "t"}}}
    assert somebody.session(session) == shown
    assert somebody.ok("GET", "/sessions") == {"sessions": [shown]}


@pytest.mark.rule("A30", "A69")
def test_redacted_values_keep_the_secret_and_an_empty_value_resets_it(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])

    def key_used(**options: str) -> str:
        alice.turn(session, prompt, agent={"options": options})
        return model.requests_of(prompt)[-1].api_key

    session = alice.create({"name": "pilot", "options": {"model_key": SECRET}})
    assert key_used(model_key="***") == SECRET
    assert key_used(model_key="") == agents_file.DEFAULT_KEY
    assert "model_key" not in alice.session(session)["agent"].get("options", {})
    assert key_used(model_key="***") == agents_file.DEFAULT_KEY
    session = alice.create({"name": "pilot", "options": {"model_key": "***"}})
    assert key_used() == agents_file.DEFAULT_KEY
    assert "***" not in str(alice.session(session))


@pytest.mark.rule("A31", "A51", "A6")
@pytest.mark.parametrize("unknown", ["sess_0000000000000000", "x", "%00", "%FF", "..", "a" * 3000, "sess_%F0%9F%92%A9"])
def test_an_unknown_session_is_404_even_with_a_bad_body(alice: Client, unknown: str) -> None:
    assert alice.get(f"/sessions/{unknown}").status_code == 404
    assert alice.request("DELETE", f"/sessions/{unknown}").status_code == 404
    assert alice.get(f"/sessions/{unknown}/history?type=full").status_code == 404
    assert alice.post(f"/sessions/{unknown}/turns", {"messages": "bad"}).status_code == 404
    assert alice.post(f"/sessions/{unknown}/cancel").status_code == 404
    assert alice.get(f"/sessions/{unknown}/events/stream?stream=delta").status_code == 404


@pytest.mark.rule("A32")
def test_a_deleted_session_is_gone_from_everywhere_at_once(server: Server) -> None:
    somebody = server.new_tenant()
    kept, gone = somebody.create(), somebody.create(messages=[user("x")])
    response = somebody.request("DELETE", f"/sessions/{gone}")
    assert (response.status_code, response.content) == (204, b"")
    assert somebody.get(f"/sessions/{gone}").status_code == 404
    assert somebody.get(f"/sessions/{gone}/history?type=full").status_code == 404
    assert somebody.post(f"/sessions/{gone}/turns", {"messages": [user("x")]}).status_code == 404
    assert somebody.request("DELETE", f"/sessions/{gone}").status_code == 404
    assert [one["sessionId"] for one in somebody.all_sessions()] == [kept]


# --- the list ---


@pytest.mark.rule("A33", "A34")
def test_the_list_is_newest_first_in_pages_of_fifty_of_all_agents(server: Server) -> None:
    somebody = server.new_tenant()
    assert somebody.ok("GET", "/sessions") == {"sessions": []}
    agents = itertools.cycle(["echo", "pilot", "bare"])
    made = [somebody.create(next(agents)) for _ in range(50)]
    page = somebody.ok("GET", "/sessions")
    assert [one["sessionId"] for one in page["sessions"]] == made[::-1]
    assert "next" not in page
    assert page["sessions"][0] == somebody.session(made[-1])
    made.append(somebody.create())
    page = somebody.ok("GET", "/sessions")
    assert [one["sessionId"] for one in page["sessions"]] == made[:0:-1]
    assert isinstance(page["next"], str)
    assert page["next"]
    rest = somebody.ok("GET", "/sessions", params={"after": page["next"]})
    assert rest == {"sessions": [somebody.session(made[0])]}


@pytest.mark.rule("A35", "A34")
def test_paging_is_stable_while_sessions_are_created_and_deleted(server: Server) -> None:
    somebody = server.new_tenant()
    made = [somebody.create() for _ in range(110)]
    first = somebody.ok("GET", "/sessions")
    doomed = {first["sessions"][-1]["sessionId"], made[30], made[2]}
    for session in doomed:
        assert somebody.request("DELETE", f"/sessions/{session}").status_code == 204
    newer = [somebody.create() for _ in range(3)]
    second = somebody.ok("GET", "/sessions", params={"after": first["next"]})
    third = somebody.ok("GET", "/sessions", params={"after": second["next"]})
    assert "next" not in third
    walked = [one["sessionId"] for page in (first, second, third) for one in page["sessions"]]
    assert len(walked) == len(set(walked))
    assert set(made) - doomed <= set(walked) <= set(made) | set(newer)


@pytest.mark.rule("A42", "A3")
def test_a_cursor_that_was_never_made_for_this_tenant_is_400(server: Server, alice: Client) -> None:
    somebody = server.new_tenant()
    for _ in range(51):
        somebody.create()
    cursor = somebody.ok("GET", "/sessions")["next"]
    assert alice.get("/sessions", params={"after": cursor}).status_code == 400
    changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
    for bad in ("", "x", "1", "💩", "0" * 5000, "../..", "%00", "null", changed, cursor + "x"):
        assert somebody.get("/sessions", params={"after": bad}).status_code == 400, bad
