"""Rolling deploys: processes are replaced under load without errors for clients."""

from __future__ import annotations

import threading

import pytest

from tests.e2e.client import Client
from tests.e2e.sse import SseEvent
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.faults.clients import PILOT, Clients
from tests.faults.cluster import Cluster, wait_log


@pytest.mark.rule("A78", "A98", "A120")
def test_a_draining_web_completes_its_streams_and_other_requests_go_to_other_webs(cluster: Cluster, model: ModelServer) -> None:
    server = cluster.server
    prompt = model.script([steps.text("before "), steps.gate("noon"), steps.text("after")])
    alice = server.client(server.keys.alice, 0)
    with Clients(server, model, 4) as clients:
        clients.wait_turns(2)
        with alice.stream(alice.create(), prompt) as stream:
            stream.until("text_delta")
            model.wait_gate("noon")
            old = cluster.restart_web(0)
            assert old.alive, "the old web did not wait for its open stream"
            clients.wait_turns(4)
            model.open_gate("noon")
            assert stream.rest()[-1].data == {"stopReason": "end_turn"}
        assert old.popen.wait(120) == 0
    assert clients.observed.stops.keys() <= {"end_turn", "tool_use"}, clients.observed
    assert clients.observed.refused == 0, clients.observed


@pytest.mark.rule("A66", "A78")
def test_a_worker_hands_a_turn_over_between_its_steps_and_no_tool_runs_twice(cluster: Cluster, model: ModelServer) -> None:
    server = cluster.server
    # Two parallel tools, then five more, one per step. The worker is stopped while the first one runs.
    answers = [
        [
            steps.text("first "),
            steps.call("block", {"gate": "handed"}, id="h0"),
            steps.call("tide_table", {"harbour": "handed 0"}, id="h1"),
        ],
        *(
            [steps.text(f"step {number} "), steps.call("tide_table", {"harbour": f"handed {number}"}, id=f"h{number + 1}")]
            for number in range(1, 6)
        ),
        [steps.text("done")],
    ]
    prompt = model.script(*answers)
    alice = server.alice
    session = alice.create(PILOT)
    with alice.stream(session, prompt) as stream:
        server.tools.wait("handed")
        old = cluster.replace_worker(cluster.worker_of_the_run())
        wait_log(old, "worker_hands_over")
        server.tools.open_gate("handed")
        events = stream.rest()
    assert events[-1].data == {"stopReason": "end_turn"}
    assert old.popen.wait(120) == 0
    assert server.tools.executions("block", gate="handed") == 1
    for number in range(6):
        assert server.tools.executions("tide_table", harbour=f"handed {number}") == 1
    results = [event.data["content"] for event in stream.seen if event.name == "tool_result"]
    assert not [content for content in results if "interrupted" in content], results
    assert len(alice.history(session)) == 1 + 7 + 7


@pytest.mark.rule("A78")
def test_a_stopping_worker_releases_turns_that_do_not_end_in_time(cluster: Cluster, model: ModelServer) -> None:
    """The model has sent nothing within the grace period, so another worker repeats the request."""
    server = cluster.server
    prompt = model.script([steps.gate("slow model"), steps.text("at last")])
    alice = server.alice
    with alice.stream(alice.create(), prompt) as stream:
        model.wait_gate("slow model")
        old = cluster.replace_worker(cluster.worker_of_the_run())
        assert old.popen.wait(120) == 0
        model.wait_request(prompt, count=2)
        model.open_gate("slow model")
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert model.streams == 0


@pytest.mark.rule("A78")
def test_a_stopping_worker_finishes_an_answer_that_is_being_streamed(cluster: Cluster, model: ModelServer) -> None:
    """The answer takes longer than the grace period; another worker runs the next step."""
    server = cluster.server
    first, *others = [step for word in range(40) for step in (steps.text(f"{word} "), steps.pause(0.05))]
    paced = [first, steps.gate("not cut"), *others]
    harbour = "not cut"
    prompt = model.script([*paced, steps.call("tide_table", {"harbour": harbour})], [steps.text("done")])
    alice = server.alice
    with alice.stream(alice.create(PILOT), prompt) as stream:
        stream.until("text_delta")
        old = cluster.replace_worker(cluster.worker_of_the_run())
        wait_log(old, "worker_hands_over")
        model.open_gate("not cut")
        events = [*stream.seen, *stream.rest()]
        assert old.popen.wait(120) == 0
    assert events[-1].data == {"stopReason": "end_turn"}
    text = "".join(event.data["delta"] for event in events if event.name == "text_delta")
    assert text == "".join(f"{word} " for word in range(40)) + "done"
    assert server.tools.executions("tide_table", harbour=harbour) == 1
    ((state, takeovers),) = cluster.ask("select state, takeovers from sessions_app_turn order by id desc limit 1")
    assert (state, takeovers) == ("done", 0)


@pytest.mark.slow
@pytest.mark.rule("A78", "A98", "A120")
def test_a_rolling_restart_of_everything_shows_no_client_an_error(cluster: Cluster, model: ModelServer) -> None:
    server = cluster.server
    outcomes: list[list[SseEvent]] = []
    opened = threading.Semaphore(0)

    def long_turn(number: int) -> None:
        """A stream that is open when its web is stopped, and continues while it drains."""
        client = Client(server.origin(number % 2), server.keys.alice)
        prompt = model.script([step for word in range(60) for step in (steps.text(f"{word} "), steps.pause(0.2))])
        with client.stream(client.create(), prompt) as stream:
            stream.until("text_delta")
            opened.release()
            outcomes.append([*stream.seen, *stream.rest()])
        client.close()

    threads = [threading.Thread(target=long_turn, args=(number,)) for number in range(6)]
    with Clients(server, model, 12) as clients:
        clients.wait_turns(12)
        for thread in threads:
            thread.start()
        for _ in threads:
            assert opened.acquire(timeout=90)
        old = [cluster.restart_web(0)]
        clients.wait_turns(6)
        old.append(cluster.restart_web(1))
        clients.wait_turns(6)
        for index in range(2):
            old.append(cluster.replace_worker(index))
            clients.wait_turns(6)
        for thread in threads:
            thread.join(180)
        cluster.beat.stop()
        cluster.start_beat()
        for process in old:
            assert process.popen.wait(180) == 0, process.log.read_text()[-2000:]
        clients.wait_turns(12)
    assert clients.observed.refused == 0, clients.observed
    assert clients.observed.stops.keys() == {"end_turn", "tool_use"}, clients.observed
    assert len(outcomes) == 6
    for events in outcomes:
        assert events[-1].data == {"stopReason": "end_turn"}
        assert "".join(event.data["delta"] for event in events if event.name == "text_delta") == "".join(
            f"{w} " for w in range(60)
        )
