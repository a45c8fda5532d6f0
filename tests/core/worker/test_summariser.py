"""Conversations that outgrow their model: what is summarised, when, at whose cost, and what happens when it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agents_app import compaction, exact_json
from agents_app.spec import AgentSpec, SummarySpec
from sessions_app.core import turns
from sessions_app.core.base import raw_sql, supervision
from sessions_app.core.records import stored_messages, summary_queue
from sessions_app.core.records.summary_queue import Claimed
from sessions_app.core.sessions import creating, deleting, removing, state, truncating
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Compaction, DueSummary, Measure, ModelUse, Session, Tenant, Turn, WorkerPresence
from tests.core.conftest import World, claim_one, kinds, lease_is_over, turn_of, wait_for, wait_for_state
from tests.core.threads import in_thread
from tests.fakes.model_server import ModelServer, RecordedRequest, content_text
from tests.fakes.steps import call, gate, status, text, usage
from tests.sample_tenants import make_session_of_client

LIMIT = 600
SCRIBES_LIMIT = 5_000
SCRIBE = "sk-scribe"
SAID = "They spoke of ropes."
STANDS = f"Summary of the conversation so far:\n\n{SAID}"
LONG = "knot " * 60


@pytest.fixture
def rememberer(alice: World, agents: Callable[..., AgentSpec], model: ModelServer) -> AgentSpec:
    """An agent with little room, whose summaries another key pays for, so that they are told apart."""
    model.script_for_key(SCRIBE, [text(SAID), usage(50, 7)])
    summary = SummarySpec("openai-chat:small", api_key=SCRIBE, base_url=model.url, context_tokens=SCRIBES_LIMIT)
    return agents(context_tokens=LIMIT, compaction="summarise", summary=summary, instructions="Be brief.", tools=())


def of_scribe(model: ModelServer) -> list[RecordedRequest]:
    return [request for request in model.requests if request.api_key == SCRIBE]


def of_agent(model: ModelServer) -> list[RecordedRequest]:
    return [request for request in model.requests if request.api_key != SCRIBE]


def length(request: RecordedRequest) -> int:
    """In tokens, as A99 counts them."""
    characters = 0
    for message in request.messages:
        characters += len(content_text(message.get("content")))
        for each in message.get("tool_calls") or []:
            characters += len(each["function"]["name"]) + len(each["function"]["arguments"])
    return -(-characters // 4)


def say(world: World, session: Session, words: str = LONG) -> Turn:
    """A turn to its end."""
    return wait_for_state(world.say(session, words), "done", "error")


def summaries(session: Session) -> list[tuple[int, str | None]]:
    rows = Compaction.objects.filter(session=session).order_by("covers_through")
    return list(rows.values_list("covers_through", "summary"))


def is_summarised(session: Session) -> Callable[[], bool]:
    return lambda: Compaction.objects.filter(session=session, summary__isnull=False).exists()


def rests(session: Session) -> Callable[[], bool]:
    """Nobody is at a summary of it, and nobody will be."""
    return lambda: not DueSummary.objects.filter(session=session, due=True).exists()


def shown(session: Session) -> list[tuple[str, str]]:
    return [(line.role, line.content) for line in stored_messages.read(session, "compacted")]


def seed_of(messages: int) -> list[dict[str, Any]]:
    lines = [{"role": "user", "content": f"{number}: {LONG}"} for number in range(messages)]
    return [{"role": "system", "content": "Mind the gap."}, *lines]


def talk_until_due(world: World, session: Session) -> Turn:
    """Until a summary of it was asked for; the last turn."""
    while True:
        turn = say(world, session)
        messages = summary_queue.history_of(session.pk).messages
        if is_summarised(session)() or compaction.is_due(messages, "Be brief.", [], LIMIT):
            wait_for(lambda: is_summarised(session)() or DueSummary.objects.filter(session=session).exists(), "it is due")
            return turn


def due_session(world: World) -> Session:
    """One that waits for a worker to summarise it."""
    session = world.session(seed=seed_of(10))
    accepted = world.say(session, "hello")
    assert claim_one("nobody") is not None
    Turn.objects.filter(pk=accepted.turn_id).update(state="done")
    summary_queue.request(accepted.turn_id)
    assert DueSummary.objects.get(session=session).due
    return session


# --- what becomes of a long conversation ---------------------------------------------------------


@pytest.mark.rule("A99", "A38")
def test_the_older_part_of_a_long_conversation_is_summarised_while_nobody_waits(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(seed=[{"role": "system", "content": "Mind the gap."}])
    for number in range(12):
        assert say(alice, session, f"{number} {LONG}").stop_reason == "end_turn"
        wait_for(rests(session), "the summary, if one was due")
    assert len(summaries(session)) >= 2
    assert max(map(length, of_agent(model))) <= LIMIT
    assert max(map(length, of_scribe(model))) <= SCRIBES_LIMIT
    assert of_agent(model)[-1].messages[1:3] == [
        {"role": "system", "content": "Mind the gap."},
        {"role": "user", "content": STANDS},
    ]
    transcripts = [str(request.messages[-1]["content"]) for request in of_scribe(model)]
    assert transcripts[0].startswith("<transcript>\n[user] 0 knot")
    assert transcripts[1].startswith(f"<transcript>\n[summary of what came before]\n{SAID}\n\n[user] ")
    assert shown(session)[1] == ("user", exact_json.dumps(STANDS))
    full = [line.content for line in stored_messages.read(session, "full")]
    assert len(full) == 25
    assert not any("Summary of" in content for content in full)


@pytest.mark.rule("A99")
def test_a_run_whose_input_is_too_long_has_it_summarised_before_the_model_is_asked(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(seed=seed_of(30))
    assert say(alice, session, "and now?").stop_reason == "end_turn"
    asked = of_agent(model)
    assert len(asked) == 1
    assert [message["role"] for message in asked[0].messages[:3]] == ["system", "system", "user"]
    assert asked[0].messages[2]["content"] == STANDS
    assert asked[0].messages[-1]["content"] == "and now?"
    assert len(asked[0].messages) > 4, "the newest stay as they were"
    assert length(asked[0]) <= LIMIT
    assert model.requests.index(of_scribe(model)[-1]) < model.requests.index(asked[0])
    say(alice, session, "and then?")
    assert of_agent(model)[1].messages[2]["content"] == STANDS


@pytest.mark.rule("A99", "A38")
def test_calls_and_their_results_go_into_a_summary_together(
    alice: World, agents: Callable[..., AgentSpec], rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    usual = agents(name="usual").tools
    agents(context_tokens=LIMIT, compaction="summarise", summary=rememberer.summary, tools=usual)
    start_worker()
    session = alice.session(tools=[{"name": "add_one", "trust": True}])
    for number in range(8):
        say(alice, session, model.script([text(LONG), call("add_one", {"n": number})], [text(LONG)]))
        wait_for(rests(session), "the summary, if one was due")
    assert len(of_scribe(model)) >= 2
    for request in of_agent(model):
        asked = [each["id"] for message in request.messages for each in message.get("tool_calls") or []]
        assert [message["tool_call_id"] for message in request.messages if message["role"] == "tool"] == asked


def test_clients_of_a_session_are_not_shown_its_summaries(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    say(alice, session)
    before = kinds(session)
    talk_until_due(alice, session)
    wait_for(is_summarised(session), "a summary")
    assert set(kinds(session)) == set(before)
    watched = state.read(alice.caller, session)
    assert len(watched.turns) == Turn.objects.filter(session=session).count()
    assert "Summary of" not in repr(watched)


# --- what it costs -------------------------------------------------------------------------------


def test_a_summarys_tokens_count_for_its_tenant_and_key_with_their_own_purpose(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    talk_until_due(alice, session)
    wait_for(is_summarised(session), "a summary")
    use = ModelUse.objects.get(purpose="summary")
    assert (use.model, use.session, use.agent, use.key_id) == ("openai-chat:small", session.public_id, "sailor", alice.caller.key)
    assert (use.calls, use.input_tokens, use.output_tokens) == (1, 50, 7)
    of_turns = sum(turn.input_tokens + turn.output_tokens for turn in Turn.objects.filter(session=session))
    assert usage_entries.used(alice.caller.tenant, Measure.TOKENS) == of_turns + 57
    assert usage_entries.used(alice.caller.tenant, Measure.TOKENS, alice.caller.key) == of_turns + 57


def test_a_tenant_whose_tokens_are_used_up_and_one_that_is_suspended_get_no_summary(
    alice: World, bob: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    due = [due_session(world) for world in (alice, bob)]
    Tenant.objects.filter(pk=alice.caller.tenant).update(max_tokens_per_day=0)
    Tenant.objects.filter(pk=bob.caller.tenant).update(suspended_at=timezone.now())
    start_worker()
    wait_for(rests(due[0]), "it is put off")
    carol = World(make_tenant_with("carol"))
    third = carol.session(seed=seed_of(30))
    say(carol, third, "hello")
    assert is_summarised(third)()
    assert len(of_scribe(model)) >= 1
    waits = DueSummary.objects.get(session=due[1])
    assert (waits.due, waits.worker, waits.attempts) == (True, "", 0)
    assert not Compaction.objects.filter(session__in=due).exists()


def make_tenant_with(slug: str) -> Any:
    from tests.core.conftest import make_tenant

    return make_tenant(slug)


# --- when it fails -------------------------------------------------------------------------------


@pytest.mark.rule("A99")
def test_if_a_summary_fails_turns_are_dropped_and_it_is_not_retried_at_once(
    alice: World,
    rememberer: AgentSpec,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model.script_for_key(SCRIBE, [status(400, message="no words")])
    start_worker()
    session = alice.session(seed=seed_of(30))
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            assert say(alice, session, f"{number} {LONG}").stop_reason == "end_turn"
    assert len(of_scribe(model)) == 1, "the failure is remembered"
    assert caplog.text.count("summary_failed") == 1
    for request in of_agent(model):
        assert length(request) <= LIMIT
        assert request.messages[1] == {"role": "system", "content": "Mind the gap."}
        assert not any("Summary of" in str(message["content"]) for message in request.messages)
    # After a while, and only when a turn needs it, somebody tries again.
    DueSummary.objects.filter(session=session).update(rest_until="2020-01-01T00:00:00Z")
    model.script_for_key(SCRIBE, [text(SAID)])
    say(alice, session, LONG)
    say(alice, session, LONG)
    wait_for(is_summarised(session), "a summary")


@pytest.mark.rule("A99")
def test_an_earlier_summary_stays_in_effect_if_the_next_one_fails(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(seed=seed_of(30))
    say(alice, session, "first")
    model.script_for_key(SCRIBE, [status(400, message="no words")])
    for number in range(8):
        assert say(alice, session, f"{number} {LONG}").stop_reason == "end_turn"
        wait_for(rests(session), "the summary is given up")
    assert of_agent(model)[-1].messages[2]["content"] == STANDS
    assert len(summaries(session)) > 1
    assert {summary for _, summary in summaries(session)} == {STANDS}
    assert all(length(request) <= LIMIT for request in of_agent(model))


def test_a_summary_with_an_internal_error_delays_nothing(
    alice: World,
    rememberer: AgentSpec,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = due_session(alice)

    words = "my dear diary"

    def about(session: int) -> None:
        raise ValueError(words)

    with monkeypatch.context() as broken:
        broken.setattr(summary_queue, "source", about)
        start_worker()
        wait_for(lambda: caplog.text.count(" summary_work_failed: ValueError") == summary_queue.MOST_ATTEMPTS, "it is given up")
    assert "diary" not in caplog.text
    wait_for(lambda: DueSummary.objects.get(session=session).worker == "", "nobody is said to be at it")
    assert of_scribe(model) == []
    assert say(alice, session, "so?").stop_reason == "end_turn"
    assert is_summarised(session)()


@pytest.mark.rule("A99")
def test_a_summarising_model_that_never_answers_delays_a_run_no_longer_than_its_limit(
    alice: World,
    rememberer: AgentSpec,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sessions_app.core.worker.summariser.IN_RUN_SECONDS", 3.0)
    model.script_for_key(SCRIBE, [text("Well, "), gate("never")])
    start_worker()
    session = alice.session(seed=seed_of(30))
    assert say(alice, session, "and now?").stop_reason == "end_turn"
    (asked,) = of_scribe(model)
    assert model.wait_ended(asked) == "closed"
    assert summary_queue.state(session.pk).resting
    assert length(of_agent(model)[0]) <= LIMIT


# --- what happens meanwhile ----------------------------------------------------------------------


def test_a_truncation_that_comes_first_wins(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    """The words that are gone come back in no summary."""
    model.script_for_key(SCRIBE, [text("They "), gate("hold"), text("spoke."), usage(50, 7)])
    start_worker()
    session = alice.session()
    first = say(alice, session, "short")
    talk_until_due(alice, session)
    model.wait_gate("hold")
    truncating.truncate(alice.caller, session, first.public_id, dispatched=None)
    asked = of_scribe(model)[0]
    assert model.wait_ended(asked) == "closed", "nobody pays for what nobody wants"
    assert summaries(session) == []
    assert shown(session) == [("user", '"short"'), ("assistant", '"echo: short"')]
    wait_for(lambda: ModelUse.objects.filter(purpose="summary").exists(), "what it took is booked")


def test_a_summary_of_what_was_cut_meanwhile_is_not_stored(alice: World, rememberer: AgentSpec) -> None:
    """Its model was quicker than the word that nobody wants it any more."""
    session = alice.session(seed=seed_of(10))
    alice.say(session, "hello")
    assert claim_one("dead") is not None
    of, made_of = summary_queue.source(session.pk), summary_queue.history_of(session.pk)
    assert of is not None
    truncating.truncate(alice.caller, session, None, dispatched=None)
    assert not summary_queue.store(made_of, of, compaction.summary("gone", 5), "openai-chat:small", [])
    assert summaries(session) == []
    again = summary_queue.history_of(session.pk)
    Compaction.objects.create(
        tenant_id=session.tenant_id, session=session, covers_through=3, summary="newer", created_at=timezone.now()
    )
    assert not summary_queue.store(again, of, compaction.summary("older", 5), "openai-chat:small", [])
    assert summaries(session) == [(3, "newer")]


def test_a_later_truncation_removes_the_summary_that_covers_cut_messages(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    first = say(alice, session, "short")
    second = talk_until_due(alice, session)
    wait_for(is_summarised(session), "a summary")
    covered = summaries(session)[0][0]
    assert covered > 2
    truncating.truncate(alice.caller, session, second.public_id, dispatched=None)
    assert summaries(session)[0][0] == covered, "what it stands for is still there"
    truncating.truncate(alice.caller, session, first.public_id, dispatched=None)
    assert summaries(session) == []
    assert shown(session) == [("user", '"short"'), ("assistant", '"echo: short"')]


def test_a_cancel_while_a_run_waits_for_its_summary_closes_that_call_and_stores_nothing(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.script_for_key(SCRIBE, [text("They "), gate("hold"), text("spoke.")])
    start_worker()
    session = alice.session(seed=seed_of(30))
    accepted = alice.say(session, "and now?")
    model.wait_gate("hold")
    receipt = turns.cancel(alice.caller, session)
    assert receipt.cancelled
    assert model.wait_ended(of_scribe(model)[0]) == "closed"
    assert turn_of(accepted).state == "cancelled"
    assert of_agent(model) == []
    assert summaries(session) == []
    model.open_gate("hold")
    assert say(alice, session, "so?").stop_reason == "end_turn"
    assert is_summarised(session)(), "the cancel was no failure"


def test_nothing_is_summarised_after_a_turn_that_was_cancelled(alice: World, rememberer: AgentSpec) -> None:
    session = alice.session(seed=seed_of(10))
    accepted = alice.say(session, "hello")
    turns.cancel(alice.caller, session)
    summary_queue.request(accepted.turn_id)
    assert not summary_queue.has_free()


def test_deleting_a_session_stops_its_summary(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.script_for_key(SCRIBE, [text("They "), gate("hold"), text("spoke.")])
    start_worker()
    session = alice.session()
    talk_until_due(alice, session)
    model.wait_gate("hold")
    deleting.delete(alice.caller, session)
    assert model.wait_ended(of_scribe(model)[0]) == "closed"
    assert not Compaction.objects.filter(session_id=session.pk).exists()
    removing.remove_session(session.pk)
    assert not DueSummary.objects.exists()


def test_suspending_a_tenant_stops_its_summaries(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.script_for_key(SCRIBE, [text("They "), gate("hold"), text("spoke.")])
    start_worker()
    session = alice.session()
    talk_until_due(alice, session)
    model.wait_gate("hold")
    turns.suspend_tenant(Tenant.objects.get(pk=alice.caller.tenant), actor="tests")
    assert model.wait_ended(of_scribe(model)[0]) == "closed"
    assert summaries(session) == []


# --- who does it ---------------------------------------------------------------------------------


def test_two_workers_and_a_run_pay_for_one_summary(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    """A run that needs what somebody is making waits for it."""
    model.script_for_key(SCRIBE, [text("They spoke "), gate("hold"), text("of ropes.")])
    start_worker()
    start_worker()
    session = alice.session()
    talk_until_due(alice, session)
    model.wait_gate("hold")
    before = len(of_agent(model))
    accepted = alice.say(session, "knot " * 300)
    wait_for(lambda: turn_of(accepted).state == "running", "the run")
    assert summary_queue.state(session.pk).in_progress
    model.open_gate("hold")
    assert wait_for_state(accepted, "done", "error").stop_reason == "end_turn"
    assert of_agent(model)[before].messages[1]["content"] == STANDS
    assert all(length(request) <= LIMIT for request in model.requests)
    told = [str(request.messages[-1]["content"]) for request in of_scribe(model)]
    assert len(set(told)) == len(told), "nothing was summarised twice"


def test_a_summary_that_is_stored_before_a_run_asks_for_it_is_not_paid_for_again(
    alice: World,
    rememberer: AgentSpec,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run reads the history, then another worker stores its summary, then the run finds nobody at work."""
    model.script_for_key(SCRIBE, [text("They spoke "), gate("hold"), text("of ropes.")])
    start_worker()
    session = alice.session()
    talk_until_due(alice, session)
    model.wait_gate("hold")
    state_of = summary_queue.state

    def after_the_summary(session_id: int) -> summary_queue.State:
        model.open_gate("hold")
        wait_for(is_summarised(session), "the summary is stored")
        return state_of(session_id)

    monkeypatch.setattr(summary_queue, "state", after_the_summary)
    assert say(alice, session, "knot " * 300).stop_reason == "end_turn"
    assert len([request for request in of_scribe(model) if SAID not in str(request.messages)]) == 1


