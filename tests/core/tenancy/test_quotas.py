"""Quotas: each limit reached and freed, what is counted where it is written, refusals that change nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import InvalidInput, NotAuthenticated, QuotaExceeded, SessionFull, TurnAlreadyRunning
from sessions_app.core.base.user_messages import UserMessage
from sessions_app.core.records import stored_messages
from sessions_app.core.records.idempotency import IdempotencyKey
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.sessions import creating, deleting, inbox, listing, removing
from sessions_app.core.tenancy import access, keys, quotas, rates, tenants, usage_entries
from sessions_app.core.turns import ClientResult
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker
from sessions_app.models import ApiKey, Measure, Message, Session, Tenant, Turn, TurnState, UsageEntry, UsageTotal
from tests.core import tools
from tests.core.conftest import World, claim_one, turn_of, wait_for, wait_for_state
from tests.core.on_loop import on_loop
from tests.core.threads import at_once, errors_of
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text, usage

READ_LOG = {"name": "read_log", "description": "", "parameters": {"type": "object"}}


@pytest.fixture(autouse=True)
def _midnight_comes_when_a_test_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    day = usage_entries.today()
    monkeypatch.setattr(usage_entries, "today", lambda: day)


@pytest.fixture(autouse=True)
def _own_rates(monkeypatch: pytest.MonkeyPatch) -> Any:
    # A late answer of a machine under pressure is none of a Redis that hangs.
    monkeypatch.setattr(rates, "_READ_TIMEOUT", 30.0)
    rates.reset()
    yield
    rates.reset()


def tenant_of(world: World) -> Tenant:
    return Tenant.objects.get(pk=world.caller.tenant)


def limit_tenant(world: World, **limits: int | None) -> None:
    """As the operator does it, and as the next request is authenticated."""
    tenant = tenant_of(world)
    tenants.set_limits(tenant, Limits(**limits), session_retention_days=None, actor="tests")
    world.caller = replace(world.caller, tenant_limits=quotas.limits_of_tenant(tenant))


def limit_key(world: World, **limits: int | None) -> None:
    key = ApiKey.objects.get(pk=world.caller.key)
    keys.set_limits(key, Limits(**limits), actor="tests")
    world.caller = replace(world.caller, key_limits=quotas.own_limits(key))


def another_key(world: World) -> World:
    issued = keys.issue(tenant_of(world), name="other", scopes=["*"], expires_at=None, allowed_agents=None, actor="tests")
    return World(keys.authenticate(issued.raw))


def used(world: World, measure: Measure, *, of_key: bool = False) -> int:
    return usage_entries.used(world.caller.tenant, measure, world.caller.key if of_key else None)


def bytes_there(world: World) -> int:
    """Counted anew, from what is stored."""
    rows = Session.objects.filter(tenant_id=world.caller.tenant)
    return sum(usage_entries.bytes_of_settings(row) + usage_entries.bytes_of_history(row) for row in rows)


def refused(quota: str) -> Any:
    return pytest.raises(QuotaExceeded, match=quota)


# --- turns at once ---


@pytest.mark.rule("A6", "A7")
@pytest.mark.parametrize("whose", [limit_tenant, limit_key])
def test_a_turn_beyond_the_turns_at_once_is_refused_and_changes_nothing(alice: World, whose: Callable[..., None]) -> None:
    whose(alice, turns_at_once=1)
    first, second = alice.session(), alice.session()
    running = alice.say(first, "one")
    before = (Message.objects.count(), Turn.objects.count(), UsageEntry.objects.count(), used(alice, Measure.BYTES))
    with refused("turns-at-once") as refusal:
        alice.say(second, "two", Overrides(options={"tone": "loudly"}))
    assert (refusal.value.limit, refusal.value.of_key) == (1, whose is limit_key)
    assert (Message.objects.count(), Turn.objects.count(), UsageEntry.objects.count(), used(alice, Measure.BYTES)) == before
    assert listing.facts(access.session(alice.caller, second.public_id)).options == {}
    turns.cancel(alice.caller, first)
    assert turn_of(running).state == TurnState.CANCELLED
    alice.say(second, "two")


def test_a_key_has_its_own_turns_at_once_within_the_tenants(alice: World) -> None:
    other = another_key(alice)
    limit_key(alice, turns_at_once=1)
    alice.say(alice.session(), "one")
    other.say(other.session(), "two")
    with refused("turns-at-once"):
        alice.say(alice.session(), "three")
    limit_tenant(other, turns_at_once=2)
    with refused("turns-at-once"):
        other.say(other.session(), "four")


def rotated(world: World) -> World:
    """The key's successor, as it authenticates."""
    old = ApiKey.objects.get(pk=world.caller.key)
    return World(keys.authenticate(keys.rotate(old, timedelta(hours=1), actor="tests").raw))


