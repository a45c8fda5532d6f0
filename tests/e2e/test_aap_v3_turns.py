"""AAP version 3: how turns start and end, and failures of the model."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.e2e.client import Client, client_tool, grant, pointers, tool, turn_body, user
from tests.e2e.server import Server
from tests.fakes import pictures, steps
from tests.fakes.model_server import ModelServer, attempts
from tests.fakes.pictures import PIXEL

pytestmark = pytest.mark.embedded_too

# --- what a turn may bring ---


@pytest.mark.rule("A49", "A48", "A6")
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("a"), user("b")],
        [user("a"), tool("c", "x")],
        [grant("c"), user("a")],
        [{"role": "system", "content": "x"}],
        [{"role": "assistant", "content": "x"}],
        [{"role": "system", "content": "x"}, user("a")],
        [None],
        {},
        "hello",
        None,
    ],
)
def test_a_turn_brings_one_user_message_or_answers(alice: Client, model: ModelServer, messages: Any) -> None:
    session = alice.create()
    response = alice.post(f"/sessions/{session}/turns", {"messages": messages})
    assert response.status_code == 422
    assert pointers(response.json())[0].startswith("/messages")
    assert alice.history(session) == []
    assert model.requests == []


@pytest.mark.rule("A48")
def test_messages_are_required(alice: Client) -> None:
    response = alice.post(f"/sessions/{alice.create()}/turns", {"stream": "delta"})
    assert (response.status_code, pointers(response.json())) == (422, ["/messages"])


@pytest.mark.rule("A89", "A10")
@pytest.mark.parametrize(
    "content", ["", "   ", "\n\t\u00a0\u2028", [], [{"type": "text", "text": " "}], [{"type": "text", "text": ""}]]
)
def test_a_user_message_must_not_be_empty(alice: Client, content: Any) -> None:
    alice.refused(alice.create(), user(content))


@pytest.mark.rule("A89", "A37")
def test_an_image_alone_is_enough_and_tool_results_may_be_empty(alice: Client, model: ModelServer) -> None:
    session = alice.create()
    image = user([{"type": "image", "url": PIXEL}])
    assert alice.turn(session, image).stop == "end_turn"
    assert alice.history(session)[0] == image
    prompt = model.script([steps.call("mine", {}, id="e1"), steps.call("mine", {}, id="e2")], [steps.text("ok")])
    session = alice.create(tools=[client_tool("mine")])
    alice.turn(session, prompt)
    assert alice.turn(session, tool("e1", ""), tool("e2", [])).stop == "end_turn"
    assert alice.history(session)[2:4] == [tool("e1", ""), tool("e2", [])]


@pytest.mark.rule("A52", "A12")
def test_images_reach_the_model_as_they_were_given(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    urls = [PIXEL, "https://example.org/a%20b.png?x=1&y=ü"]
    content = [{"type": "text", "text": prompt}, *({"type": "image", "url": url} for url in urls)]
    session = alice.create()
    alice.turn(session, user(content))
    sent = model.requests_of(prompt)[0].messages[-1]["content"]
    assert [part["image_url"]["url"] for part in sent if part["type"] == "image_url"] == urls
    assert alice.history(session)[0] == user(content)


@pytest.mark.rule("A88", "A12", "A23")
@pytest.mark.parametrize(
    ("agent", "url", "fine"),
    [
        ("echo", "https://example.org/a.png", True),
        ("echo", PIXEL, True),
        ("bare", "https://example.org/a.png", False),
        ("bare", PIXEL, False),
        ("mute", "https://example.org/a.png", True),
        ("mute", PIXEL, False),
        ("echo", "http://example.org/a.png", False),
        ("echo", "file:///etc/passwd", False),
        ("echo", "javascript:alert(1)", False),
        ("echo", "ftp://example.org/a.png", False),
        ("echo", "", False),
        ("echo", "a.png", False),
        ("echo", "data:image/png;base64,@@@@", False),
        ("echo", "data:image/png;base64,abc", False),
        ("echo", "data:image/png,rawbytes", False),
        ("echo", "data:text/html;base64,PGI+", False),
        ("echo", pictures.data_url(pictures.jpeg(), "image/jpeg"), True),
        ("echo", pictures.data_url(pictures.gif(), "image/gif"), True),
        ("echo", pictures.data_url(pictures.webp(), "image/webp"), True),
        ("echo", pictures.data_url(pictures.webp(), "image/jpeg"), False),
        ("echo", pictures.data_url(pictures.jpeg()[:-2], "image/jpeg"), False),
        ("echo", pictures.data_url(pictures.png(8_001, 1)), False),
        ("echo", "data:image/svg+xml;base64,PHN2Zy8+", False),
    ],
)
def test_images_as_the_agent_declares_them_and_other_addresses_never(alice: Client, agent: str, url: str, fine: bool) -> None:
    message = user([{"type": "text", "text": "look"}, {"type": "image", "url": url}])
    seeded = alice.post("/sessions", {"agent": {"name": agent}, "messages": [message]})
    session = alice.create(agent)
    mode = {"bare": "delta", "mute": "none", "echo": "none"}[agent]
    turned = alice.post(f"/sessions/{session}/turns", turn_body(message, stream=mode))
    assert (seeded.status_code, turned.status_code) == ((201, 200) if fine else (422, 422))
    for response in (seeded, turned):
        if not fine:
            assert pointers(response.json())[0].startswith("/messages/0/content/1")


@pytest.mark.rule("A88", "A12")
def test_an_image_without_an_address_is_422(alice: Client) -> None:
    for block in ({"type": "image"}, {"type": "image", "url": 5}, {"type": "image", "url": None}):
        alice.refused(alice.create(), user([block]))


# --- one at a time ---


@pytest.mark.rule("A78", "A7")
def test_a_second_turn_while_one_runs_is_409_without_effect(alice: Client, model: ModelServer) -> None:
    gate = "one at a time"
    prompt = model.script([steps.gate(gate), steps.text("first")])
    session = alice.create("pilot")
    with alice.stream(session, prompt) as stream:
        model.wait_gate(gate)
        for mode in ("none", "delta"):
            alice.refused(session, "me too", status=409, stream=mode, agent={"options": {"tone": "loud"}})
        alice.refused(session, tool("c", "x"), status=409)
        model.open_gate(gate)
        stream.until("turn_stop")
        # The session is free before the client receives the end of the turn.
        assert alice.turn(session, "now").text == "echo: now"
    assert "options" not in alice.session(session)["agent"]
    assert [message["content"] for message in alice.history(session)] == [prompt, "first", "now", "echo: now"]


@pytest.mark.rule("A78")
def test_only_one_of_many_concurrent_turns_runs(server: Server, alice: Client, model: ModelServer) -> None:
    gate = "many at once"
    prompt = model.script([steps.gate(gate), steps.text("won")])
    session = alice.create()
    barrier, statuses = threading.Barrier(8), []

    def post() -> None:
        client = Client(server.origin(), server.keys.alice)
        barrier.wait(90)
        statuses.append(client.post(f"/sessions/{session}/turns", turn_body(prompt)).status_code)
        client.close()

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    model.wait_gate(gate)
    until = time.monotonic() + 90
    while len(statuses) < 7:
        assert time.monotonic() < until, f"only {statuses} while the first one runs"
        time.sleep(0.01)
    model.open_gate(gate)
    for thread in threads:
        thread.join(90)
    assert sorted(statuses) == [200] + [409] * 7
    assert alice.history(session) == [user(prompt), {"role": "assistant", "content": "won"}]
    assert len(model.requests_of(prompt)) == 1


@pytest.mark.rule("A78", "A79")
def test_the_same_answer_sent_twice_concurrently_is_accepted_once(server: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("order_rope", {"metres": 41}, id="g1")], [steps.text("done")])
    session = alice.create({"name": "pilot", "tools": [{"name": "order_rope"}]})
    alice.turn(session, prompt)
    barrier, statuses = threading.Barrier(4), []

    def post() -> None:
        client = Client(server.origin(), server.keys.alice)
        barrier.wait(90)
        statuses.append(client.post(f"/sessions/{session}/turns", turn_body(grant("g1"))).status_code)
        client.close()

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 409, 422}
    assert server.tools.executions("order_rope", metres=41) == 1


# --- how a turn may end ---


@pytest.mark.rule("A84", "A18", "A30")
@pytest.mark.parametrize(
    "failure",
    [
        [steps.status(400, message="the-providers-own-words")],
        [steps.status(401, message="the-providers-own-words sk-echo")],
        [steps.status(500, message="the-providers-own-words")],
        [steps.drop()],
        [steps.error_object("the-providers-own-words")],
        [steps.close()],
        [steps.raw(b"data: {nonsense\n\n"), steps.close()],
        [steps.raw(b"data: [1,2,3]\n\n"), steps.close()],
        [steps.raw(b"\xff\xfe\x00garbage"), steps.close()],
    ],
)
def test_a_provider_that_fails_before_its_first_output_ends_the_turn_with_error(
    alice: Client, model: ModelServer, failure: list[steps.Step]
) -> None:
    prompt = model.script(failure)
    session = alice.create()
    outcome = alice.turn(session, prompt, stream="delta")
    assert [(event.name, event.data) for event in outcome.events] == [("turn_start", {}), ("turn_stop", {"stopReason": "error"})]
    answer = alice.post(f"/sessions/{session}/turns", turn_body(prompt))
    assert answer.json() == {"stopReason": "error", "messages": []}
    assert alice.history(session) == [user(prompt)] * 2
    assert alice.turn(session, "go on").stop == "end_turn"


@pytest.mark.rule("A84")
def test_a_provider_that_cannot_be_reached_ends_the_turn_with_error(alice: Client) -> None:
    session = alice.create("unreachable")
    assert alice.turn(session, "hello").stop == "error"
    assert alice.history(session) == [user("hello")]


@pytest.mark.rule("A84")
@pytest.mark.parametrize("first", [steps.status(429, retry_after="0"), steps.status(503, retry_after="0")])
def test_a_request_to_a_busy_provider_is_retried_before_its_first_output(
    alice: Client, model: ModelServer, first: steps.Step
) -> None:
    prompt = model.script(attempts([first], [steps.text("at last")]))
    assert alice.turn(alice.create(), prompt).text == "at last"
    assert len(model.requests_of(prompt)) == 2


@pytest.mark.rule("A84", "A77")
def test_results_stay_in_the_history_when_the_provider_fails_after_them(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine", {}, id="s1")], [steps.status(400)])
    session = alice.create(tools=[client_tool("mine")])
    alice.turn(session, prompt)
    assert alice.turn(session, tool("s1", "precious")).stop == "error"
    assert alice.history(session)[-1] == tool("s1", "precious")
    again = model.script([steps.text("ok")])
    assert alice.turn(session, again).stop == "end_turn"
    assert "precious" in str(model.requests_of(again)[0].messages)


@pytest.mark.rule("A85", "A58")
@pytest.mark.parametrize(
    "end", [[steps.drop()], [steps.error_object()], [steps.close()], [steps.raw(b"data: {broken\n\n"), steps.close()]]
)
@pytest.mark.parametrize("mode", ["delta", "message", "none"])
def test_a_provider_that_fails_during_its_stream_leaves_its_text_and_no_calls(
    alice: Client, server: Server, model: ModelServer, end: list[steps.Step], mode: str
) -> None:
    said = [steps.thinking("hm"), steps.text("The tide in Ostend is "), steps.call("tide_table", {"harbour": "broken"}, id="br1")]
    prompt = model.script([*said, *end])
    session = alice.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]})
    outcome = alice.turn(session, prompt, stream=mode)
    kept = [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "The tide in Ostend is "}],
        }
    ]
    assert (outcome.stop, outcome.messages) == ("error", kept)
    assert alice.history(session)[1:] == kept
    assert server.tools.executions("tide_table", harbour="broken") == 0
    assert len(model.requests_of(prompt)) == 1
    assert alice.turn(session, "go on").stop == "end_turn"


@pytest.mark.rule("A86", "A18")
@pytest.mark.parametrize(
    ("said", "reason", "kept"),
    [
        ([steps.text("cut sho"), steps.finish("length")], "max_tokens", "cut sho"),
        ([steps.text("cut"), steps.call("mine", '{"a"', id="l1"), steps.finish("length")], "max_tokens", "cut"),
        ([steps.call("mine", "{}", id="l2"), steps.finish("length")], "max_tokens", None),
        ([steps.text("I must"), steps.finish("content_filter")], "refusal", "I must"),
        ([steps.finish("content_filter")], "refusal", None),
        ([steps.text("x"), steps.call("mine", "{}", id="l3"), steps.finish("content_filter")], "refusal", "x"),
    ],
)
def test_token_limits_and_refusals_have_their_own_stop_reasons(
    alice: Client, model: ModelServer, said: list[steps.Step], reason: str, kept: str | None
) -> None:
    prompt = model.script(said)
    session = alice.create(tools=[client_tool("mine")])
    outcome = alice.turn(session, prompt)
    assert outcome.stop == reason
    assert outcome.messages == ([] if kept is None else [{"role": "assistant", "content": kept}])
    assert alice.turn(session, "go on").stop == "end_turn"


@pytest.mark.rule("A86")
def test_a_context_that_the_provider_finds_too_long_is_max_tokens(alice: Client, model: ModelServer) -> None:
    message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    prompt = model.script([steps.status(400, message=message, code="context_length_exceeded")])
    assert alice.turn(alice.create(), prompt).stop == "max_tokens"


@pytest.mark.rule("A87")
def test_too_many_steps_end_the_turn_with_error_and_keep_the_results(alice: Client, model: ModelServer) -> None:
    prompt = model.script(*[[steps.call("tide_table", {"harbour": str(n)}, id=f"st{n}")] for n in range(10)])
    session = alice.create({"name": "climber", "tools": [{"name": "tide_table", "trust": True}]})
    outcome = alice.turn(session, prompt)
    assert outcome.stop == "error"
    assert list(outcome.results) == ["st0", "st1", "st2"]
    assert len(model.requests_of(prompt)) == 3
    assert [message["role"] for message in alice.history(session)] == ["user"] + ["assistant", "tool"] * 3
    assert alice.turn(session, "enough").stop == "end_turn"


# --- cancelling and deleting ---


@pytest.mark.rule("A121")
@pytest.mark.parametrize("body", [None, {}, {"reason": "changed my mind"}])
def test_cancelling_closes_the_call_to_a_silent_provider_within_a_second(alice: Client, model: ModelServer, body: Any) -> None:
    def cancel_one(number: int) -> bool:
        gate = f"silent forever {body} {number}"
        prompt = model.script([steps.text("Well, "), steps.gate(gate), steps.text("never")])
        session = alice.create()
        with alice.stream(session, prompt) as stream:
            stream.until("text_delta")
            model.wait_gate(gate)
            response = alice.post(f"/sessions/{session}/cancel", body)
            assert response.status_code == 200
            receipt = response.json()
            assert (set(receipt), receipt["cancelled"]) == ({"cancelled", "providerClosed"}, True)
            # The cancel waits for the provider to close the call, for at most a second.
            assert receipt["providerClosed"] or response.elapsed.total_seconds() >= 1
            assert stream.rest()[-1].data == {"stopReason": "end_turn"}
        assert model.wait_ended(model.requests_of(prompt)[0]) == "closed"
        assert alice.history(session) == [user(prompt), {"role": "assistant", "content": "Well, "}]
        assert alice.turn(session, "again").text == "echo: again"
        return bool(receipt["providerClosed"]) and response.elapsed.total_seconds() < 2

    # A machine under pressure may lose a second somewhere, but not every time.
    assert any(cancel_one(number) for number in range(5))


@pytest.mark.rule("A121")
def test_cancelling_before_the_first_output_leaves_no_message(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.hang()])
    session = alice.create()
    with alice.stream(session, prompt, mode="message") as stream:
        request = model.wait_request(prompt)
        assert alice.cancel(session)["cancelled"] is True
        assert [event.name for event in stream.rest()] == ["turn_start", "turn_stop"]
    assert model.wait_ended(request) == "closed"
    assert alice.history(session) == [user(prompt)]


@pytest.mark.rule("A121")
@pytest.mark.parametrize("kind", ["hang", "block"])
def test_cancelling_stops_a_hanging_tool_and_closes_its_call(
    alice: Client, server: Server, model: ModelServer, kind: str
) -> None:
    gate = f"cancelled {kind}"
    prompt = model.script([steps.text("wait"), steps.call(kind, {"gate": gate}, id=f"c{kind}")], [steps.text("never")])
    session = alice.create({"name": "pilot", "tools": [{"name": kind, "trust": True}]})
    with alice.stream(session, prompt) as stream:
        server.tools.wait(gate)
        # Answered, and the stream over, while the tool is where it was: its gate is opened only afterwards.
        assert alice.cancel(session)["cancelled"] is True
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    if kind == "hang":
        server.tools.wait(gate, "stopped")
    server.tools.open_gate(gate)
    assert alice.history(session)[2:] == [tool(f"c{kind}", "Tool call denied: cancelled")]
    assert len(model.requests_of(prompt)) == 1
    assert alice.turn(session, "again").stop == "end_turn"


@pytest.mark.rule("A121")
def test_a_turn_that_waits_for_its_client_can_be_cancelled(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine", {}, id="wc1"), steps.call("order_rope", {"metres": 51}, id="wc2")])
    session = alice.create({"name": "pilot", "tools": [{"name": "order_rope"}]}, tools=[client_tool("mine")])
    alice.turn(session, prompt)
    assert alice.cancel(session)["cancelled"] is True
    closing = "Tool call denied: cancelled"
    assert alice.history(session)[2:] == [tool("wc1", closing), tool("wc2", closing)]
    alice.refused(session, grant("wc2"))
    assert alice.cancel(session) == {"cancelled": False}
    assert alice.turn(session, "again").stop == "end_turn"


@pytest.mark.rule("A121")
def test_cancelling_without_a_running_turn_says_so(alice: Client) -> None:
    session = alice.create()
    assert alice.cancel(session) == {"cancelled": False}
    alice.turn(session, "hi")
    assert alice.cancel(session) == {"cancelled": False}
    assert alice.post(f"/sessions/{session}/cancel", {"reason": 5}).status_code == 422


@pytest.mark.rule("A121", "A60")
def test_a_cancelled_json_turn_answers_with_what_was_made(alice: Client, server: Server, model: ModelServer) -> None:
    gate = "cancel json"
    prompt = model.script([steps.text("partial"), steps.gate(gate)])
    session = alice.create()
    answers: list[Any] = []

    def post() -> None:
        client = Client(server.origin(), server.keys.alice)
        answers.append(client.turn(session, prompt))
        client.close()

    thread = threading.Thread(target=post)
    thread.start()
    model.wait_gate(gate)
    with alice.join(session) as joined:
        joined.until("text_delta")
        assert alice.cancel(session)["cancelled"] is True
    thread.join(90)
    assert (answers[0].stop, answers[0].messages) == ("end_turn", [{"role": "assistant", "content": "partial"}])


@pytest.mark.rule("A92", "A32")
def test_deleting_stops_the_running_turn_at_once(alice: Client, model: ModelServer) -> None:
    gate = "deleted while running"
    prompt = model.script([steps.text("secret words"), steps.gate(gate)])
    session = alice.create()
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        model.wait_gate(gate)
        response = alice.request("DELETE", f"/sessions/{session}")
        assert response.status_code == 204
        assert alice.get(f"/sessions/{session}").status_code == 404
        assert stream.rest()[-1].data == {"stopReason": "error"}
    assert model.wait_ended(model.requests_of(prompt)[0]) == "closed"
    assert alice.get(f"/sessions/{session}/events/stream?stream=delta").status_code == 404
    assert alice.post(f"/sessions/{session}/turns", turn_body("x")).status_code == 404


@pytest.mark.rule("A92")
def test_deleting_stops_a_turn_that_waits_for_its_client(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine", {}, id="dw1")])
    session = alice.create(tools=[client_tool("mine")])
    alice.turn(session, prompt)
    assert alice.request("DELETE", f"/sessions/{session}").status_code == 204
    assert alice.post(f"/sessions/{session}/turns", turn_body(tool("dw1", "x"))).status_code == 404
