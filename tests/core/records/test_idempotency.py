"""A request takes effect once, however often it is sent; a run ends by its client's deadline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from sessions_app.core import turns
from sessions_app.core.base.errors import IdempotencyKeyReused, InvalidInput, TurnAlreadyRunning
from sessions_app.core.records.idempotency import IdempotencyKey
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.sessions import creating
from sessions_app.core.turns import ClientResult, Permission
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker
from sessions_app.models import IdempotencyRecord, Message, Session, Turn
from tests.core import tools
from tests.core.conftest import World, kinds, turn_of, wait_for, wait_for_state
from tests.core.threads import at_once
from tests.core.turns.test_turns import READ_LOG, full
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, hang, text


def key_of(key: str, body: Any = "same", route: str = "/turns") -> IdempotencyKey:
    return IdempotencyKey.of(route, key, body)


def create(alice: World, key: str, body: Any = "same") -> str:
    return creating.create(
        alice.caller, creating.SessionRequest("sailor"), idempotency_key=key_of(key, body, "/sessions")
    ).public_id


def say(alice: World, session: Session, words: str, key: str, body: Any = "same") -> turns.Accepted:
    return turns.start(alice.caller, session, content=words, overrides=Overrides(), idempotency_key=key_of(key, body))


@pytest.mark.rule("A98")
def test_the_same_creation_twice_makes_one_session(alice: World) -> None:
    assert create(alice, "k") == create(alice, "k")
    assert create(alice, "other") != create(alice, "k")
    assert Session.objects.count() == 2
    with pytest.raises(IdempotencyKeyReused):
        create(alice, "k", "another body")


def test_the_stored_digest_confirms_no_guess_of_a_body(alice: World) -> None:
    body = {"agent": {"options": {"password": "hunter2"}}}
    create(alice, "k", body)
    create(alice, "k2", body)
    stored = list(IdempotencyRecord.objects.values_list("digest", flat=True))
    written = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    guesses = {hashlib.new(name, written, usedforsecurity=False).hexdigest() for name in ("sha256", "sha3_256", "blake2s")}
    assert not guesses & set(stored)
    assert len(set(stored)) == 2, "equal bodies are not seen to be equal"


@pytest.mark.rule("A98")
def test_a_retry_across_an_upgrade_finds_what_the_previous_release_accepted(alice: World) -> None:
    body = {"b": 1, "a": [True, "x"]}
    first = create(alice, "k", body)
    plain = hashlib.sha256(b'{"a":[true,"x"],"b":1}').hexdigest()
    assert IdempotencyRecord.objects.update(digest=plain) == 1
    assert create(alice, "k", body) == first
    with pytest.raises(IdempotencyKeyReused):
        create(alice, "k", {"b": 2})
    assert Session.objects.count() == 1


@pytest.mark.rule("A98")
def test_the_same_creation_at_once_makes_one_session(alice: World) -> None:
    made = at_once(*[lambda: create(alice, "k")] * 4)
    assert len(set(made)) == 1
    assert Session.objects.count() == 1


@pytest.mark.rule("A98")
def test_a_repeated_turn_joins_the_first_and_runs_nothing_twice(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session()
    script = model.script([text("a"), gate("hold"), text("b")])
    first = say(alice, session, script, "k")
    model.wait_gate("hold")
    again = say(alice, session, script, "k")
    assert (again.turn_id, again.run, again.start, again.repeated) == (first.turn_id, first.run, first.start, True)
    with pytest.raises(TurnAlreadyRunning):
        say(alice, session, script, "another key")
    model.open_gate("hold")
    wait_for_state(first, "done")
    assert say(alice, session, script, "k").start == first.start
    with pytest.raises(IdempotencyKeyReused):
        say(alice, session, script, "k", "another body")
    assert len(model.requests_of(script)) == 1
    assert [role for role, _ in full(session)] == ["user", "assistant"]


@pytest.mark.rule("A98")
def test_a_repeated_answer_joins_its_run(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    tools.forget()
    start_worker()
    session = alice.session(tools=[{"name": "add_one"}])
    first = alice.say(session, model.script([call("add_one", {"n": 1}, id="c")], [text("done")]))
    wait_for_state(first, "waiting")
    given = [Permission(0, "c", granted=True)]
    run = turns.answer(alice.caller, session, answers=given, overrides=Overrides(), idempotency_key=key_of("k"))
    wait_for_state(first, "done")
    again = turns.answer(alice.caller, session, answers=given, overrides=Overrides(), idempotency_key=key_of("k"))
    assert (again.run, again.start, again.repeated) == (2, run.start, True)
    assert tools.runs == [("add_one", 1)]
    assert turns.stop_reason_of_run(again.turn_id, 1) == "tool_use"
    assert turns.stop_reason_of_run(again.turn_id, 2) == "end_turn"


@pytest.mark.rule("A98", "A7")
def test_a_refused_request_is_not_remembered(alice: World) -> None:
    session = alice.session()
    with pytest.raises(InvalidInput):
        turns.answer(
            alice.caller, session, answers=[ClientResult(0, "x", "y")], overrides=Overrides(), idempotency_key=key_of("k")
        )
    assert IdempotencyRecord.objects.count() == 0
    assert say(alice, session, "hello", "k").repeated is False


@pytest.mark.rule("A98", "A3")
def test_another_tenants_key_means_nothing(alice: World, bob: World) -> None:
    assert create(alice, "k") != create(bob, "k")
    with pytest.raises(IdempotencyKeyReused):
        create(bob, "k", "another body")


@pytest.mark.rule("A98")
def test_a_key_is_forgotten_after_a_day(alice: World) -> None:
    first = create(alice, "k")
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert create(alice, "k", "another body") != first
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    housekeeping.run()
    assert IdempotencyRecord.objects.count() == 0


def test_the_order_of_a_bodys_keys_makes_no_other_body() -> None:
    assert key_of("k", {"a": 1, "b": [{"c": 1.0, "d": None}]}) == key_of("k", {"b": [{"d": None, "c": 1.0}], "a": 1})
    assert key_of("k", {"a": [1, 2]}) != key_of("k", {"a": [2, 1]})
    assert key_of("k", {"a": 1}) != key_of("k", {"a": "1"})


# --- deadlines ---


def start_with(alice: World, session: Session, words: str, deadline: float) -> turns.Accepted:
    return turns.start(alice.caller, session, content=words, overrides=Overrides(), deadline=deadline)


@pytest.mark.rule("A123")
def test_a_silent_provider_meets_the_deadline(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session()
    script = model.script([text("a"), hang()])
    turn = wait_for_state(start_with(alice, session, script, 4.0), "cancelled")
    assert turn.stop_reason == "error"
    assert model.wait_ended(model.requests_of(script)[0]) == "closed"
    assert full(session)[-1] == ("assistant", "a")
    assert kinds(session)[-1] == "turn_cancelled"
    wait_for_state(alice.say(session, model.script([text("next")])), "done")


@pytest.mark.rule("A123")
def test_a_turn_that_nobody_claims_ends_by_its_deadline(alice: World) -> None:
    session = alice.session()
    accepted = start_with(alice, session, "hello", 0.05)

    def stopped() -> bool:
        turns.stop_overdue()
        return turn_of(accepted).state == "cancelled"

    wait_for(stopped, "the deadline of a queued turn")


@pytest.mark.rule("A123")
def test_waiting_for_the_client_does_not_count(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    start_worker()
    session = alice.session(client_tools=[READ_LOG])
    accepted = start_with(alice, session, model.script([call("read_log", {}, id="c")], [text("done")]), 30)
    wait_for_state(accepted, "waiting")
    assert turn_of(accepted).deadline_at is None
    Turn.objects.update(deadline_at="2020-01-01T00:00:00Z")
    assert turns.stop_overdue() == 0
    alice.answer(session, ClientResult(0, "c", "calm"))
    wait_for_state(accepted, "done")
    assert Message.objects.filter(session=session).count() == 4