def test_a_rotated_key_goes_on_with_what_its_predecessors_have_used(alice: World) -> None:
    limit_key(alice, turns_at_once=3, turns_per_minute=3, sessions=3, tokens_per_day=100)
    stranger = another_key(alice)
    stranger.say(stranger.session(), "somebody else's")
    first = alice.session()
    alice.say(first, "one")
    heir = rotated(rotated(alice))
    assert heir.caller.key_limits == alice.caller.key_limits
    heir.say(heir.session(), "two")
    alice.say(alice.session(), "three")
    for world in (alice, heir):
        assert used(world, Measure.SESSIONS, of_key=True) == 3
        with refused("sessions"):
            world.session()
        with refused("turns-per-minute"):
            world.say(first, "four")
    rates.reset()
    limit_key(heir, turns_at_once=3)
    limit_key(alice, turns_at_once=3)
    heir_session = heir.session()
    for world in (alice, heir):
        with refused("turns-at-once"):
            world.say(heir_session, "four")
    row = Turn.objects.filter(session=first).get()
    raw_sql.execute([usage_entries.tokens_used(alice.caller.tenant, row.pk, 100)])
    for world in (alice, heir):
        limit_key(world, tokens_per_day=100)
        assert used(world, Measure.TOKENS, of_key=True) == 100
        with refused("tokens-per-day"):
            world.say(heir_session, "four")
        budget = quotas.token_budget(world.caller.tenant, None, world.caller.key, 100)
        assert budget is not None
        assert budget.overdrawn()
    assert used(stranger, Measure.TOKENS, of_key=True) == 0


def test_a_second_turn_in_a_running_session_is_told_so_and_not_about_quotas(alice: World) -> None:
    limit_tenant(alice, turns_at_once=1)
    session = alice.session()
    alice.say(session, "one")
    with pytest.raises(TurnAlreadyRunning):
        alice.say(session, "two")


