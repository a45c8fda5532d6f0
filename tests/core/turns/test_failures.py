"""A failed turn keeps why as facts; the client whose own key, limit or model it was learns that, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agents_app.errors import Answered, ProviderError, ProviderFault
from agents_app.spec import AgentSpec, OptionSpec
from sessions_app.core.log import journal
from sessions_app.core.sessions import state
from sessions_app.core.turns import failures
from sessions_app.core.worker import planning
from sessions_app.core.worker.worker import Worker
from sessions_app.models import Turn
from tests.core.conftest import World, wait_for_state
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

SECRET = "sk-of-the-client-0815"


def spec(**given: Any) -> AgentSpec:
    fields: dict[str, Any] = {
        "name": "a",
        "model": "openai-chat:{brain}",
        "api_key": "{key}",
        "options": (
            OptionSpec("secret", "key", default="sk-default"),
            OptionSpec("select", "brain", options=("x", "y"), default="x"),
        ),
    }
    return AgentSpec(**{**fields, **given})


def refused(status: int | None, fault: ProviderFault = "configuration", code: str = "") -> ProviderError:
    return ProviderError(fault, "", Answered(status, code))


@pytest.mark.parametrize(
    ("error", "set_by_client", "code"),
    [
        (refused(401), {"key": "mine"}, "provider_key_refused"),
        (refused(403), {"key": "mine"}, "provider_key_refused"),
        (refused(400, code="INVALID_ARGUMENT"), {"key": "mine"}, "provider_key_refused"),
        (refused(400, "refused_request"), {"key": "mine"}, "provider_failed"),
        (refused(401), {}, "provider_failed"),
        (refused(401), {"key": ""}, "provider_failed"),
        (refused(401), {"key": "***"}, "provider_failed"),
        (refused(401), {"brain": "y"}, "provider_failed"),
        (refused(429, "unavailable"), {"key": "mine"}, "provider_limit_reached"),
        (refused(None, "unavailable", "insufficient_quota"), {"key": "mine"}, "provider_limit_reached"),
        (refused(402, "refused_request"), {"key": "mine"}, "provider_limit_reached"),
        (refused(None, "broken_stream", "429 rate_limit_error"), {"key": "mine"}, "provider_limit_reached"),
        (refused(None, "unavailable", "RESOURCE_EXHAUSTED"), {"key": "mine"}, "provider_limit_reached"),
        (refused(None, code="401"), {"key": "mine"}, "provider_key_refused"),
        (refused(None, "broken_stream"), {"key": "mine", "brain": "y"}, "provider_failed"),
        (refused(402, "refused_request"), {"brain": "y"}, "provider_failed"),
        (refused(429, "unavailable"), {}, "provider_failed"),
        (refused(404), {"brain": "y"}, "provider_model_unknown"),
        (refused(400, "refused_request", "model_not_found"), {"brain": "y"}, "provider_model_unknown"),
        (refused(None, "refused_request", "404"), {"brain": "y"}, "provider_model_unknown"),
        (refused(404), {}, "provider_failed"),
        (refused(500, "unavailable"), {"key": "mine", "brain": "y"}, "provider_failed"),
    ],
)
def test_only_failures_of_a_clients_own_values_are_reported_to_it(
    error: ProviderError, set_by_client: dict[str, str], code: str
) -> None:
    assert failures.code_of(error, spec(), set_by_client) == code


def test_a_clients_key_in_a_header_counts_as_its_own() -> None:
    own = spec(api_key=None, headers={"X-Key": "{key}"})
    assert failures.code_of(refused(401), own, {"key": "mine"}) == "provider_key_refused"


def test_facts_contain_only_numbers_and_short_codes() -> None:
    answered = Answered(429, "c" * 5000, float("inf"), attempts=3, after_output=True)
    found = failures.facts(ProviderError("unavailable", "free text", answered), "openai-chat:gpt")
    assert found == {
        "kind": "unavailable",
        "provider": "openai-chat",
        "attempts": 3,
        "after_output": True,
        "status": 429,
        "code": "c" * 200,
    }
    assert failures.facts(ProviderError("timeout", "", Answered(retry_after=-3)), "x:y")["retry_after"] == 0


def failure_of(turn: Turn) -> Any:
    return None if turn.failure is None else json.loads(turn.failure)


@pytest.mark.django_db(transaction=True)
@pytest.mark.rule("A84", "R147")
def test_a_clients_refused_key_is_reported_to_it_and_stored_as_facts(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    refusal = model.script([steps.status(401, message=f"Incorrect API key: {SECRET}", code="invalid_api_key")])
    mine, theirs = alice.session(options={"key": SECRET}), alice.session()
    turn = wait_for_state(alice.say(mine, refusal), "error")
    assert turn.error == "provider_key_refused"
    found = failure_of(turn)
    assert found.pop("host").startswith("127.0.0.1:")
    assert found == {
        "kind": "configuration",
        "provider": "openai-chat",
        "attempts": 1,
        "after_output": False,
        "status": 401,
        "code": "invalid_api_key scripted",
    }
    assert state.read(alice.caller, mine).turns[0].error == "provider_key_refused"
    # With the operator's key it is the operator's business: its clients learn no more than before.
    turn = wait_for_state(alice.say(theirs, refusal), "error")
    assert turn.error == "provider_failed"
    assert failure_of(turn)["status"] == 401
    for session in (mine, theirs):
        assert SECRET not in "".join(event.data for event in journal.read_session(session.tenant_id, session.pk, 0, 1000).events)


@pytest.mark.django_db(transaction=True)
@pytest.mark.rule("A85")
def test_a_broken_answer_and_a_retried_one_have_different_facts(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    start_worker()
    session = alice.session(options={"key": SECRET})
    turn = wait_for_state(alice.say(session, model.script([steps.text("so far"), steps.drop()])), "error")
    assert (turn.error, failure_of(turn)["kind"], failure_of(turn)["after_output"]) == ("provider_failed", "broken_stream", True)
    limited = steps.status(429, retry_after="0", code="rate_limit_exceeded")
    # As often as an agent's provider is asked again.
    asked = model.script(*[[limited]] * 10)
    turn = wait_for_state(alice.say(session, asked), "error")
    assert turn.error == "provider_limit_reached"
    found = failure_of(turn)
    assert (found["status"], found["code"], found["retry_after"]) == (429, "rate_limit_exceeded scripted", 0)
    assert found["attempts"] == len(model.requests_of(asked)) > 1


@pytest.mark.django_db(transaction=True)
def test_an_internal_failure_stores_its_class_and_place_and_never_its_message(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(planning, "make", broken)
    start_worker()
    turn = wait_for_state(alice.say(alice.session(), model.script([steps.text("never")])), "error")
    found = failure_of(turn)
    assert (turn.error, found["exception"]) == ("internal", "KeyError")
    assert found["frames"][-1].startswith("test_failures.py:")
    assert found["frames"][-1].endswith(" in broken")
    assert len(found["frames"]) <= 5
    assert SECRET not in json.dumps(found)