def test_a_summary_whose_worker_died_is_made_by_another(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    session = due_session(alice)
    WorkerPresence.objects.create(worker="dead", host="h", pid=1, started_at=timezone.now(), seen_at=timezone.now())
    assert [taken.session for taken in summary_queue.claim("dead", 4, [])] == [session.pk]
    assert summary_queue.claim("other", 4, []) == []
    assert summary_queue.claim_one("other", session.pk) is None
    start_worker()
    assert summaries(session) == []
    WorkerPresence.objects.filter(worker="dead").update(seen_at="2020-01-01T00:00:00Z")
    wait_for(is_summarised(session), "another worker's summary")


def test_a_worker_that_dies_while_a_run_waits_for_its_summary_loses_nothing(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer, process_ends: list[int]
) -> None:
    model.script_for_key(SCRIBE, [text("They spoke "), gate("hold"), text("of ropes.")])
    first = start_worker()
    session = alice.session(seed=seed_of(10))
    accepted = alice.say(session, "and now?")
    model.wait_gate("hold")
    # As if the process were gone: nobody renews, nobody sweeps, nobody answers.
    first._loop.call_soon_threadsafe(first._loop.stop)
    first._thread.join(30)
    assert process_ends == [supervision.EXIT_CODE]
    process_ends.clear()
    WorkerPresence.objects.filter(worker=first.name).update(seen_at="2020-01-01T00:00:00Z")
    lease_is_over(accepted)
    start_worker()
    model.open_gate("hold")
    turn = wait_for_state(accepted, "done", "error")
    assert turn.stop_reason == "end_turn"
    # Twice if a sweep of the first worker was under way in a thread: it then takes the turn for a worker that is gone.
    assert turn.takeovers in (1, 2)
    assert of_agent(model)[-1].messages[2]["content"] == STANDS


def test_a_stopping_worker_leaves_its_summaries_to_others(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.script_for_key(SCRIBE, [text("They spoke "), gate("hold"), text("of ropes.")])
    first = start_worker()
    session = alice.session()
    talk_until_due(alice, session)
    model.wait_gate("hold")
    first.stop(grace=0.1)
    assert model.wait_ended(of_scribe(model)[0]) == "closed"
    model.open_gate("hold")
    start_worker()
    wait_for(is_summarised(session), "another worker's summary")
    assert DueSummary.objects.filter(session=session).count() == 0


def test_a_stopping_worker_gives_back_a_run_that_waits_for_its_summary(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.script_for_key(SCRIBE, [text("They spoke "), gate("hold"), text("of ropes.")])
    first = start_worker()
    session = alice.session(seed=seed_of(10))
    accepted = alice.say(session, "and now?")
    model.wait_gate("hold")
    first.stop(grace=0.1, drain=60)
    assert model.wait_ended(of_scribe(model)[0]) == "closed"
    assert turn_of(accepted).state == "queued"
    model.open_gate("hold")
    start_worker()
    turn = wait_for_state(accepted, "done", "error")
    assert (turn.stop_reason, turn.takeovers) == ("end_turn", 0)
    assert of_agent(model)[-1].messages[2]["content"] == STANDS


def test_a_stopping_worker_lets_a_summary_finish_in_its_grace_time_and_starts_no_other(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.script_for_key(SCRIBE, [text("They spoke "), gate("hold"), text("of ropes.")])
    first = start_worker()
    session = alice.session()
    talk_until_due(alice, session)
    model.wait_gate("hold")
    leaving = in_thread(lambda: first.stop(grace=120))
    wait_for(lambda: first._summariser._stopping, "it begins no more")
    other = due_session(alice)
    model.open_gate("hold")
    leaving.join(90)
    assert is_summarised(session)()
    assert DueSummary.objects.get(session=other).attempts == 0
    assert len(of_scribe(model)) == 1


def test_a_worker_that_begins_to_stop_during_a_claim_gives_the_session_back(
    alice: World,
    rememberer: AgentSpec,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = due_session(alice)
    claim, started, stopping = summary_queue.claim, threading.Event(), threading.Event()

    def claimed_meanwhile(*args: Any) -> list[Claimed]:
        claimed = claim(*args)
        if claimed:
            started.wait(30)
            worker._summariser.stop_claiming()
            stopping.set()
        return claimed

    monkeypatch.setattr(summary_queue, "claim", claimed_meanwhile)
    worker = start_worker()
    started.set()
    assert stopping.wait(30)
    wait_for(lambda: DueSummary.objects.get(session=session).worker == "", "the session is free again")
    assert DueSummary.objects.get(session=session).attempts == 0
    worker.stop(grace=1)
    assert of_scribe(model) == []


def test_a_tenant_with_many_long_conversations_does_not_use_all_slots(alice: World, bob: World, rememberer: AgentSpec) -> None:
    for world, count in ((alice, 5), (bob, 1)):
        for _ in range(count):
            due_session(world)
    WorkerPresence.objects.create(worker="one", host="h", pid=1, started_at=timezone.now(), seen_at=timezone.now())
    order = [summary_queue.claim("one", 1, [])[0].tenant for _ in range(3)]
    assert order == [alice.caller.tenant, bob.caller.tenant, alice.caller.tenant]
    assert summary_queue.claim("one", 4, [alice.caller.tenant]) == []


def test_a_fork_copies_a_summary_that_covers_only_copied_messages(
    alice: World, rememberer: AgentSpec, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    first = say(alice, session, "short")
    newest = talk_until_due(alice, session)
    wait_for(is_summarised(session), "a summary")
    whole = fork(alice, session, newest, "sailor:/whole")
    assert summaries(whole) == summaries(session)
    assert shown(whole) == shown(session)
    beginning = fork(alice, session, first, "sailor:/beginning")
    assert summaries(beginning) == []
    assert shown(beginning) == [("user", '"short"'), ("assistant", '"echo: short"')]
    say(alice, whole, "and on")
    assert of_agent(model)[-1].messages[1]["content"] == STANDS


def fork(world: World, source: Session, turn: Turn, uri: str) -> Session:
    return make_session_of_client(world.caller, uri=uri, agent=None, fork=creating.Fork(source, turn.public_id))


# --- how fast ------------------------------------------------------------------------------------


def test_a_turn_in_a_long_conversation_reads_only_messages_behind_the_summary(alice: World, on_postgres: bool) -> None:
    """Ten thousand messages, a few behind the summary, and two system messages far before it."""
    seed: list[dict[str, Any]] = [{"role": "user", "content": f"{number}"} for number in range(10_000)]
    seed[0] = seed[5_000] = {"role": "system", "content": "Be kind."}
    session, other = alice.session(seed=seed), alice.session(seed=seed)
    Compaction.objects.create(
        tenant_id=session.tenant_id, session=session, covers_through=9_990, summary=STANDS, created_at=timezone.now()
    )
    found = summary_queue.history_of(session.pk)
    assert [message.content for message in found.messages] == ["Be kind.", "Be kind.", STANDS, *map(str, range(9_990, 10_000))]
    assert len(summary_queue.history_of(other.pk).messages) == 10_000
    asked = stored_messages.query_for_models([session.pk])
    with connection.cursor() as cursor:
        if on_postgres:
            cursor.execute("analyze")
            (plan,) = raw_sql.rows(f"explain (analyze, format json) {asked.sql}", asked.params)
            assert rows_read(plan[0][0]["Plan"]) < 40
        else:
            plan_lines = [line[3] for line in raw_sql.rows(f"explain query plan {asked.sql}", asked.params)]
            of_messages = [line for line in plan_lines if line.split()[1:2] == ["m"]]
            assert [line.partition("(")[2] for line in of_messages] == [
                "session_id=? AND position>?)",
                "session_id=? AND position<?)",
            ]
            assert "message_of_system" in of_messages[1]


def rows_read(plan: dict[str, Any]) -> int:
    """Of messages, looked at or thrown away again."""
    own = 0
    if plan.get("Relation Name") == "sessions_app_message":
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own) + sum(rows_read(each) for each in plan.get("Plans", []))
