"""AAP version 3: full and compacted history, and content that is stored unchanged."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.e2e.client import Client, client_tool, grant, tool, user
from tests.fakes import steps
from tests.fakes.model_server import ModelServer, content_text

TEXTS = [
    "emoji 👩‍👩‍👧‍👦 with joiners, flag 🏴󠁧󠁢󠁷󠁬󠁳󠁿",
    "right to left: שלום مرحبا \u202ereversed\u202c",
    "line\u2028separator and\u2029paragraph, \x85 and \x0b",
    "combining: e\u0301 is not \u00e9, \ufb01 is not fi",
    "  spaces around \t\r\n and \n\n lines ",
    "controls \x01\x1f\x7f and \ufeff and \uffff",
    'quotes "\\" \\n {option} {{x}} %s <b>&amp;</b> data: x\n\nevent: y',
]


@pytest.mark.rule("A46")
@pytest.mark.parametrize("query", ["", "?type=", "?type=both", "?type=FULL", "?kind=full", "?type=full%00"])
def test_a_bad_history_type_is_400(alice: Client, query: str) -> None:
    assert alice.get(f"/sessions/{alice.create()}/history{query}").status_code == 400


@pytest.mark.rule("A47", "A23")
def test_a_kind_of_history_that_the_agent_does_not_offer_is_404(alice: Client) -> None:
    bare, mute = alice.create("bare"), alice.create("mute")
    assert alice.history(bare) == []
    assert alice.get(f"/sessions/{bare}/history?type=compacted").status_code == 404
    assert alice.get(f"/sessions/{mute}/history?type=full").status_code == 404


@pytest.mark.rule("A10", "A37", "A58", "A38")
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("mode", ["delta", "message", "none"])
def test_any_text_survives_from_the_request_over_the_model_to_the_stream(
    alice: Client, model: ModelServer, text: str, mode: str
) -> None:
    prompt = f"{text} {mode}"
    model.script([steps.thinking(*text), steps.text(*text)], name=prompt)
    session = alice.create(messages=[user([{"type": "text", "text": text}])])
    outcome = alice.turn(session, prompt, stream=mode)
    answer = {"role": "assistant", "content": [{"type": "thinking", "thinking": text}, {"type": "text", "text": text}]}
    assert outcome.messages == [answer]
    assert alice.history(session) == [user([{"type": "text", "text": text}]), user(prompt), answer]
    assert alice.history(session, "compacted") == alice.history(session)
    sent = model.requests_of(prompt)[0].messages
    assert sent[-1]["content"] in (prompt, [{"type": "text", "text": prompt}])
    assert content_text(sent[-2]["content"]) == text


@pytest.mark.rule("A10")
def test_a_character_split_over_two_chunks_of_the_models_stream_arrives_whole(alice: Client, model: ModelServer) -> None:
    prompt = model.script([*(step for cut in range(1, 5) for step in steps.split_text("€🏴é"[cut % 3] * 2, cut))])
    outcome = alice.turn(alice.create(), prompt, stream="delta")
    assert outcome.text == "🏴🏴éé€€🏴🏴"


@pytest.mark.rule("A37")
def test_full_history_keeps_strings_and_blocks_as_sent(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    seed: list[dict[str, Any]] = [
        user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
        {"role": "assistant", "content": [{"type": "text", "text": "one block"}]},
        user("s"),
        {"role": "assistant", "content": ""},
        user("t"),
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "text", "text": ""}, {"type": "thinking", "thinking": "late"}]},
    ]
    session = alice.create(messages=seed)
    blocks = user([{"type": "text", "text": prompt}])
    alice.turn(session, blocks)
    assert alice.history(session) == [*seed, blocks, {"role": "assistant", "content": "ok"}]


@pytest.mark.rule("A14", "A57")
def test_assistant_content_is_text_or_thinking_text_calls_in_this_order(alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        [
            steps.text("te"),
            steps.thinking("th"),
            steps.call("mine", {"n": 1}, id="c1"),
            steps.text("xt"),
            steps.thinking("ink"),
            steps.call("mine", "", id="c2"),
        ]
    )
    session = alice.create(tools=[client_tool("mine")])
    alice.turn(session, prompt)
    content = alice.history(session)[-1]["content"]
    kinds = [block["type"] for block in content]
    assert kinds in (["thinking", "text", "tool_use", "tool_use"], ["text", "tool_use", "tool_use"])
    assert next(block["text"] for block in content if block["type"] == "text") == "text"
    assert [(block["toolCallId"], block["input"]) for block in content if block["type"] == "tool_use"] == [
        ("c1", {"n": 1}),
        ("c2", {}),
    ]


@pytest.mark.rule("A14")
def test_a_model_message_with_nothing_in_it_is_not_stored(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("", "")])
    session = alice.create()
    for mode in ("none", "delta", "message"):
        outcome = alice.turn(session, prompt, stream=mode)
        assert (outcome.stop, outcome.messages) == ("end_turn", [])
    assert alice.history(session) == [user(prompt)] * 3


@pytest.mark.rule("A97", "A11", "A37")
def test_tool_inputs_keep_their_numbers_and_the_order_of_their_keys(alice: Client, model: ModelServer) -> None:
    written = '{"z":9007199254740993,"a":1.0,"m":{"y":-0.0,"b":1e40,"c":12345678901234567890},"list":[1.50,2e3,0]}'
    prompt = model.script([steps.call("mine", written, id="c1", pieces=7)], [steps.text("ok")])
    session = alice.create(tools=[client_tool("mine")])
    answer = alice.post(f"/sessions/{session}/turns", {"messages": [user(prompt)], "stream": "delta"})
    history = alice.get(f"/sessions/{session}/history?type=full").text
    for text in (answer.text, history):
        squeezed = text.replace(": ", ":").replace(", ", ",")
        assert '{"z":9007199254740993,"a":1.0,"m":{"y":-0.0,"b":1' in squeezed
        assert "12345678901234567890" in squeezed
        shown = json.loads(squeezed[squeezed.index('{"z"') : squeezed.index("]", squeezed.index('"list"')) + 2])
        assert shown == json.loads(written)
    alice.turn(session, tool("c1", "x"))
    again = next(m for m in model.requests_of(prompt)[1].messages if m.get("tool_calls"))
    arguments = again["tool_calls"][0]["function"]["arguments"].replace(": ", ":").replace(", ", ",")
    assert '"z":9007199254740993,"a":1.0' in arguments
    assert "12345678901234567890" in arguments


@pytest.mark.rule("A97")
@pytest.mark.parametrize("number", ["12345678901234567890.5", "0.1234567890123456789", "1e400", "-0.0", "1.0", "1E5", "-17"])
def test_decimals_beyond_float_precision_keep_their_value(alice: Client, model: ModelServer, number: str) -> None:
    prompt = model.script([steps.call("mine", f'{{"n":{number}}}', id="c1")], [steps.text("ok")])
    session = alice.create(tools=[client_tool("mine")])
    alice.turn(session, prompt)
    history = json.loads(alice.get(f"/sessions/{session}/history?type=full").text, parse_float=Decimal, parse_int=Decimal)
    assert history["history"]["full"][1]["content"][0]["input"] == {"n": Decimal(number)}


@pytest.mark.rule("A97", "A75")
def test_numbers_in_a_tools_output_keep_their_value(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("inventory")], [steps.text("ok")])
    session = alice.create({"name": "pilot", "tools": [{"name": "inventory", "trust": True}]})
    (content,) = alice.turn(session, prompt).results.values()
    assert content.replace(" ", "") == '{"ropes":[1.0,2],"anchors":9007199254740993,"flag":null}'


@pytest.mark.rule("A39")
def test_neither_permissions_nor_instructions_are_in_a_history(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("tide_table", {"harbour": "Bodø"})], [steps.text("ok")])
    session = alice.create({"name": "pilot", "tools": [{"name": "tide_table"}]})
    asked = alice.turn(session, prompt)
    alice.turn(session, grant(asked.calls[0]["toolCallId"]))
    for kind in ("full", "compacted"):
        history = alice.history(session, kind)
        assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant"]
        assert "Tone:" not in json.dumps(history)


@pytest.mark.rule("A40", "A62")
def test_a_turn_whose_end_was_sent_is_readable_on_every_process(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("the end")])
    session = alice.create("pilot")
    for mode in ("delta", "message"):
        with alice.stream(session, prompt, mode=mode, agent={"options": {"tone": mode}}) as stream:
            stream.until("turn_stop")
            assert alice.history(session)[-1] == {"role": "assistant", "content": "the end"}
            assert alice.session(session)["agent"]["options"] == {"tone": mode}
            assert alice.turn(session, prompt).stop == "end_turn"


@pytest.mark.rule("A41")
def test_a_running_turns_finished_steps_are_in_the_history(alice: Client, model: ModelServer) -> None:
    gate = "history while running"
    prompt = model.script([steps.text("looking"), steps.call("tide_table", {"harbour": "Ostend"}, id="h1")], [steps.gate(gate)])
    session = alice.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]})
    with alice.stream(session, prompt) as stream:
        model.wait_gate(gate)
        history = alice.history(session)
        model.open_gate(gate)
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert [message["role"] for message in history] == ["user", "assistant", "tool"]
    assert history[2] == tool("h1", "high 06:12, low 12:31 in Ostend")


@pytest.mark.rule("A38", "A99")
def test_compaction_shortens_what_the_model_gets_and_never_the_full_history(alice: Client, model: ModelServer) -> None:
    session = alice.create("forgetful", messages=[{"role": "system", "content": "Be kind."}])
    for number in range(8):
        alice.turn(session, f"question {number} " + "q" * 400)
    full, compacted = alice.history(session), alice.history(session, "compacted")
    assert len(full) == 17
    assert len(compacted) < len(full)
    assert compacted[0] == {"role": "system", "content": "Be kind."}
    assert compacted[-2:] == full[-2:]
    prompt = model.script([steps.text("ok")])
    alice.turn(session, prompt)
    for request in model.requests:
        sent = sum(len(str(message.get("content") or "")) for message in request.messages)
        assert sent <= 600 * 4
    sent_messages = model.requests_of(prompt)[0].messages
    assert sent_messages[-1]["content"] == prompt
    assert "Keep it short." in sent_messages[0]["content"]
    assert any("Be kind." in str(message["content"]) for message in sent_messages)
    assert alice.history(session)[:17] == full


@pytest.mark.rule("A38", "A99")
def test_old_tool_results_are_emptied_first_and_pairs_stay_together(alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        *[[steps.call("verbose", {"letters": 700}, id=f"v{number}")] for number in range(5)],
        [steps.text("done")],
    )
    session = alice.create({"name": "forgetful", "tools": [{"name": "verbose", "trust": True}]})
    assert alice.turn(session, prompt).stop == "end_turn"
    last = model.requests_of(prompt)[-1].messages
    asked = [call["id"] for message in last for call in message.get("tool_calls") or []]
    results = {message["tool_call_id"]: message["content"] for message in last if message["role"] == "tool"}
    assert asked == list(results)
    assert results["v0"] == "[700 characters left out]"
    assert results["v4"] == "x" * 700
    assert sum(len(str(message.get("content") or "")) for message in last) <= 600 * 4
    assert all(message["content"] == "x" * 700 for message in alice.history(session) if message["role"] == "tool")


@pytest.mark.rule("A99")
def test_a_message_too_long_for_the_model_ends_the_turn_without_asking_it(alice: Client, model: ModelServer) -> None:
    session = alice.create("forgetful")
    too_long = "long " * 600
    outcome = alice.turn(session, too_long)
    assert (outcome.stop, outcome.messages) == ("max_tokens", [])
    assert model.requests_of(too_long) == []
    assert alice.turn(session, "short").stop == "end_turn"