def test_turns_that_wait_for_their_client_take_no_place_until_they_are_answered(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    limit_tenant(alice, turns_at_once=1)
    worker = start_worker()
    waiting = alice.session(client_tools=[READ_LOG])
    paused = alice.say(waiting, model.script([call("read_log", {}, id="c")], [text("done")]))
    wait_for_state(paused, "waiting")
    worker.stop(grace=0)
    other = alice.session()
    alice.say(other, "takes the place")
    with refused("turns-at-once"):
        alice.answer(waiting, ClientResult(0, "c", "calm"))
    with refused("turns-at-once"), turns.answering(alice.caller, waiting) as open_calls:
        open_calls.answer([ClientResult(0, "c", "calm")])
    assert turn_of(paused).state == TurnState.WAITING
    turns.cancel(alice.caller, other)
    alice.answer(waiting, ClientResult(0, "c", "calm"))
    assert turn_of(paused).state == TurnState.QUEUED


def test_of_two_at_once_for_the_last_place_one_wins(alice: World) -> None:
    limit_tenant(alice, turns_at_once=3)
    alice.say(alice.session(), "there")
    rows = [alice.session() for _ in range(6)]
    outcomes = at_once(*(partial(alice.say, row, "me") for row in rows))
    assert errors_of(outcomes) == ["QuotaExceeded"] * 4 + ["done"] * 2
    assert Turn.objects.filter(state=TurnState.QUEUED).count() == 3


def test_of_many_at_once_for_the_last_sessions_as_many_are_made_as_may_be(alice: World) -> None:
    limit_tenant(alice, sessions=2)
    assert errors_of(at_once(*[alice.session] * 5)) == ["QuotaExceeded"] * 3 + ["done"] * 2
    assert Session.objects.count() == used(alice, Measure.SESSIONS) == 2


# --- sessions and bytes ---


@pytest.mark.parametrize("whose", [limit_tenant, limit_key])
def test_sessions_beyond_their_number_are_refused_until_one_is_deleted(alice: World, whose: Callable[..., None]) -> None:
    whose(alice, sessions=2)
    first, _second = alice.session(), alice.session()
    with refused("sessions"):
        alice.session()
    assert Session.objects.count() == 2
    deleting.delete(alice.caller, first)
    alice.session()
    with refused("sessions"):
        alice.session()


def test_one_tenants_limits_and_use_are_nothing_to_another(alice: World, bob: World) -> None:
    limit_tenant(alice, sessions=1, turns_at_once=1)
    alice.say(alice.session(), "one")
    for _ in range(3):
        bob.say(bob.session(), "fine")
    assert used(bob, Measure.SESSIONS) == 3
    assert used(alice, Measure.SESSIONS) == 1


def test_stored_bytes_are_refused_beyond_their_number_and_freed_by_deleting(alice: World) -> None:
    keep = alice.session(seed=[{"role": "user", "content": "x" * 500}])
    limit_tenant(alice, stored_bytes=used(alice, Measure.BYTES) + 1000)
    with refused("stored-bytes"):
        alice.session(seed=[{"role": "user", "content": "é" * 600}])
    with refused("stored-bytes"):
        alice.say(keep, "y" * 1200)
    with refused("stored-bytes"):
        alice.say(keep, "short", Overrides(options={"tone": "z" * 1200}))
    assert used(alice, Measure.BYTES) == bytes_there(alice)
    deleting.delete(alice.caller, keep)
    assert used(alice, Measure.BYTES) == 0
    alice.session(seed=[{"role": "user", "content": "é" * 600}])


def test_what_turns_store_is_counted_to_the_byte_and_freed_whole(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer
) -> None:
    tools.forget()
    start_worker()
    session = alice.session(tools=[{"name": "add_one"}], client_tools=[READ_LOG], options={"key": "sk-mine", "tone": "gently"})
    first = alice.say(session, model.script([call("add_one", {"n": 1}, id="a"), call("read_log", {}, id="b")], [text("dönë 🎈")]))
    wait_for_state(first, "waiting")
    alice.answer(session, turns.Permission(0, "a", granted=True), ClientResult(1, "b", [{"type": "text", "text": "calm\n"}]))
    wait_for_state(first, "done")
    alice_says = Overrides(options={"tone": "x" * 100, "key": ""}, client_tools=[], tool_refs=[])
    wait_for_state(alice.say(session, model.script([text("again")]), alice_says), "done")
    assert used(alice, Measure.BYTES) == bytes_there(alice) > 0
    assert used(alice, Measure.BYTES, of_key=True) == usage_entries.bytes_of_session(session) == bytes_there(alice)
    cut = alice.say(session, model.script([text("partly "), gate("hold"), text("never")]))
    model.wait_gate("hold")
    wait_for(lambda: turn_of(cut).state == "running", "running")
    turns.cancel(alice.caller, session)
    model.open_gate("hold")
    assert used(alice, Measure.BYTES) == bytes_there(alice)
    running = alice.say(session, model.script([text("while "), gate("more"), text("deleted")]))
    wait_for(lambda: turn_of(running).state == "running", "running")
    deleting.delete(alice.caller, session)
    model.open_gate("more")
    assert used(alice, Measure.BYTES) == usage_entries.bytes_of_session(session) == 0
    assert used(alice, Measure.SESSIONS) == 0
    usage_entries.fold(1000)
    removing.remove_session(session.pk)
    assert not UsageTotal.objects.filter(measure=Measure.OF_SESSION, key_id=session.pk).exists()


@pytest.mark.rule("A6", "A7")
def test_a_session_that_is_full_is_not_continued_but_read_cancelled_and_deleted(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, settings: Any
) -> None:
    settings.AGENTHOST_SESSION_BYTES = 5_000
    start_worker()
    session, other = alice.session(), alice.session()
    # A turn under way goes on.
    waiting = alice.say(
        session, model.script([text("x" * 6_000), call("add_one", {"n": 1}, id="a")]), Overrides(tool_refs=[{"name": "add_one"}])
    )
    wait_for_state(waiting, "waiting")
    said = UserMessage("next")
    for folded in (False, True):
        if folded:
            usage_entries.fold(1000)
        before = (Message.objects.count(), Turn.objects.count(), used(alice, Measure.BYTES))
        with pytest.raises(SessionFull, match="size limit of 5,000 bytes"):
            alice.say(session, "more")
        with pytest.raises(SessionFull):
            inbox.put(alice.caller, session, "queued", "m1", said, dispatched=None)
        assert (Message.objects.count(), Turn.objects.count(), used(alice, Measure.BYTES)) == before
    assert turns.cancel(alice.caller, session).cancelled
    assert len(stored_messages.read(session, "full")) == 3
    wait_for_state(alice.say(other, model.script([text("fine")])), "done")
    deleting.delete(alice.caller, session)


# --- tokens ---


def test_tokens_that_run_out_in_mid_turn_end_it_before_the_next_model_call(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    tools.forget()
    limit_tenant(alice, tokens_per_day=100)
    start_worker()
    session = alice.session(tools=[{"name": "add_one", "trust": True}])
    script = model.script([call("add_one", {"n": 1}, id="a"), usage(90, 20)], [text("must not be asked for")])
    turn = wait_for_state(alice.say(session, script), "error", "done")
    assert (turn.state, turn.error, turn.stop_reason) == (TurnState.ERROR, "quota_tokens", "error")
    # What was begun is finished: the call has its result, and nothing more was asked of the model.
    assert tools.runs == [("add_one", 1)]
    assert len(model.requests_of(script)) == 1
    assert Message.objects.filter(session=session).order_by("-position").values_list("role", flat=True)[0] == "tool"
    assert any("the tenant has used 110 of its 100 tokens" in record.getMessage() for record in caplog.records)
    with refused("tokens-per-day") as refusal:
        alice.say(session, "more")
    then = datetime.now(UTC) + timedelta(seconds=refusal.value.retry_after)
    midnight = then.replace(hour=0, minute=0, second=0, microsecond=0)
    assert then - midnight < timedelta(seconds=90), "the next day, just begun"


def test_tokens_of_a_key_are_its_own_and_a_new_day_begins_anew(
    alice: World, start_worker: Callable[[], Worker], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_key(alice, tokens_per_day=50)
    other = another_key(alice)
    start_worker()
    session = alice.session()
    wait_for_state(alice.say(session, model.script([text("a"), usage(40, 10)])), "done")
    assert used(alice, Measure.TOKENS) == used(alice, Measure.TOKENS, of_key=True) == 50
    with refused("tokens-per-day"):
        alice.say(session, "more")
    wait_for_state(other.say(session, model.script([text("b"), usage(1, 2)])), "done")
    assert used(other, Measure.TOKENS, of_key=True) == 3
    day = usage_entries.today()
    monkeypatch.setattr(usage_entries, "today", lambda: day + timedelta(days=1))
    assert used(alice, Measure.TOKENS) == 0
    assert usage_entries.used(alice.caller.tenant, Measure.TOKENS, day=day) == 53
    alice.say(session, "a new day")


# --- rates ---


@pytest.mark.rule("A7")
def test_turns_beyond_the_rate_are_refused_and_a_refused_request_takes_no_place(alice: World) -> None:
    limit_tenant(alice, turns_per_minute=2)
    session = alice.session()
    began = time.monotonic()
    first = alice.say(session, "one")
    assert [(each.limit, each.left, each.window) for each in first.standings] == [(2, 1, 60)]
    for _ in range(3):
        with pytest.raises(TurnAlreadyRunning):
            alice.say(session, "busy")
    for _ in range(3):
        with pytest.raises(InvalidInput):
            alice.say(alice.session(), "bad", Overrides(tool_refs=[{"name": "abacus"}]))
    second = alice.say(alice.session(), "two")
    assert second.standings[0].left == 0
    with refused("turns-per-minute") as refusal:
        alice.say(alice.session(), "three")
    assert 60 - (time.monotonic() - began) - 1 <= refusal.value.retry_after <= 60


@pytest.mark.rule("A98")
def test_a_repeated_request_is_refused_by_no_quota(alice: World) -> None:
    limit_tenant(alice, turns_per_minute=1, turns_at_once=1, sessions=1)
    idempotency_key = IdempotencyKey.of("/sessions", "key", {})
    made = [
        creating.create(alice.caller, creating.SessionRequest("sailor"), idempotency_key=idempotency_key).public_id
        for _ in range(3)
    ]
    assert len(set(made)) == 1
    session, again = access.session(alice.caller, made[0]), IdempotencyKey.of("/turns", "key", {})
    accepted = [
        turns.start(alice.caller, session, content="one", overrides=Overrides(), idempotency_key=again).public_id
        for _ in range(3)
    ]
    assert len(set(accepted)) == 1
    assert Turn.objects.count() == 1


# --- the queue stays fair ---


def test_a_thousand_queued_turns_of_one_tenant_delay_anothers_first_claim_by_nothing(alice: World, bob: World) -> None:
    def claims_until_bobs() -> int:
        bobs = bob.say(bob.session(), "first")
        claims = 0
        while True:
            claims += 1
            claimed = claim_one("w")
            assert claimed is not None
            if claimed.turn_id == bobs.turn_id:
                Turn.objects.all().update(state=TurnState.DONE)
                return claims

    alone = claims_until_bobs()
    seed = alice.session()
    template = turn_of(alice.say(seed, "the first of many"))
    now = timezone.now() - timedelta(hours=1)
    rows = Session.objects.bulk_create(
        [
            Session(tenant_id=seed.tenant_id, public_id=f"sess_{n}", agent_name="sailor", created_at=now, modified_at=now)
            for n in range(1000)
        ]
    )
    Turn.objects.bulk_create(
        [
            Turn(
                tenant_id=row.tenant_id,
                session=row,
                public_id=f"turn_{n}",
                definition_id=template.definition_id,
                created_at=now,
                queued_at=now,
            )
            for n, row in enumerate(rows)
        ]
    )
    from sessions_app.core.log import journal

    with journal.transaction():
        for row in rows:
            journal.create_tail(row.pk)
    # The other tenant's own are the older ones, so one claim may go to them: they have no live run either.
    assert claims_until_bobs() <= alone + 1


# --- folding, the operator's view ---


def test_folding_changes_no_sum_and_leaves_no_entry(alice: World, bob: World) -> None:
    for world in (alice, bob):
        for n in range(4):
            world.session(seed=[{"role": "user", "content": "x" * n}])
    before = [(used(world, measure), used(world, measure, of_key=True)) for world in (alice, bob) for measure in Measure]
    assert usage_entries.fold(3) > 0
    assert UsageEntry.objects.exists()
    housekeeping.run()
    assert not UsageEntry.objects.exists()
    again = [(used(world, measure), used(world, measure, of_key=True)) for world in (alice, bob) for measure in Measure]
    assert again == before
    assert UsageTotal.objects.filter(measure=Measure.SESSIONS).count() == 2


def test_more_entries_than_a_batch_are_folded_at_once(alice: World) -> None:
    for _ in range(7):
        alice.session()
    before = used(alice, Measure.SESSIONS)
    usage_entries.fold_backlog(2, 60)
    assert not UsageEntry.objects.exists()
    assert used(alice, Measure.SESSIONS) == before == 7


def test_folding_and_counting_side_by_side_loses_nothing(alice: World) -> None:
    done = threading.Event()
    seen: list[int] = []

    def fold() -> None:
        try:
            while not done.is_set():
                usage_entries.fold(2)
                seen.append(used(alice, Measure.SESSIONS))
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        folding = [pool.submit(fold) for _ in range(2)]
        for _ in range(25):
            alice.session()
        done.set()
        for each in folding:
            each.result(90)
    assert used(alice, Measure.SESSIONS) == 25
    assert all(0 <= count <= 25 for count in seen)


def test_totals_of_days_long_past_are_forgotten_and_standing_ones_stay(alice: World) -> None:
    alice.session()
    old = usage_entries.today() - timedelta(days=100)
    UsageEntry.objects.create(tenant_id=alice.caller.tenant, key_id=1, measure=Measure.TOKENS, day=old, amount=7)
    housekeeping.run()
    assert not UsageTotal.objects.filter(day=old).exists()
    assert used(alice, Measure.SESSIONS) == 1


def test_a_tenant_without_a_limit_has_the_servers_and_its_own_one_wins(alice: World, settings: Any) -> None:
    settings.AGENTHOST_QUOTAS = {"sessions": 5, "turns_at_once": 7}
    tenant = tenant_of(alice)
    tenant.max_sessions = 0
    limits = quotas.limits_of_tenant(tenant)
    assert (limits.sessions, limits.turns_at_once, limits.stored_bytes) == (0, 7, None)


def test_a_rotated_key_has_the_limits_of_the_old_one(alice: World) -> None:
    limit_key(alice, sessions=3)
    issued = keys.rotate(ApiKey.objects.get(pk=alice.caller.key), timedelta(hours=1), actor="tests")
    assert keys.authenticate(issued.raw).key_limits.sessions == 3


@pytest.mark.parametrize("limits", [Limits(sessions=-1), Limits(stored_bytes=2**63)])
def test_a_limit_that_cannot_be_is_refused(alice: World, limits: Limits) -> None:
    with pytest.raises(InvalidInput):
        tenants.set_limits(tenant_of(alice), limits, session_retention_days=None, actor="tests")
    with pytest.raises(InvalidInput):
        keys.set_limits(ApiKey.objects.get(pk=alice.caller.key), limits, actor="tests")


def test_sizes_are_bytes_as_the_database_counts_them(alice: World) -> None:
    session = alice.session(seed=[{"role": "user", "content": "ä🎈\n"}])
    text_stored = Message.objects.get(session=session).content
    assert usage_entries.bytes_of_history(session) == usage_entries.size(text_stored) == len(exact_json.dumps("ä🎈\n").encode())


def test_what_was_stored_before_anything_was_counted_is_counted_by_the_migration(alice: World, bob: World) -> None:
    for world in (alice, bob):
        seed = [{"role": "user", "content": "é🎈" * 50}]
        world.say(world.session(seed=seed, client_tools=[READ_LOG], options={"key": "sk-mine", "tone": "göntly"}), "hello")
        deleting.delete(world.caller, world.session(seed=seed))
    counted = [each for each in Measure if each is not Measure.OF_SESSION]
    worlds = [(world, measure, of_key) for world in (alice, bob) for measure in counted for of_key in (False, True)]
    before = [used(world, measure, of_key=of_key) for world, measure, of_key in worlds]
    UsageEntry.objects.all().delete()
    UsageTotal.objects.all().delete()
    import_module("sessions_app.migrations.0005_count_what_is_there").count(None, SimpleNamespace(connection=connection))
    import_module("sessions_app.migrations.0018_bytes_of_sessions").count(connection, 0, 2**31)
    assert [used(world, measure, of_key=of_key) for world, measure, of_key in worlds] == before
    assert used(alice, Measure.BYTES) == bytes_there(alice) > 0


# --- calls on the event loop ---


@pytest.mark.rule("A6", "A7")
@pytest.mark.parametrize("whose", [limit_tenant, limit_key])
@pytest.mark.parametrize(
    "limits", [{"turns_at_once": 2}, {"turns_per_minute": 2}, {"turns_at_once": 2, "turns_per_minute": 2, "stored_bytes": 9999}]
)
def test_requests_of_one_loop_are_counted_together(alice: World, whose: Callable[..., None], limits: dict[str, int]) -> None:
    sessions = [alice.session() for _ in range(6)]
    whose(alice, **limits)
    outcomes = on_loop(alice.caller.tenant, *[partial(alice.say, session, "hello") for session in sessions])
    assert errors_of(outcomes) == ["QuotaExceeded"] * 4 + ["done"] * 2
    assert Turn.objects.count() == 2


@pytest.mark.rule("A6")
def test_the_days_tokens_and_the_sessions_are_limited_on_a_loop(alice: World) -> None:
    sessions = [alice.session() for _ in range(2)]
    limit_tenant(alice, tokens_per_day=0, sessions=3)
    outcomes = on_loop(alice.caller.tenant, *[partial(alice.say, session, "hello") for session in sessions])
    assert errors_of(outcomes) == ["QuotaExceeded"] * 2
    assert errors_of(on_loop(alice.caller.tenant, *[alice.session] * 3)) == ["QuotaExceeded"] * 2 + ["done"]


@pytest.mark.parametrize("limits", [{"turns_at_once": 9}, {"turns_per_minute": 9}, {}])
def test_a_revoked_key_starts_no_turn_on_a_loop_that_remembers_it(alice: World, limits: dict[str, int]) -> None:
    issued = keys.issue(tenant_of(alice), name="other", scopes=["*"], expires_at=None, allowed_agents=None, actor="tests")
    keys.set_limits(issued.key, Limits(**limits), actor="tests")
    first, second = alice.session(), alice.session()

    def start(session: Session) -> str:
        return turns.start(keys.authenticate(issued.raw), session, content="hello").public_id

    # The first use of a key is stored, and the second one is remembered.
    keys.authenticate(issued.raw)
    keys.authenticate(issued.raw)
    assert errors_of(on_loop(alice.caller.tenant, partial(start, first))) == ["done"]
    keys.mark_revoked(issued.key, actor="tests")
    (outcome,) = on_loop(alice.caller.tenant, partial(start, second))
    assert isinstance(outcome, NotAuthenticated)
    assert not Turn.objects.filter(session=second).exists()
