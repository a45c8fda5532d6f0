"""Errors of the client library: refusals as typed exceptions, limits, bad arguments, a server that restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenthost import client as library
from agenthost.client import LimitReached, TextDelta, TurnStop, UsageError
from ops.services import free_port
from tests.e2e import server as servers
from tests.e2e.client_library.conftest import Connect
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.foreign_server import foreign_server
from tests.fakes.model_server import ModelServer

KEY = "ah_wrong"


def create(agent: str, **settings: Any) -> Callable[[Any], Any]:
    return lambda client: client.create_session(agent, **settings)


@pytest.mark.parametrize(
    ("act", "kind", "key"),
    [
        (lambda client: client.agents(), library.InvalidKey, KEY),
        (create("echo"), library.InvalidKey, KEY),
        (create("no-such-agent"), library.Invalid, None),
        (create("pilot", options={"units": "cubits"}), library.Invalid, None),
        (create("mute", mode="none", tools=[len]), library.UsageError, None),
        (lambda client: client.session("sess_gone").send("x").result(), library.NotFound, None),
        (lambda client: client.session("sess_gone").history(), library.NotFound, None),
        (lambda client: client.delete_session("sess_gone"), library.NotFound, None),
        (lambda client: client.create_session("bare").history("compacted"), library.NotFound, None),
    ],
)
def test_refusals_are_typed_exceptions(
    connect: Connect, act: Callable[[Any], Any], kind: type[Exception], key: str | None
) -> None:
    client = connect(key=key) if key else connect()
    with pytest.raises(kind) as refused:
        act(client)
    assert KEY not in str(refused.value)


def test_a_refusal_has_the_facts_of_the_problem_document(connect: Connect) -> None:
    with pytest.raises(library.Invalid) as refused:
        connect().create_session("pilot", options={"units": "cubits"}, enable=["abacus"])
    error = refused.value
    assert error.status == 422
    assert [pointer for pointer, _ in error.errors] == ["/agent/tools/0/name", "/agent/options/units"]
    assert error.request_id.startswith("req_")


def test_a_key_without_the_scope_is_forbidden(connect: Connect, hall: Server) -> None:
    with pytest.raises(library.Forbidden):
        connect(key=hall.keys.reader).create_session("echo")


def busy(seconds: int) -> tuple[int, dict[str, str], bytes]:
    return 429, {"Retry-After": str(seconds), "Content-Type": "application/problem+json"}, b'{"detail": "Slow down."}'


def test_a_limit_is_waited_for_as_long_as_the_server_asks(connect: Connect) -> None:
    waits: list[tuple[float, str]] = []
    with foreign_server() as stranger:
        client = connect(stranger.url, on_wait=lambda seconds, refused: waits.append((seconds, refused.detail)))
        session = client.create_session("stranger")
        stranger.answers = [busy(1), busy(0)]
        assert session.send("hello").result().text == "you said: hello"
    assert waits == [(1.0, "Slow down."), (0.5, "Slow down.")]


def test_a_limit_beyond_the_clients_patience_is_an_error(connect: Connect) -> None:
    with foreign_server() as stranger:
        session = connect(stranger.url, retry_seconds=30).create_session("stranger")
        stranger.answers = [busy(31)]
        with pytest.raises(LimitReached) as refused:
            session.send("hello").result()
    assert (refused.value.retry_after, refused.value.detail) == (31.0, "Slow down.")


def test_a_lost_answer_of_a_creation_is_asked_for_again(connect: Connect) -> None:
    with foreign_server() as stranger:
        stranger.answers = [(0, {}, None)]
        assert connect(stranger.url).create_session("stranger").id == "one"


def test_a_server_that_cannot_resume_loses_the_stream(connect: Connect) -> None:
    with foreign_server() as stranger:
        stranger.cut_after = 2
        session = connect(stranger.url).create_session("stranger")
        with pytest.raises(library.StreamLost, match="cannot resume a stream"):
            session.send("hello").result()


def test_no_server_at_all_is_reported_at_once(connect: Connect) -> None:
    with pytest.raises(library.ConnectionFailed, match="connection refused"):
        connect(f"http://127.0.0.1:{free_port()}").create_session("echo")


def positional_only(number: int, /) -> int:
    return number


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda client: client.create_session("echo", enable="calculator"), r'write \["calculator"\]'),
        (lambda client: client.create_session("echo", tools=[lambda: 1]), "'<lambda>' cannot be a tool"),
        (lambda client: client.create_session("echo", tools=[positional_only]), "number cannot be passed by name"),
        (lambda client: client.create_session("echo", tools=[create, create]), "Two tools have the name create"),
        (lambda client: client.create_session("echo", permission=True), "a function is needed"),
        (lambda client: client.create_session("echo", mode="fast"), "'fast' is not one of delta, message, none"),
        (lambda client: client.create_session("echo", idempotency_key="two words"), "visible ASCII"),
        (lambda client: client.create_session("echo", traceparent="00-12"), "W3C Trace Context"),
        (lambda client: client.session("s").send(""), "The message is empty"),
        (lambda client: client.session("s").send("x", deadline=0), "at least 1"),
        (lambda client: client.session("s").send("x", images=["/no/such.png"]), "There is no file"),
        (lambda client: client.session("s").send("x", images=[b"text"]), "not a PNG, JPEG, GIF or WebP"),
        (lambda client: client.session("s").answer({}), "There is no answer"),
        (lambda client: client.session("s").history("all"), "use full or compacted"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_sent(connect: Connect, act: Callable[[Any], Any], words: str) -> None:
    client = connect(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(UsageError, match=words):
        act(client)


@pytest.mark.parametrize(("url", "key"), [("ftp://there", KEY), ("http://there", "two words")])
def test_a_bad_url_or_key_is_refused_by_the_constructor(connect: Connect, url: str, key: str) -> None:
    with pytest.raises(UsageError) as refused:
        connect(url, key)
    assert isinstance(refused.value, ValueError)


@pytest.mark.slow
def test_a_turn_survives_a_restart_of_the_server(connect: Connect, tmp_path: Path, model: ModelServer) -> None:
    with servers.running("embedded", tmp_path, model.url) as own:

        def restart(_call: Any) -> bool:
            own.webs[0].kill()
            own.start_web(0)
            return True

        client = connect(own.origin(), own.keys.alice)
        session = client.create_session("pilot", enable=["order_rope"], permission=restart)
        prompt = model.script(
            [steps.call("order_rope", {"metres": 3}, id="r")], [steps.gate("killed"), steps.text("Ordered ", "it.")]
        )
        turn = session.send(prompt)
        pieces: list[str] = []
        for event in turn:
            if getattr(event, "call_id", "") == "r":
                # The second step of the model has begun, and nothing of it is stored.
                model.wait_gate("killed")
                own.webs[0].kill()
                own.start_web(0)
                model.open_gate("killed")
            pieces += [event.text] if isinstance(event, TextDelta) else []
            stopped = event
        assert stopped == TurnStop("end_turn")
        assert "".join(pieces) == "Ordered it."
