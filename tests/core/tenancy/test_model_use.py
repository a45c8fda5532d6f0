"""What model calls took and cost: counted as they are made, whatever becomes of the session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from agents_app.runtime.interface import Usage
from agents_app.spec import AgentSpec, Price
from sessions_app.core.sessions import deleting, removing
from sessions_app.core.tenancy import model_use, usage_entries
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker
from sessions_app.models import ModelUse
from tests.core.conftest import World, wait_for_state
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, status, text, usage

pytestmark = pytest.mark.django_db(transaction=True)

PRICES = {"test": Price(input=2.0, output=8.0, cache_read=0.5)}


def lines(*by: model_use.Grouping) -> list[model_use.Line]:
    return list(model_use.report(by, tenant=None, first=None, last=None))


def test_every_model_call_of_a_turn_is_counted_with_its_price_by_day_session_key_and_agent(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, agents: Callable[..., AgentSpec]
) -> None:
    agents(prices=PRICES)
    model.enqueue([usage(1000, 10, cached=400), call("hidden", {"n": 1})], [usage(2000, 100), text("done")])
    start_worker()
    session = alice.session()
    wait_for_state(alice.say(session, "hello"), "done")
    (line,) = lines("day", "session", "agent", "model", "purpose")
    assert line.groups == (usage_entries.today().isoformat(), session.public_id, "sailor", "openai-chat:test", "turn")
    assert (line.calls, line.input_tokens, line.output_tokens, line.cache_read_tokens) == (2, 3000, 110, 400)
    # 2,600 at 2, 400 at 0.5, 110 at 8 a million.
    assert (line.cost, line.unpriced_tokens) == (Decimal("0.006280"), 0)
    (by_key,) = lines("tenant", "key")
    assert by_key.groups[0] == "alice"
    assert by_key.groups[1].endswith("… test")


def test_what_was_used_outlives_its_session(alice: World, start_worker: Callable[[], Worker], model: ModelServer) -> None:
    model.enqueue([usage(7, 3), text("done")])
    start_worker()
    session = alice.session()
    wait_for_state(alice.say(session, "hello"), "done")
    deleting.delete(alice.caller, session)
    assert removing.remove_session(session.pk)
    (line,) = lines("session")
    assert (line.groups, line.calls, line.input_tokens, line.output_tokens) == ((session.public_id,), 1, 7, 3)


def test_tokens_of_a_model_without_a_price_are_said_to_be_unpriced(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, agents: Callable[..., AgentSpec]
) -> None:
    start_worker()
    model.enqueue([usage(7, 3), text("done")])
    wait_for_state(alice.say(alice.session(), "hello"), "done")
    agents(prices=PRICES)
    model.enqueue([usage(1_000_000, 0), text("done")])
    wait_for_state(alice.say(alice.session(), "hello"), "done")
    (line,) = lines("agent")
    assert (line.cost, line.unpriced_tokens) == (Decimal(2), 10)


def test_a_call_that_the_provider_refused_took_nothing_and_is_counted_as_a_call(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.enqueue([status(400)])
    start_worker()
    wait_for_state(alice.say(alice.session(), "hello"), "error")
    (line,) = lines("agent")
    assert (line.calls, line.input_tokens, line.output_tokens, line.cost) == (1, 0, 0, None)


def test_two_tenants_are_told_apart_and_a_report_may_be_of_one_of_them(
    alice: World, bob: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    model.enqueue([usage(7, 3), text("a")], [usage(5, 2), text("b")])
    start_worker()
    wait_for_state(alice.say(alice.session(), "hello"), "done")
    wait_for_state(bob.say(bob.session(), "hello"), "done")
    assert [(line.groups, line.input_tokens) for line in lines("tenant")] == [(("alice",), 7), (("bob",), 5)]


@pytest.mark.parametrize(
    ("prices", "usage", "cost"),
    [
        ({}, Usage(1, 1), None),
        ({"other": Price(1, 1)}, Usage(1, 1), None),
        ({"m": Price(1, 2)}, Usage(1_000_000, 1_000_000), 3 * 10**9),
        ({"m": Price(1, 2)}, Usage(1_000_000, 0, 400_000), 10**9),
        ({"m": Price(1, 2, 0)}, Usage(1_000_000, 0, 400_000), 6 * 10**8),
        ({"v:m": Price(5, 5), "m": Price(1, 1)}, Usage(1, 0), 5_000),
        ({"m": Price(0.075, 0.3)}, Usage(1, 1), 375),
        # More from the cache than there was: a provider that counts it apart does not make a call cheaper than free.
        ({"m": Price(1, 2, 0)}, Usage(10, 0, 50), 0),
        ({"m": Price(10**9, 10**9)}, Usage(10**12, 10**12), 2**62),
    ],
)
def test_a_cost_is_that_of_the_models_price_for_a_million_tokens(
    prices: dict[str, Price], usage: Usage, cost: int | None
) -> None:
    assert model_use.cost(prices, "v:m", usage) == cost


def test_what_is_older_than_the_operator_keeps_it_is_removed(db: None) -> None:
    today = usage_entries.today()
    for days in (0, 400, 401):
        ModelUse.objects.create(
            tenant_id=1, day=today - timedelta(days=days), session="s", agent="a", model="m", purpose="turn",
            calls=1, input_tokens=1, output_tokens=1, cache_read_tokens=0,
        )  # fmt: skip
    housekeeping.run()
    assert sorted(ModelUse.objects.values_list("day", flat=True)) == [today - timedelta(days=400), today]
