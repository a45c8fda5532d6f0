"""AAP version 3: no request causes a 5xx, and accepted content is returned unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.client import Client, check_problem, client_tool, tool, user
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

# One server serves all examples: its state is part of no property, every example makes its own session.
ON_A_SERVER = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)
said = words.filter(lambda text: bool(text.strip()))
wild_text = st.text(max_size=30)
FIELDS = [
    *("agent", "name", "tools", "options", "messages", "role", "content", "type", "text", "toolCallId", "granted", "reason"),
    *("stream", "trust", "parameters", "description", "title", "url", "input", "thinking"),
]
keys = st.one_of(
    wild_text,
    st.sampled_from(
        [
            "agent",
            "name",
            "tools",
            "options",
            "messages",
            "role",
            "content",
            "type",
            "text",
            "toolCallId",
            "granted",
            "reason",
            "stream",
            "trust",
            "parameters",
            "description",
            "title",
            "url",
            "input",
            "thinking",
        ]
    ),
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    wild_text,
    st.sampled_from(
        ["echo", "pilot", "user", "assistant", "tool", "system", "tool_permission", "text", "image", "delta", "none"]
    ),
)
wild = st.recursive(values, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=12)


def spoiled(document: Any, data: st.DataObject) -> Any:
    """The document with one value in it exchanged for anything."""
    if isinstance(document, dict) and document and data.draw(st.integers(0, 3)):
        key = data.draw(st.sampled_from(sorted(document)))
        return {**document, key: spoiled(document[key], data)}
    if isinstance(document, list) and document and data.draw(st.integers(0, 3)):
        index = data.draw(st.integers(0, len(document) - 1))
        return [*document[:index], spoiled(document[index], data), *document[index + 1 :]]
    return data.draw(wild)


GOOD_CREATION = {
    "agent": {"name": "pilot", "tools": [{"name": "tide_table", "trust": True}], "options": {"tone": "x", "units": "metric"}},
    "messages": [
        user("a"),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t"},
                {"type": "text", "text": "b"},
                {"type": "tool_use", "toolCallId": "c", "name": "n", "input": {"k": [1, "v"]}},
            ],
        },
        tool("c", [{"type": "image", "url": "https://example.org/x.png"}]),
        {"role": "system", "content": "s"},
    ],
    "tools": [client_tool("mine", a={"type": "string"})],
}


def send(client: Client, method: str, path: str, content: bytes, content_type: str = "application/json") -> int:
    response = client.http.request(method, path, content=content, headers={"Content-Type": content_type})
    if response.status_code >= 400:
        check_problem(response)
    return response.status_code


def written(document: Any) -> bytes:
    return json.dumps(document).encode("ascii")


@pytest.mark.rule("A4", "A6")
@ON_A_SERVER
@given(data=st.data())
def test_a_mutated_creation_is_never_a_5xx(alice: Client, data: st.DataObject) -> None:
    assert send(alice, "POST", "/sessions", written(spoiled(GOOD_CREATION, data))) in (201, 400, 413, 422)


@pytest.mark.rule("A4", "A6", "A7")
@ON_A_SERVER
@given(data=st.data())
def test_a_mutated_turn_is_never_a_5xx(alice: Client, data: st.DataObject) -> None:
    session = alice.create("pilot")
    good = {
        "messages": [user([{"type": "text", "text": "hi"}])],
        "stream": "none",
        "agent": {"name": "pilot", "options": {"tone": "y"}, "tools": []},
        "tools": [client_tool("mine")],
    }
    status = send(alice, "POST", f"/sessions/{session}/turns", written(spoiled(good, data)))
    assert status in (200, 400, 422)
    assert (len(alice.history(session)) == 0) == (status != 200)


@pytest.mark.rule("A4")
@ON_A_SERVER
@given(
    content=st.binary(max_size=200),
    content_type=st.sampled_from(["application/json", "text/plain", "application/json; x=y", "*"]),
)
def test_bytes_as_a_body_are_never_a_5xx(alice: Client, content: bytes, content_type: str) -> None:
    for path in ("/sessions", "/sessions/none/turns", "/sessions/none/cancel"):
        assert send(alice, "POST", path, content, content_type) in (400, 404, 415, 422)


@pytest.mark.rule("A4", "A31", "A42", "A46")
@ON_A_SERVER
@given(piece=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), query=wild_text.filter(lambda q: q.isprintable()))
def test_any_path_and_query_is_never_a_5xx(alice: Client, piece: str, query: str) -> None:
    from urllib.parse import quote

    segment = quote(piece, safe="")
    for path in (f"/{segment}", f"/sessions/{segment}", f"/sessions/{segment}/history", f"/sessions/{segment}/events/stream"):
        response = alice.http.get(path, params={"type": query, "after": query, "stream": query})
        assert response.status_code < 500
    assert alice.http.get("/sessions", params={"after": query}).status_code == 400


blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.just({"type": "image", "url": "https://example.org/é.png"}),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
inputs = st.dictionaries(words, json_values, max_size=4)


@pytest.mark.rule("A10", "A37", "A11", "A97", "A27")
@ON_A_SERVER
@given(
    asked=said
    | st.lists(blocks, min_size=1, max_size=3).filter(lambda bs: any(b["type"] == "image" or b["text"].strip() for b in bs)),
    answered=words | st.lists(blocks, max_size=3),
    called=inputs,
    system=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
)
def test_any_seed_comes_back_exactly(alice: Client, asked: Any, answered: Any, called: dict[str, Any], system: str) -> None:
    seed = [
        {"role": "system", "content": system},
        user(asked),
        {"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "p", "name": "n", "input": called}]},
        tool("p", answered),
        {"role": "assistant", "content": answered},
    ]
    session = alice.create(messages=seed)
    history = alice.history(session)
    assert history == seed
    assert json.dumps(history) == json.dumps(seed)


@pytest.mark.rule("A10", "A58", "A60", "A97")
@ON_A_SERVER
@given(
    pieces=st.lists(words, min_size=1, max_size=6),
    called=inputs,
    thought=st.lists(words, max_size=3),
    mode=st.sampled_from(["delta", "message", "none"]),
)
def test_any_model_output_arrives_unchanged(
    alice: Client, model: ModelServer, pieces: list[str], called: dict[str, Any], thought: list[str], mode: str
) -> None:
    prompt = model.script([steps.thinking(*thought), steps.text(*pieces), steps.call("mine", called, id="p1", pieces=3)])
    session = alice.create(tools=[client_tool("mine")])
    outcome = alice.turn(session, prompt, stream=mode)
    content: list[dict[str, Any]] = [{"type": "thinking", "thinking": "".join(thought)}] if thought else []
    content.append({"type": "text", "text": "".join(pieces)})
    content.append({"type": "tool_use", "toolCallId": "p1", "name": "mine", "input": called})
    assert json.dumps(outcome.messages[0]["content"]) == json.dumps(content)
    assert alice.history(session)[-1] == outcome.messages[0]


@pytest.mark.rule("A17", "A50", "A11")
@ON_A_SERVER
@given(tone=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80))
def test_any_text_is_a_good_value_of_a_text_option(alice: Client, model: ModelServer, tone: str) -> None:
    session = alice.create({"name": "pilot", "options": {"tone": tone}})
    assert alice.session(session)["agent"]["options"] == {"tone": tone}
    prompt = model.script([steps.text("ok")])
    alice.turn(session, prompt)
    assert model.requests_of(prompt)[0].messages[0]["content"] == f"Tone: {tone}. Units: metric."
