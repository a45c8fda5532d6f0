"""A turn that failed goes on from its last finished step: what stays, what its model gets, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Sum
from django.utils import timezone

from agents_app.errors import Answered, ProviderError, ProviderFault
from agents_app.runtime.interface import Limits
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base.errors import AgentGone, NotPossible, QuotaExceeded, TurnAlreadyRunning
from sessions_app.core.base.maintenance import Round
from sessions_app.core.figures import marks
from sessions_app.core.figures import turns as figures
from sessions_app.core.log import journal
from sessions_app.core.records import stored_messages, webhook_outbox
from sessions_app.core.sessions import inbox, model_input, state, truncating
from sessions_app.core.sessions.inbox import UserMessage
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.turns import failures
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Measure, Message, ModelUse, Session, Turn, TurnAttempt, TurnFigures
from tests.core import tools
from tests.core.client_actions import ends, start
from tests.core.conftest import World, turn_of, wait_for_state
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - runs after each test
from tests.core.reopening import ADD_ONE, BREAKS, GOES_ON, failed, reopen, script
from tests.core.tenancy.test_quotas import limit_tenant
from tests.core.turns.test_turns import full
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, status, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_tools", "lasting_presence")]

Start = Callable[[], Worker]


@pytest.mark.rule("V146", "V147")
def test_a_turn_goes_on_from_its_last_finished_step(alice: World, start_worker: Start, model: ModelServer) -> None:
    start_worker()
    session, turn, said = failed(alice, model)
    assert turn.resumable
    before = full(session)
    accepted = reopen(alice, session, turn)
    assert (accepted.turn_id, accepted.run) == (turn.pk, 2)
    over = wait_for_state(accepted, "done")
    assert (over.attempt, over.run, over.step, over.error, over.resumable) == (2, 2, 3, "", False)
    assert tools.runs == [("add_one", 1)], "no tool ran twice, and a call that was never finished did not run"
    # The whole history stays as it was seen; the model gets the finished messages and never the broken one.
    assert full(session) == [*before, ("assistant", "Two.")]
    broken, again = model.requests_of(said)[1:]
    assert again.messages == broken.messages
    compacted = [(line.role, json.loads(line.content)) for line in stored_messages.read(session, "compacted")]
    assert compacted == [*before[:-1], ("assistant", "Two.")]
    assert [line.content for line in stored_messages.of_run(turn.pk, 2)] == ['"Two."']
    # Tokens add up: once for each call of the model.
    assert (over.input_tokens, over.output_tokens) == (30, 6)
    assert usage_entries.used(alice.caller.tenant, Measure.TOKENS) == 36
    assert ModelUse.objects.filter(session=session.public_id).aggregate(calls=Sum("calls"))["calls"] == 3
    assert (attempt := TurnAttempt.objects.get(turn=turn)).error == "provider_failed"
    assert json.loads(attempt.failure or "")["kind"] == "broken_stream"


def test_its_events_name_the_attempt_and_begin_a_run(alice: World, start_worker: Start, model: ModelServer) -> None:
    start_worker()
    session, turn, _ = failed(alice, model)
    wait_for_state(reopen(alice, session, turn), "done")
    named = {"turn": turn.public_id}
    found = events(session, "turn_failed", "turn_reopened", "turn_resumed", "turn_ended")
    assert [kind for kind, _ in found] == ["turn_failed", "turn_reopened", "turn_resumed", "turn_ended"]
    assert found[0][1]["resumable"] is True
    assert [payload for _, payload in found[1:3]] == [{**named, "attempt": 2}, {**named, "run": 2}]
    assert turns.stop_reason_of_run(turn.pk, 1) == "error"
    assert turns.stop_reason_of_run(turn.pk, 2) == "end_turn"


@pytest.mark.rule("V145", "V503")
def test_it_may_fail_and_be_reopened_again_and_each_failure_stays_in_its_place(
    alice: World, start_worker: Start, model: ModelServer
) -> None:
    start_worker()
    session, turn, _ = failed(alice, model, BREAKS, BREAKS, GOES_ON)
    reopen(alice, session, turn)
    ends(session, turn.public_id, "error")
    assert [each.place for each in state.read(alice.caller, session).turns[0].attempts] == [5]
    wait_for_state(reopen(alice, session, turn), "done")
    (shown,) = state.read(alice.caller, session).turns
    assert [part.id for part in shown.parts] == ["1.0", "1.1", *(f"{step}.{part}" for step in (2, 3) for part in range(3)), "4.0"]
    # The calls that broken steps had begun are over, and different ones although the provider named them alike.
    calls = [part.call for part in shown.parts if part.call is not None]
    assert [each.status for each in calls] == ["done", "ended", "ended"]
    assert len({each.id for each in calls}) == 3
    assert [(each.place, each.error) for each in shown.attempts] == [(5, "provider_failed"), (8, "provider_failed")]
    assert shown.error == ""


@pytest.mark.parametrize(
    ("fault", "answered", "passes"),
    [
        ("broken_stream", Answered(), True),
        ("timeout", Answered(), True),
        ("unavailable", Answered(500), True),
        ("unavailable", Answered(429, "rate_limit_exceeded"), True),
        ("unavailable", Answered(429, "insufficient_quota"), False),
        ("broken_stream", Answered(None, "402 billing"), False),
        ("refused_request", Answered(400), False),
        ("configuration", Answered(401), False),
    ],
)
def test_failures_of_a_provider_that_may_pass(fault: ProviderFault, answered: Answered, passes: bool) -> None:
    assert failures.may_pass("provider_failed", ProviderError(fault, "", answered)) is passes


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        *(("interrupted", True), ("limit", True), ("internal", True), ("quota_tokens", True)),
        *(("too_many_steps", False), ("turn_too_large", False), ("anything", False)),
    ],
)
def test_other_failures_that_may_pass(error: str, passes: bool) -> None:
    assert failures.may_pass(error, None) is passes


def test_a_turn_without_a_step_left_is_not_resumable(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Start, model: ModelServer
) -> None:
    agents(limits=Limits(max_steps=2))
    start_worker()
    session, turn, _ = failed(alice, model)
    assert not turn.resumable
    with pytest.raises(NotPossible):
        reopen(alice, session, turn)
    assert failures.has_room(2, None, failures.MOST_ATTEMPTS - 1)
    assert not failures.has_room(2, None, failures.MOST_ATTEMPTS)


# --- refusals, without a side effect ---


def unchanged(session: Session) -> Any:
    return (
        journal.tail(session.pk),
        list(Turn.objects.filter(session=session).order_by("pk").values()),
        Message.objects.filter(session=session).exclude(superseded_at=None).count(),
        TurnAttempt.objects.count(),
        [usage_entries.used(session.tenant_id, measure) for measure in (Measure.TOKENS, Measure.BYTES)],
    )


@pytest.mark.rule("V146")
def test_every_other_turn_is_refused(alice: World, start_worker: Start, model: ModelServer) -> None:
    session, other = alice.session(), alice.session()
    queued = alice.say(session, "one")
    with pytest.raises(TurnAlreadyRunning):
        turns.reopen(alice.caller, session, queued.public_id)
    turns.cancel(alice.caller, session)
    start_worker()
    done = wait_for_state(alice.say(other, "fine"), "done")
    refused = wait_for_state(alice.say(other, model.script([status(400)])), "error")
    older, failed_turn, _ = failed(alice, model)
    wait_for_state(alice.say(older, "more"), "done")
    for of, turn in [
        (session, queued.public_id),
        (session, "no such turn"),
        (other, done.public_id),
        (other, refused.public_id),
        (older, failed_turn.public_id),
    ]:
        before = unchanged(of)
        with pytest.raises(NotPossible):
            turns.reopen(alice.caller, of, turn, dispatched=action())
        assert unchanged(of) == before


def test_quotas_and_a_removed_agent_refuse_it_like_any_turn(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Start, model: ModelServer
) -> None:
    start_worker()
    session, turn, _ = failed(alice, model)
    before = unchanged(session)
    limit_tenant(alice, tokens_per_day=5)
    with pytest.raises(QuotaExceeded):
        reopen(alice, session, turn)
    limit_tenant(alice, tokens_per_day=None)
    Session.objects.filter(pk=session.pk).update(agent_name="gone")
    with pytest.raises(AgentGone):
        reopen(alice, session, turn)
    Session.objects.filter(pk=session.pk).update(agent_name="sailor")
    assert unchanged(session) == before
    wait_for_state(reopen(alice, session, turn), "done")


def test_tokens_that_ran_out_refuse_it_until_there_are_tokens_again(
    alice: World, start_worker: Start, model: ModelServer
) -> None:
    limit_tenant(alice, tokens_per_day=12)
    start_worker()
    session, turn, said = failed(alice, model, GOES_ON)
    assert (turn.error, turn.resumable, len(model.requests_of(said))) == ("quota_tokens", True, 1)
    with pytest.raises(QuotaExceeded):
        reopen(alice, session, turn)
    limit_tenant(alice, tokens_per_day=1000)
    wait_for_state(reopen(alice, session, turn), "done")
    assert full(session)[-1] == ("assistant", "Two.")


# --- what assumes that an ended turn does not change ---


def test_a_steering_message_that_came_before_reaches_the_next_attempt(
    alice: World, start_worker: Start, model: ModelServer
) -> None:
    start_worker()
    session, turn, _ = failed(alice, model)
    inbox.put(alice.caller, session, "steering", "m1", UserMessage("And three?"), dispatched=action())
    wait_for_state(reopen(alice, session, turn), "done")
    roles = [role for role, _ in full(session)]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"], "steered before the next model call"


def test_each_steering_message_is_taken_after_several_broken_steps(alice: World, start_worker: Start, model: ModelServer) -> None:
    """The run does not know the unfinished messages, but counts them when it looks for the message that it has stored."""
    start_worker()
    session, said = alice.session(tools=[*ADD_ONE, {"name": "block", "trust": True}]), script(model, BREAKS)
    turn = ends(session, alice.say(session, said).public_id, "error")
    for _ in range(2):
        reopen(alice, session, turn)
        ends(session, turn.public_id, "error")
    first, second = model.script([call("block", {"n": 1}, id="b")]), model.script([text("Two.")])
    inbox.put(alice.caller, session, "steering", "m1", UserMessage(first), dispatched=action())
    accepted = reopen(alice, session, turn)
    assert tools.entered.wait(60)
    inbox.put(alice.caller, session, "steering", "m2", UserMessage(second), dispatched=action())
    tools.release.set()
    wait_for_state(accepted, "done")
    assert [content for role, content in full(session) if role == "user"] == [said, first, second]


def test_a_deadline_of_the_failed_run_does_not_stop_the_next(alice: World, start_worker: Start, model: ModelServer) -> None:
    start_worker()
    session, turn, _ = failed(alice, model)
    Turn.objects.filter(pk=turn.pk).update(deadline_at=timezone.now() - timedelta(hours=1))
    wait_for_state(reopen(alice, session, turn), "done")


def test_it_can_be_cancelled_and_is_then_over_for_good(alice: World, start_worker: Start, model: ModelServer) -> None:
    worker = start_worker()
    session, turn, _ = failed(alice, model)
    worker.stop(grace=0.2)
    accepted = reopen(alice, session, turn)
    assert turns.cancel(alice.caller, session).cancelled
    assert turn_of(accepted).state == "cancelled"
    with pytest.raises(NotPossible):
        reopen(alice, session, turn)


def test_each_end_counts_in_the_figures(alice: World, start_worker: Start, model: ModelServer) -> None:
    start_worker()
    session, turn, _ = failed(alice, model)
    wait_for_state(reopen(alice, session, turn), "done")
    # Nothing else has ended in that minute.
    TurnAttempt.objects.update(ended_at=timezone.now() - timedelta(minutes=2, seconds=30))
    marks.write("turns", timezone.now() - timedelta(minutes=2))
    figures.count(Round(60), timezone.now())
    rows = TurnFigures.objects.filter(width=60, tenant_id=0)
    assert (sum(row.turns for row in rows), sum(row.errors for row in rows)) == (2, 1)
    causes = [json.loads(row.causes) for row in rows if row.errors]
    assert causes == [{"broken_stream": 1}]


def test_the_pages_of_model_input_leave_out_what_the_model_was_not_sent(
    alice: World, start_worker: Start, model: ModelServer
) -> None:
    start_worker()
    session, turn, _ = failed(alice, model)
    wait_for_state(reopen(alice, session, turn), "done")
    row = Turn.objects.get(pk=turn.pk)
    again = model_input.at_step(session, row, 3)
    assert [line.role for line in again.lines] == ["user", "assistant", "tool"]
    assert [role for _, role in again.left_out] == ["assistant"]


def test_after_a_truncation_the_time_and_the_state_of_the_chat_follow_the_reopened_turn(
    alice: World, start_worker: Start, model: ModelServer
) -> None:
    """The law of states checks the chat's time; a client's clock may be years ahead."""
    start_worker()
    session, turn, _ = failed(alice, model, BREAKS, [status(400)])
    start(alice, session, "later", "t2", started_at="2031-05-05T10:00:00.000Z")
    ends(session, "t2")
    truncating.truncate(alice.caller, session, turn.public_id, dispatched=action())
    assert state.read(alice.caller, session).summary.state == "idle"
    reopen(alice, session, turn)
    ends(session, turn.public_id, "error")
    shown = state.read(alice.caller, session).summary
    assert (shown.state, shown.chat_modified_at[:2]) == ("failed", "20")
    assert not shown.chat_modified_at.startswith("2031")


def test_webhooks_report_each_end(alice: World) -> None:
    outcome = webhook_outbox._outcome("turn_failed", {"error": "provider_failed", "resumable": True})
    assert outcome == {"status": "error", "error": "provider_failed", "resumable": True}
    assert webhook_outbox._outcome("turn_failed", {"error": "limit"})["resumable"] is False


def test_workers_of_the_previous_release_leave_it_to_newer_ones(
    alice: World, start_worker: Start, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would send the broken message to the model."""
    worker = start_worker()
    session, turn, _ = failed(alice, model)
    worker.stop(grace=0.2)
    reopen(alice, session, turn)
    monkeypatch.setattr("sessions_app.core.turns.queue.TURN_FORMAT", 5)
    assert turns.claim("old").runs == []
    monkeypatch.undo()
    assert len(turns.claim("new").runs) == 1


def test_a_step_without_output_is_made_again(alice: World, start_worker: Start, model: ModelServer) -> None:
    start_worker()
    # Before the first output a provider is asked three times.
    session, turn, _ = failed(alice, model, *[[status(500)]] * 3, GOES_ON)
    before = full(session)
    wait_for_state(reopen(alice, session, turn), "done")
    assert full(session) == [*before, ("assistant", "Two.")]
    assert not Message.objects.filter(session=session).exclude(superseded_at=None).exists()
