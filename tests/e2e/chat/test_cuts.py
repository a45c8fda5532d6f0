"""The chat with lost connections, and with other AAP servers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.chat.conftest import Desk
from tests.e2e.server import Server
from tests.e2e.terminal import Terminal
from tests.fakes import steps
from tests.fakes.cutting_proxy import CuttingProxy, proxied
from tests.fakes.foreign_server import ForeignServer
from tests.fakes.model_server import ModelServer

Start = Callable[..., Terminal]
PROMPT = "\n> "


@pytest.fixture
def proxy(hall: Server) -> Iterator[CuttingProxy]:
    with proxied(hall.ports[0]) as cutting:
        yield cutting


def joins(proxy: CuttingProxy) -> list[str]:
    """The positions after which the stream was joined again."""
    heads = [head for head in proxy.heads if "/events/stream" in head.partition("\r\n")[0]]
    return [found[1] for head in heads if (found := re.search(r"(?i)\r\nlast-event-id: (\S+)", head))]


def test_a_lost_stream_is_resumed_without_gaps_or_repeats(chat: Start, model: ModelServer, proxy: CuttingProxy) -> None:
    prompt = model.script(
        [steps.text("one "), steps.text("two "), steps.gate("cut"), steps.text("three "), steps.gate("again"), steps.text("four")]
    )
    terminal = chat("echo", AGENTHOST_URL=proxy.origin)
    terminal.expect(PROMPT)
    proxy.cut_within(b'"delta":"three "')
    proxy.cut_within(b'"delta":"four"')
    terminal.send(prompt)
    terminal.expect("one two ")
    model.open_gate("cut")
    terminal.expect("Connection lost. Reconnecting …")
    terminal.expect("Reconnected; nothing was missed.")
    terminal.expect("three ")
    model.open_gate("again")
    terminal.expect("Reconnected; nothing was missed.")
    terminal.expect("four")
    terminal.expect(PROMPT)
    said = re.sub(r"Connection lost. Reconnecting …|Reconnected; nothing was missed.|\(10 tokens .*\)|\s+", " ", terminal.text)
    assert " ".join(said.split()).endswith("one two three four >")
    assert len(joins(proxy)) == 2
    assert len(model.requests_of(prompt)) == 1


def test_the_answer_in_a_pipe_is_complete_after_lost_connections(desk: Desk, model: ModelServer, proxy: CuttingProxy) -> None:
    words = [f"word{number} " for number in range(40)]
    prompt = model.script([steps.text(*words[:20]), steps.gate("half"), steps.text(*words[20:])])
    proxy.cut_within(b"word23 ")
    with desk.piped("echo", "--once", prompt, AGENTHOST_URL=proxy.origin) as piped:
        out = b""
        while not out.endswith(b"word19 "):
            out += (more := piped.read(1000))
            assert more, out
        model.open_gate("half")
        rest, err = piped.process.communicate(timeout=60)
    assert (piped.process.returncode, (out + rest).decode()) == (0, "".join(words) + "\n")
    assert err.decode().count("Reconnected; nothing was missed.") == 1
    assert len(model.requests_of(prompt)) == 1


def test_a_request_whose_answer_never_came_is_sent_again_and_runs_once(
    desk: Desk, model: ModelServer, proxy: CuttingProxy
) -> None:
    prompt = model.script([steps.text("once only")])
    proxy.drop_answers(2)
    done = desk.once("echo", "--once", prompt, environment={"AGENTHOST_URL": proxy.origin})
    assert (done.returncode, done.stdout) == (0, "once only\n")
    assert len(model.requests_of(prompt)) == 1
    sent = [head for head in proxy.heads if "/turns " in head.partition("\r\n")[0]]
    keys = {found[1] for head in sent if (found := re.search(r"(?i)\r\nidempotency-key: (\S+)", head))}
    assert (len(sent), len(keys)) == (3, 1)


@pytest.mark.slow
def test_a_lost_json_response_is_requested_again(desk: Desk, model: ModelServer, proxy: CuttingProxy) -> None:
    prompt = model.script([steps.text("in one piece")])
    proxy.cut_within(b"one piece")
    done = desk.once("mute", "--once", prompt, environment={"AGENTHOST_URL": proxy.origin})
    assert (done.returncode, done.stdout) == (0, "in one piece\n")
    assert len(model.requests_of(prompt)) == 1


def test_a_server_that_stays_down_is_given_up_with_a_message(chat: Start, model: ModelServer, proxy: CuttingProxy) -> None:
    prompt = model.script([steps.text("so far "), steps.gate("gone"), steps.text("no further")])
    terminal = chat("echo", "--wait", "1", AGENTHOST_URL=proxy.origin)
    terminal.expect(PROMPT)
    proxy.cut_within(b"no further")
    terminal.send(prompt)
    terminal.expect("so far ")
    proxy.go_away()
    model.open_gate("gone")
    terminal.expect("Connection lost. Reconnecting …")
    terminal.expect("The server could not be reached for 1 s.")
    terminal.expect("connection refused")
    terminal.expect(PROMPT)
    terminal.press("d")
    assert terminal.ends() == 0
    assert "--resume sess_" in terminal.text


def test_a_script_that_loses_its_server_has_an_exit_code_of_its_own(desk: Desk, model: ModelServer, proxy: CuttingProxy) -> None:
    prompt = model.script([steps.text("so far "), steps.gate("gone2"), steps.text("no further")])
    proxy.cut_within(b"no further")
    with desk.piped("echo", "--once", prompt, "--wait", "0.5", AGENTHOST_URL=proxy.origin) as piped:
        assert piped.read() == b"so far "
        proxy.go_away()
        model.open_gate("gone2")
        out, err = piped.process.communicate(timeout=60)
    assert (piped.process.returncode, out) == (3, b"\n")
    assert b"could not be reached for 0.5 s" in err


# --- servers that add nothing to the protocol ---


def test_the_chat_works_with_another_aap_server(chat: Start, stranger: ForeignServer) -> None:
    stranger.also = {"usage": {"inputTokens": 12, "outputTokens": 5}}
    terminal = chat("stranger", "--url", stranger.url)
    terminal.expect("stranger (stranger 2.0.0)")
    terminal.expect(PROMPT)
    terminal.send("hello")
    terminal.expect("you said: hello")
    terminal.expect("(inputTokens 12, outputTokens 5)")
    terminal.expect(PROMPT)
    terminal.send("/cancel")
    terminal.expect("This server does not support cancelling turns.")
    terminal.expect(PROMPT)
    terminal.send("/history")
    terminal.expect("> hello")


@pytest.mark.slow
def test_ctrl_c_stops_waiting_for_a_limit(chat: Start, stranger: ForeignServer) -> None:
    terminal = chat("stranger", "--url", stranger.url)
    terminal.expect(PROMPT)
    terminal.send("first")
    terminal.expect("you said: first")
    terminal.expect(PROMPT)
    stranger.answers = [(429, {"Retry-After": "100"}, b'{"detail":"Slowly."}')]
    terminal.send("second")
    terminal.expect("Limit reached (Slowly). Retrying in 100 s; Ctrl-C cancels.")
    terminal.press("c")
    terminal.expect("Cancelled before the server accepted the request.")
    terminal.expect(PROMPT)
    terminal.send("third")
    terminal.expect("you said: third")


@pytest.mark.slow
def test_a_lost_connection_to_a_server_without_resuming_is_reported_and_nothing_is_repeated(
    desk: Desk, stranger: ForeignServer
) -> None:
    stranger.cut_after = 2
    done = desk.once("stranger", "--once", "hello", "--url", stranger.url)
    assert (done.returncode, done.stdout) == (3, "you \n")
    assert "this server cannot resume a stream. The turn may still be running." in done.stderr
    assert len(stranger.turns) == 1


def test_a_message_is_not_repeated_to_a_server_without_idempotency_keys(desk: Desk, stranger: ForeignServer) -> None:
    stranger.answers = [(201, {"Content-Type": "application/json"}, b'{"sessionId":"one"}'), (0, {}, None)]
    done = desk.once("stranger", "--once", "hello", "--url", stranger.url)
    assert (done.returncode, done.stdout) == (3, "")
    assert "it is unknown whether the message has arrived" in done.stderr
    assert stranger.turns == []


@pytest.mark.variants
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((302, {"Location": "https://elsewhere.example/aap"}, b""), "redirects to https://elsewhere.example/aap"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), "does not respond like an AAP server (content type text/html)"),
        ((201, {"Content-Type": "application/json"}, b"{"), "is not valid JSON"),
        ((201, {"Content-Type": "application/json"}, b"{}"), "did not return its id"),
    ],
)
def test_invalid_responses_of_a_server_are_reported(
    desk: Desk, stranger: ForeignServer, answer: tuple[int, dict[str, str], bytes], words: str
) -> None:
    stranger.answers = [answer]
    done = desk.once("stranger", "--once", "hello", "--url", stranger.url)
    assert done.returncode == 3
    assert words in done.stderr


@pytest.mark.variants
@pytest.mark.parametrize("meta", [{"version": "3", "agents": []}, {"version": 4, "agents": []}, [], {"agents": {}}])
def test_servers_that_are_not_version_3_are_refused(desk: Desk, stranger: ForeignServer, meta: object) -> None:
    stranger.meta = meta
    assert desk.once("stranger", "--once", "hello", "--url", stranger.url).returncode == 3
