"""SIGKILL at every commit point: the turn continues or ends with a reason, and tools run at most once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e import server as servers
from tests.e2e import sse
from tests.e2e.client import Client, client_tool, grant, tool, turn_body, user
from tests.e2e.server import Server
from tests.e2e.sse import SseEvent
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

PROMISED_SECONDS = 30.0
INTERRUPTED = "Tool execution failed: interrupted, it may have run"


@pytest.fixture(scope="module", params=servers.shapes())
def mortal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    """A server whose processes the tests kill; each test leaves it running again."""
    with servers.running(
        request.param, tmp_path_factory.mktemp("deaths"), _model_server.url, environment=servers.PATIENT
    ) as server:
        yield server


@pytest.fixture
def alice(mortal: Server) -> Iterator[Client]:
    client = Client(mortal.origin(), mortal.keys.alice)
    yield client
    client.close()


def revive(server: Server) -> None:
    """Start processes that have ended again, as a supervisor does."""
    if server.shape == "production" and not server.workers:
        server.start_worker()
    for index, web in enumerate(server.webs):
        if not web.alive:
            server.start_web(index)
            server.wait_ready(index)


def die_and_revive(server: Server) -> float:
    """Kill and restart; returns the time from which a worker can take turns over."""
    server.kill_workers()
    revive(server)
    return await_worker(server)


def await_worker(server: Server) -> float:
    """Wait until a worker is ready; returns that time, so that limits exclude its start."""
    with contextlib.closing(Client(server.origin(), server.keys.bob)) as bob:
        assert bob.turn(bob.create(), "is anybody there?").stop == "end_turn"
    return time.monotonic()


class Watched:
    """The events of a turn for a client that reconnects after every lost connection."""

    def __init__(self, client: Client, session: str) -> None:
        self.client, self.session = client, session
        self.events: list[SseEvent] = []

    def start(self, *messages: Any, until: str) -> None:
        """Post the turn and read up to the first event of this name; the connection is then given up."""
        with self.client.stream(self.session, *messages) as stream:
            stream.until(until)
            self.events += stream.seen

    def finish(self, since: float) -> str:
        """Come back and read to the end; the stop reason. The promised time counts from ``since``."""
        with self.client.join(self.session, after=self.events[-1].id) as stream:
            self.events += stream.rest()
        assert time.monotonic() - since < PROMISED_SECONDS
        sse.check_turn(self.events)
        return str(self.events[-1].data["stopReason"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        return sse.rebuilt(self.events)

    def check_history(self) -> None:
        """What was seen is what is stored."""
        assert self.client.history(self.session)[-len(self.messages) :] == self.messages if self.messages else True

    def check_usable(self) -> None:
        assert self.client.turn(self.session, "are you well?").text == "echo: are you well?"


PILOT = {"name": "pilot", "tools": [{"name": name, "trust": True} for name in ("tide_table", "block", "block_again")]}


@pytest.mark.rule("A78", "A84")
def test_kill_before_the_first_output_repeats_the_model_call(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.gate("death 1"), steps.text("here after all")])
    turn = Watched(alice, alice.create())
    turn.start(prompt, until="turn_start")
    model.wait_gate("death 1")
    revived = die_and_revive(mortal)
    model.wait_request(prompt, count=2, timeout=PROMISED_SECONDS)
    model.open_gate("death 1")
    assert turn.finish(revived) == "end_turn"
    assert turn.messages == [{"role": "assistant", "content": "here after all"}]
    assert len(model.requests_of(prompt)) == 2
    turn.check_history()
    turn.check_usable()


@pytest.mark.rule("A78", "A85", "A58")
def test_kill_during_an_answer_keeps_its_text(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.thinking("hm"), steps.text("half an "), steps.gate("death 2"), steps.text("answer")])
    turn = Watched(alice, alice.create())
    turn.start(prompt, until="text_delta")
    model.wait_gate("death 2")
    revived = die_and_revive(mortal)
    assert turn.finish(revived) == "error"
    kept = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "half an "}]
    assert turn.messages == [{"role": "assistant", "content": kept}]
    assert len(model.requests_of(prompt)) == 1
    turn.check_history()
    turn.check_usable()


@pytest.mark.rule("A66", "A72", "A78")
def test_kill_while_a_tool_runs_does_not_run_it_again(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        [
            steps.text("running"),
            steps.call("block", {"gate": "death 3"}, id="d3a"),
            steps.call("tide_table", {"harbour": "death 3"}, id="d3b"),
        ],
        [steps.text("I heard")],
    )
    turn = Watched(alice, alice.create(PILOT))
    turn.start(prompt, until="tool_result")
    mortal.tools.wait("death 3")
    revived = die_and_revive(mortal)
    assert turn.finish(revived) == "end_turn"
    results = {message["toolCallId"]: message["content"] for message in turn.messages if message["role"] == "tool"}
    assert results == {"d3a": INTERRUPTED, "d3b": "high 06:12, low 12:31 in death 3"}
    assert mortal.tools.executions("block", gate="death 3") == 1
    assert mortal.tools.executions("tide_table", harbour="death 3") == 1
    turn.check_history()
    turn.check_usable()


@pytest.mark.rule("A66", "A78")
def test_kill_while_an_idempotent_tool_runs_runs_it_again(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("block_again", {"gate": "death 4"}, id="d4")], [steps.text("twice is fine")])
    turn = Watched(alice, alice.create(PILOT))
    turn.start(prompt, until="tool_call")
    mortal.tools.wait("death 4")
    revived = die_and_revive(mortal)
    mortal.tools.open_gate("death 4")
    assert turn.finish(revived) == "end_turn"
    assert turn.messages[1] == tool("d4", "through death 4")
    assert mortal.tools.executions("block_again", gate="death 4") == 2
    turn.check_history()
    turn.check_usable()


@pytest.mark.rule("A66", "A65", "A71")
def test_kill_while_a_granted_tool_runs(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("block", {"gate": "death 5"}, id="d5")], [steps.text("I heard")])
    session = alice.create({"name": "pilot", "tools": [{"name": "block"}]})
    assert alice.turn(session, prompt).stop == "tool_use"
    turn = Watched(alice, session)
    turn.start(grant("d5"), until="turn_start")
    mortal.tools.wait("death 5")
    revived = die_and_revive(mortal)
    assert turn.finish(revived) == "end_turn"
    assert turn.messages == [tool("d5", INTERRUPTED), {"role": "assistant", "content": "I heard"}]
    assert mortal.tools.executions("block", gate="death 5") == 1
    turn.check_history()


@pytest.mark.slow
@pytest.mark.rule("A66", "A78")
def test_kill_between_tool_results_and_the_next_model_output(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        [steps.text("first"), steps.call("tide_table", {"harbour": "death 6"}, id="d6")],
        [steps.gate("death 6"), steps.text("second")],
    )
    turn = Watched(alice, alice.create(PILOT))
    turn.start(prompt, until="tool_result")
    model.wait_gate("death 6")
    revived = die_and_revive(mortal)
    model.wait_request(prompt, count=3, timeout=PROMISED_SECONDS)
    model.open_gate("death 6")
    assert turn.finish(revived) == "end_turn"
    assert [message["role"] for message in turn.messages] == ["assistant", "tool", "assistant"]
    assert mortal.tools.executions("tide_table", harbour="death 6") == 1
    turn.check_history()
    turn.check_usable()


@pytest.mark.slow
@pytest.mark.rule("A85", "A78")
def test_kill_during_a_later_step_keeps_the_earlier_steps(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        [steps.text("first"), steps.call("tide_table", {"harbour": "death 7"}, id="d7")],
        [steps.text("second, "), steps.gate("death 7"), steps.text("never")],
    )
    turn = Watched(alice, alice.create(PILOT))
    turn.start(prompt, until="tool_result")
    model.wait_gate("death 7")
    with alice.join(turn.session, after=turn.events[-1].id) as stream:
        stream.until("text_delta")
        turn.events += stream.seen
    revived = die_and_revive(mortal)
    assert turn.finish(revived) == "error"
    assert [message["role"] for message in turn.messages] == ["assistant", "tool", "assistant"]
    assert turn.messages[-1]["content"] == "second, "
    turn.check_history()
    turn.check_usable()


@pytest.mark.slow
@pytest.mark.rule("A78")
def test_after_two_take_overs_the_turn_ends_with_error(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.gate("death 8")])
    turn = Watched(alice, alice.create())
    turn.start(prompt, until="turn_start")
    for count in (1, 2, 3):
        model.wait_request(prompt, count=count, timeout=PROMISED_SECONDS)
        revived = die_and_revive(mortal)
    assert turn.finish(revived) == "error"
    assert len(model.requests_of(prompt)) == 3
    turn.check_usable()


@pytest.mark.rule("A71", "A78")
def test_everything_restarts_while_turns_wait_for_their_clients(mortal: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        [steps.call("mine", {}, id="w1"), steps.call("order_rope", {"metres": 61}, id="w2")], [steps.text("at last")]
    )
    session = alice.create({"name": "pilot", "tools": [{"name": "order_rope"}]}, tools=[client_tool("mine")])
    assert alice.turn(session, prompt).stop == "tool_use"
    mortal.kill()
    mortal.start()
    asked = alice.history(session)[-1]
    assert [block["toolCallId"] for block in asked["content"]] == ["w1", "w2"]
    assert alice.turn(session, tool("w1", "x")).stop == "tool_use"
    mortal.stop()
    mortal.start()
    outcome = alice.turn(session, grant("w2"), stream="delta")
    assert (outcome.stop, outcome.text) == ("end_turn", "at last")
    assert mortal.tools.executions("order_rope", metres=61) == 1


@pytest.mark.rule("A121")
def test_a_turn_whose_worker_is_dead_can_be_cancelled_at_once(mortal: Server, alice: Client, model: ModelServer) -> None:
    if mortal.shape == "embedded":
        pytest.skip("the one process is the worker, too")
    prompt = model.script([steps.text("gone "), steps.gate("death 9")])
    turn = Watched(alice, alice.create())
    turn.start(prompt, until="text_delta")
    mortal.kill_workers()
    # No worker runs that could end the turn; the next one starts afterwards.
    assert alice.cancel(turn.session)["cancelled"] is True
    assert turn.finish(time.monotonic()) == "end_turn"
    revive(mortal)
    assert turn.messages == [{"role": "assistant", "content": "gone "}]
    turn.check_history()
    turn.check_usable()


@pytest.mark.rule("A78", "A53")
def test_a_turn_accepted_without_a_worker_runs_when_one_starts(mortal: Server, alice: Client, model: ModelServer) -> None:
    if mortal.shape == "embedded":
        pytest.skip("the one process is the worker, too")
    prompt = model.script([steps.text("better late")])
    mortal.kill_workers()
    turn = Watched(alice, alice.create())
    turn.start(prompt, until="turn_start")
    revive(mortal)
    assert turn.finish(await_worker(mortal)) == "end_turn"
    turn.check_history()


@pytest.mark.rule("A78")
def test_an_open_stream_sees_the_turn_end_after_its_worker_was_killed(mortal: Server, alice: Client, model: ModelServer) -> None:
    if mortal.shape == "embedded":
        pytest.skip("the stream dies with the one process")
    prompt = model.script([steps.text("a"), steps.gate("death 10")])
    with alice.stream(alice.create(), prompt) as stream:
        stream.until("text_delta")
        model.wait_gate("death 10")
        revived = die_and_revive(mortal)
        assert stream.rest()[-1].data == {"stopReason": "error"}
        assert time.monotonic() - revived < PROMISED_SECONDS


@pytest.mark.rule("A78")
def test_a_stopping_worker_hands_over_its_turns(mortal: Server, alice: Client, model: ModelServer) -> None:
    if mortal.shape == "embedded":
        pytest.skip("the stream dies with the one process")
    prompt = model.script([steps.gate("handed on"), steps.text("handed on")])
    with alice.stream(alice.create(), prompt) as stream:
        model.wait_gate("handed on")
        old = mortal.workers.pop()
        mortal.start_worker()
        old.stop()
        model.wait_request(prompt, count=2, timeout=PROMISED_SECONDS)
        model.open_gate("handed on")
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}


@pytest.fixture(scope="module")
def _two_webs(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Server]:
    if "production" not in servers.shapes():
        pytest.skip("needs DATABASE_URL")
    with servers.running("production", tmp_path_factory.mktemp("two"), _model_server.url, webs=2, workers=2) as server:
        yield server


@pytest.fixture
def two_webs(_two_webs: Server, model: ModelServer) -> Server:
    _two_webs.restore(workers=2)
    return _two_webs


@pytest.mark.rule("A78")
def test_kill_while_rows_of_another_tenant_are_locked(two_webs: Server, model: ModelServer) -> None:
    """Each of its sessions has a client whose process vanished, which every sweep finds."""
    bob, other = two_webs.client(two_webs.keys.bob), two_webs.client(two_webs.keys.alice)
    for _ in range(3):
        other.create()
    prompt = model.script([steps.gate("locked"), steps.text("taken over")])
    turn = Watched(bob, bob.create())
    turn.start(prompt, until="turn_start")
    model.wait_gate("locked")
    of_alice = "from sessions_app_session where tenant_id = (select id from sessions_app_tenant where slug = 'alice')"
    with two_webs.database() as holder, holder.transaction(), two_webs.database() as connection:
        holder.execute(f"select 1 {of_alice} for no key update".encode())
        clients = "insert into sessions_app_sessionclient (tenant_id, session_id, client, tools, joined_at)"
        connection.execute(f"{clients} select tenant_id, id, 'vanished', '[]', now() {of_alice}".encode())
        revived = die_and_revive(two_webs)
        model.wait_request(prompt, count=2, timeout=PROMISED_SECONDS)
        model.open_gate("locked")
        assert turn.finish(revived) == "end_turn"
    turn.check_history()
    turn.check_usable()


@pytest.mark.rule("A120", "A91", "A71", "A78")
def test_a_stream_of_a_killed_web_continues_at_another_web(two_webs: Server, model: ModelServer) -> None:
    first, second = two_webs.client(two_webs.keys.alice, 0), two_webs.client(two_webs.keys.alice, 1)
    prompt = model.script([steps.text("one ", "two "), steps.gate("web death"), steps.text("three")])
    session = first.create()
    seen: list[SseEvent] = []
    with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError), first.stream(session, prompt) as stream:
        stream.until("text_delta")
        seen += stream.seen
        model.wait_gate("web death")
        second.refused(session, "me too", status=409)
        two_webs.webs[0].kill()
        stream.rest()
    with second.join(session, after=seen[-1].id) as joined:
        model.open_gate("web death")
        seen += joined.rest()
    sse.check_turn(seen)
    assert sse.rebuilt(seen) == [{"role": "assistant", "content": "one two three"}]
    assert second.history(session) == [user(prompt), {"role": "assistant", "content": "one two three"}]


@pytest.mark.rule("A120", "A121", "A54")
def test_readers_on_every_process_see_the_same_and_any_may_cancel(two_webs: Server, model: ModelServer) -> None:
    first, second = two_webs.client(two_webs.keys.alice, 0), two_webs.client(two_webs.keys.alice, 1)
    prompt = model.script([steps.text("a"), steps.gate("both"), steps.text(*"bcdefgh"), steps.gate("both 2")])
    session = first.create()
    with first.stream(session, prompt) as here, second.join(session) as there:
        here.until("text_delta")
        model.open_gate("both")
        model.wait_gate("both 2")
        # The model has sent its last letter; here it is seen too.
        while "h" not in "".join(event.data.get("delta", "") for event in here.seen):
            assert here.next() is not None
        assert second.cancel(session)["cancelled"] is True
        here.rest()
        there.rest()
        assert here.seen == there.seen
    assert model.wait_ended(model.requests_of(prompt)[0]) == "closed"
    assert "".join(event.data.get("delta", "") for event in here.seen) == "abcdefgh"
    assert first.turn(session, "and now").stop == "end_turn"


def test_turns_run_without_redis_and_recover_with_it(two_webs: Server, model: ModelServer) -> None:
    alice = two_webs.client(two_webs.keys.alice, 0)
    prompt = model.script([steps.text("a "), steps.gate("no redis"), steps.text("b")])
    session, other = alice.create(), alice.create()
    assert two_webs.redis is not None
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        model.wait_gate("no redis")
        two_webs.redis.kill()
        model.open_gate("no redis")
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert alice.turn(other, "hello").text == "echo: hello"
    joined = alice.turn(other, "hello again", stream="delta")
    assert joined.text == "echo: hello again"
    two_webs.redis.start()
    assert alice.turn(session, "back").text == "echo: back"


@pytest.mark.slow
@pytest.mark.rule("A78")
@pytest.mark.parametrize("shape", servers.shapes())
def test_with_the_default_lease_a_turn_is_taken_over_within_thirty_seconds(
    shape: str, tmp_path_factory: pytest.TempPathFactory, model: ModelServer
) -> None:
    defaults = dict.fromkeys(servers.SHORT_TIMES, "")
    with servers.running(shape, tmp_path_factory.mktemp("default"), model.url, environment=defaults) as server:
        alice = server.alice
        prompt = model.script([steps.gate("default lease"), steps.text("taken over")])
        turn = Watched(alice, alice.create())
        turn.start(prompt, until="turn_start")
        model.wait_gate("default lease")
        revived = die_and_revive(server)
        model.wait_request(prompt, count=2, timeout=PROMISED_SECONDS)
        model.open_gate("default lease")
        assert turn.finish(revived) == "end_turn"


@pytest.mark.rule("A66", "A78", "A40")
def test_kills_at_random_moments_lose_no_event_that_was_sent(mortal: Server, alice: Client, model: ModelServer) -> None:
    """Many concurrent sessions, and one kill at a random moment."""
    prompt = model.script(
        [steps.text(*"abc"), steps.pause(0.3), steps.call("tide_table", {"harbour": "crowd"})],
        [steps.pause(0.3), steps.text(*"def"), steps.pause(0.3), steps.text("ghi")],
    )
    turns = [Watched(alice, alice.create(PILOT)) for _ in range(8)]

    def begin(turn: Watched, seconds: float) -> None:
        client = Client(mortal.origin(), mortal.keys.alice)
        with contextlib.suppress(httpx.TransportError), client.stream(turn.session, prompt) as stream:
            turn.events = stream.seen
            started = time.monotonic()
            for _ in stream:
                if time.monotonic() - started > seconds:
                    break
        client.close()

    threads = [threading.Thread(target=begin, args=(turn, number * 0.2)) for number, turn in enumerate(turns)]
    for thread in threads:
        thread.start()
    model.wait_request(prompt, count=10)
    revived = die_and_revive(mortal)
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    for turn in turns:
        if turn.events and turn.events[-1].name != "turn_stop":
            turn.finish(revived)
    for turn in turns:
        if not turn.events:
            # The response was lost. If the turn was accepted, it may still run; 204 means that it does not.
            path = f"/sessions/{turn.session}/events/stream"
            assert alice.get(path, params={"stream": "delta"}).status_code in (200, 204)
            assert alice.turn(turn.session, "hello").stop == "end_turn"
            continue
        history = alice.history(turn.session)
        rebuilt = [message for message in turn.messages if message["role"] == "assistant"]
        assert [message for message in history if message["role"] == "assistant"] == rebuilt
        calls = [block for message in rebuilt if isinstance(message["content"], list) for block in message["content"]]
        answered = {message["toolCallId"] for message in history if message["role"] == "tool"}
        assert {block["toolCallId"] for block in calls if block["type"] == "tool_use"} == answered
        assert alice.post(f"/sessions/{turn.session}/turns", turn_body("still there?")).status_code == 200
    assert mortal.tools.executions("tide_table", harbour="crowd") <= 8


@pytest.mark.rule("A78", "A84")
@pytest.mark.embedded_too
def test_kill_under_load_loses_nothing_that_was_answered(mortal: Server, alice: Client) -> None:
    """Clients create sessions and run turns side by side until the server is killed."""
    answered: list[tuple[str, str]] = []
    enough = threading.Event()

    def work(number: int) -> None:
        with contextlib.closing(Client(mortal.origin(), mortal.keys.alice)) as client, contextlib.suppress(httpx.TransportError):
            for each in range(10_000):
                session, said = client.create(), f"remember {number}/{each}"
                answered.append((session, ""))
                assert client.turn(session, said).text == f"echo: {said}"
                answered.append((session, said))
                if len(answered) > 150:
                    enough.set()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    assert enough.wait(120)
    mortal.kill()
    for thread in threads:
        thread.join(60)
    revive(mortal)
    await_worker(mortal)
    for session, said in answered:
        history = alice.history(session)
        if said:
            assert [message["content"] for message in history] == [said, f"echo: {said}"]
    # Nothing is left locked or half done.
    assert alice.turn(alice.create(), "and now?").text == "echo: and now?"
