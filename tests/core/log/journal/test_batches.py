"""Requests that share a transaction, as their clients see them: each is answered as if it were alone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection

from agenthost.postgres.base import LoopDatabaseWrapper
from sessions_app.core import turns
from sessions_app.core.base import database, loop_calls, loop_connections, pipeline, raw_sql
from sessions_app.core.base.caller import Caller, Limits
from sessions_app.core.base.errors import (
    IdempotencyKeyReused,
    NotAuthenticated,
    NotReady,
    QuotaExceeded,
    SessionNotFound,
    TurnAlreadyRunning,
)
from sessions_app.core.log import journal
from sessions_app.core.log.journal import barriers, batches, postgres
from sessions_app.core.records.idempotency import IdempotencyKey
from sessions_app.core.sessions import creating, deleting
from sessions_app.core.sessions.creating import SessionRequest
from sessions_app.core.tenancy import access, keys
from sessions_app.core.turns import revoking
from sessions_app.models import ApiKey, Session, Tenant, Turn
from tests.core.conftest import World, locked, somebody_waits_for_a_lock, wait_for
from tests.core.threads import at_once

WAIT = 60.0


@dataclass
class Client:
    """A tenant's client. Its requests are made as the web makes them."""

    tenant: int
    raw: str

    @property
    def key(self) -> ApiKey:
        return ApiKey.objects.get(digest=keys.digest_of(self.raw))

    async def ask(self, fn: Callable[[Caller], Any]) -> Any:
        """The request's answer, or the error that is answered."""

        def answer() -> Any:
            try:
                return fn(keys.authenticate(self.raw))
            except Exception as error:
                database.before_error_answer(error)
                return error

        return await database.serve_on_loop(self.tenant, WAIT, copy_context(), answer)

    async def create(self, key: str | None = None, body: Any = None) -> Any:
        idempotency_key = None if key is None else IdempotencyKey.of("sessions", key, body)

        def create(caller: Caller) -> str:
            return creating.create(caller, SessionRequest("sailor"), idempotency_key=idempotency_key).public_id

        return await self.ask(create)

    async def say(self, session: str, text: str = "hi", key: str | None = None, **given: Any) -> Any:
        idempotency_key = None if key is None else IdempotencyKey.of(f"turns {session}", key, text)

        def say(caller: Caller) -> turns.Accepted:
            found = access.session(caller, session)
            return turns.start(caller, found, content=text, idempotency_key=idempotency_key, **given)

        return await self.ask(say)


@dataclass
class Batches:
    """What each transaction of a batch tried to store: the tenant of each row."""

    tenants: list[list[int]] = field(default_factory=list)
    before: Callable[[], object] = lambda: None
    """Called before the end of each of them is sent."""

    @property
    def sizes(self) -> list[int]:
        return [len(each) for each in self.tenants]


@pytest.fixture(autouse=True)
def _on_loops(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("only Postgres has calls on loops")


@pytest.fixture(autouse=True, params=[True, False], ids=["implicit", "begin"])
def _transactions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches without BEGIN, and with it, as on servers that cannot limit a whole transaction."""
    monkeypatch.setattr(LoopDatabaseWrapper, "limits_transactions", request.param)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Batches:
    seen, finish = Batches(), postgres.finish

    def noted(statements: Sequence[Any], rows: Sequence[Any], **given: Any) -> Any:
        seen.tenants.append([row.tenant for row in rows])
        seen.before()
        return finish(statements, rows, **given)

    # Calls outside batches use the dialect's.
    monkeypatch.setattr(batches, "postgres", SimpleNamespace(finish=noted))
    return seen


def client_of(world: World) -> Client:
    issued = keys.issue(
        Tenant.objects.get(pk=world.caller.tenant), name="web", scopes=["*"], expires_at=None, allowed_agents=None, actor="tests"
    )
    keys.authenticate(issued.raw)
    return Client(world.caller.tenant, issued.raw)


@pytest.fixture
def ann(alice: World) -> Client:
    return client_of(alice)


@pytest.fixture
def ben(bob: World) -> Client:
    return client_of(bob)


async def warm(*clients: Client, sessions: int = 1) -> list[list[str]]:
    """Sessions of each client. Afterwards this process remembers what it can, so requests are batched at once."""
    found = []
    for client in clients:
        await client.say(await client.create())
        found.append([await client.create() for _ in range(sessions)])
    return found


def in_db(fn: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    return asyncio.to_thread(fn, *args)


def live_turns(*sessions: str) -> list[int]:
    """The number of turns of each session."""
    return [Turn.objects.filter(session__public_id=each).count() for each in sessions]


def kinds_of(answers: Sequence[Any]) -> list[str]:
    return sorted(type(each).__name__ for each in answers)


# --- sharing ---


async def test_requests_at_the_same_time_share_a_transaction(ann: Client, ben: Client, seen: Batches) -> None:
    a, b = await warm(ann, ben, sessions=3)
    seen.tenants.clear()
    answers = await asyncio.gather(*(ann.say(each) for each in a), *(ben.say(each) for each in b), ann.create(), ben.create())
    assert kinds_of(answers) == ["Accepted"] * 6 + ["str"] * 2
    assert len(seen.tenants) == 1
    assert await in_db(live_turns, *a, *b) == [1] * 6
    for answer in answers[:6]:
        read = await in_db(journal.read_session, *(await in_db(place_of, answer)))
        assert answer.start in [event.seq for event in read.events if event.kind == "turn_started"]


async def test_a_request_in_a_batch_leaves_nothing_for_the_garbage_collector(
    ann: Client, seen: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = (await warm(ann, sessions=3))[0]
    members: list[weakref.ref[batches.Member]] = []
    gone = asyncio.Semaphore(0)
    make = batches.new_member

    def noted() -> batches.Member:
        member = make()
        members.append(weakref.ref(member, lambda _: gone.release()))
        return member

    monkeypatch.setattr(batches, "new_member", noted)
    gc.disable()
    try:
        assert kinds_of(await asyncio.gather(*map(ann.say, sessions))) == ["Accepted"] * 3
        async with asyncio.timeout(20):
            for _ in members:
                await gone.acquire()
        assert len(members) == 3
    finally:
        gc.enable()


def place_of(accepted: turns.Accepted) -> tuple[int, int, int]:
    turn = Turn.objects.get(pk=accepted.turn_id)
    return turn.tenant_id, turn.session_id, 0


async def test_many_requests_of_one_tenant_do_not_delay_anothers(ann: Client, ben: Client, seen: Batches) -> None:
    a, (b,) = (await warm(ann, sessions=150))[0], (await warm(ben))[0]
    seen.tenants.clear()
    answers = await asyncio.gather(*(ann.say(each) for each in a), ben.say(b))
    assert kinds_of(answers) == ["Accepted"] * 151
    assert len(seen.tenants) >= 3
    assert ben.tenant in seen.tenants[0]
    assert await in_db(live_turns, *a, b) == [1] * 151


# --- one bad request ---


async def test_two_turns_of_one_session_at_once_are_one_turn_and_one_refusal(ann: Client, ben: Client, seen: Batches) -> None:
    (a, other), (b,) = (await warm(ann, sessions=2))[0], (await warm(ben))[0]
    seen.tenants.clear()
    answers = await asyncio.gather(ann.say(a), ann.say(a), ben.say(b), ann.say(other))
    assert kinds_of(answers[:2]) == ["Accepted", "TurnAlreadyRunning"]
    assert kinds_of(answers[2:]) == ["Accepted"] * 2
    assert await in_db(live_turns, a, b, other) == [1, 1, 1]
    # It has not made the others' transaction fail.
    assert seen.tenants[0].count(ben.tenant) > 0
    assert sum(each.count(ben.tenant) > 0 for each in seen.tenants) == 1


def test_two_turns_of_one_session_on_two_webs_are_one_turn_and_one_refusal(ann: Client) -> None:
    sessions = asyncio.run(warm(ann, sessions=20))[0]

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(ann.say(each) for each in sessions))

    of_webs = at_once(*[lambda: asyncio.run(all_of_them())] * 2)
    for session, answers in zip(sessions, zip(*of_webs, strict=True), strict=True):
        assert kinds_of(answers) == ["Accepted", "TurnAlreadyRunning"], session
    assert live_turns(*sessions) == [1] * 20


def raising(caller: Caller) -> None:
    with journal.transaction():
        raise ValueError("a mistake in the product")


@pytest.mark.parametrize("bad", ["refused", "raises", "bad data", "gone", "not its own"])
async def test_a_bad_request_fails_alone(ann: Client, ben: Client, bad: str) -> None:
    (a, busy, gone), bs = (await warm(ann, sessions=3))[0], (await warm(ben, sessions=3))[0]
    await ann.say(busy)
    await in_db(delete, ann, gone)
    requests = {
        "refused": partial(ann.say, busy),
        "raises": partial(ann.ask, raising),
        "bad data": partial(ann.create, "k" * 10_000),
        "gone": partial(ann.say, gone),
        "not its own": partial(ann.say, bs[0]),
    }
    expected: dict[str, str] = {
        "refused": TurnAlreadyRunning.__name__,
        "raises": "ValueError",
        "bad data": "DataError",
        "gone": SessionNotFound.__name__,
        "not its own": SessionNotFound.__name__,
    }
    for b in bs:
        answers = await asyncio.gather(ben.say(b), requests[bad](), ben.create())
        assert [type(each).__name__ for each in answers] == ["Accepted", expected[bad], "str"]
    assert kinds_of([await ann.say(a)]) == ["Accepted"]
    assert await in_db(live_turns, a, busy, gone, *bs) == [1, 1, 0, 1, 1, 1]


def delete(client: Client, session: str) -> None:
    caller = keys.authenticate(client.raw)
    deleting.delete(caller, access.session(caller, session))


async def test_a_request_that_waits_in_its_decision_does_not_hold_its_batch(
    ann: Client, ben: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_DECISION_SECONDS", 0.01)
    (a,), (b,) = await warm(ann, ben)
    may_continue = asyncio.Event()

    def slow(caller: Caller) -> turns.Accepted:
        session = access.session(caller, a)
        with journal.transaction():
            access.lock_session_and(caller, session)
            loop_calls.wait_for(may_continue.wait())
        return turns.start(caller, session, content="late")

    waiting = asyncio.create_task(ann.ask(slow))
    assert kinds_of([await ben.say(b)]) == ["Accepted"]
    may_continue.set()
    assert kinds_of([await waiting]) == ["Accepted"]
    assert await in_db(live_turns, a, b) == [1, 1]


# --- locks of others ---


async def test_a_turn_in_a_locked_session_waits_alone(ann: Client, ben: Client) -> None:
    (a, other), (b,) = (await warm(ann, sessions=2))[0], (await warm(ben))[0]
    with locked(lambda: list(Session.objects.select_for_update().filter(public_id=a))):
        waiting = asyncio.create_task(ann.say(a))
        answers = await asyncio.gather(ben.say(b), ann.say(other), ben.create())
        assert kinds_of(answers) == ["Accepted", "Accepted", "str"]
        await until(somebody_waits_for_a_lock)
        assert not waiting.done()
    assert kinds_of([await waiting]) == ["Accepted"]
    assert await in_db(live_turns, a, other, b) == [1, 1, 1]


async def until(condition: Callable[[], bool]) -> None:
    await in_db(wait_for, condition, "the condition")


async def test_a_locked_counter_delays_other_tenants_once(
    ann: Client, ben: Client, seen: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_KEPT_OUT_SECONDS", 60.0)
    a, b = await warm(ann, ben, sessions=4)

    def lock() -> None:
        journal.lock_counter(ann.tenant)

    with locked(lock):
        waiting = [asyncio.create_task(ann.say(a[0]))]
        assert kinds_of([await ben.say(b[0])]) == ["Accepted"]
        await until(is_waiting_in_thread)
        seen.tenants.clear()
        for number in (1, 2, 3):
            waiting.append(asyncio.create_task(ann.say(a[number])))
            assert kinds_of([await ben.say(b[number])]) == ["Accepted"]
        # From now on the tenant is in no batch.
        assert not any(ann.tenant in each for each in seen.tenants)
        assert not any(each.done() for each in waiting)
    assert kinds_of(await asyncio.gather(*waiting)) == ["Accepted"] * 4
    assert await in_db(live_turns, *a, *b) == [1] * 8


def is_waiting_in_thread() -> bool:
    """Whether some connection waits for a lock without the short timeout of loops."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            " and now() - state_change > interval '200 milliseconds'"
        )
        return bool(cursor.fetchone()[0])


# --- the end of keys ---


def suspend(client: Client) -> None:
    revoking.suspend_tenant(Tenant.objects.get(pk=client.tenant), actor="tests")


def revoke(client: Client) -> None:
    revoking.revoke_key(client.key, actor="tests")


def expire(client: Client) -> None:
    keys.expire(client.key, actor="tests")


ENDS = pytest.mark.parametrize("end", [revoke, expire, suspend])


@ENDS
async def test_a_key_that_has_ended_is_refused_at_once(ann: Client, ben: Client, end: Callable[[Client], None]) -> None:
    (a,), (b,) = await warm(ann, ben)
    await in_db(end, ann)
    before = await in_db(Session.objects.count)
    answers = await asyncio.gather(ann.say(a), ann.create(), ben.say(b))
    assert [type(each) for each in answers] == [NotAuthenticated, NotAuthenticated, turns.Accepted]
    assert await in_db(live_turns, a, b) == [0, 1]
    assert await in_db(Session.objects.count) == before


@ENDS
async def test_a_key_that_ends_while_its_request_is_handled_stores_nothing(
    ann: Client, ben: Client, seen: Batches, end: Callable[[Client], None]
) -> None:
    """Between what the request reads and its COMMIT."""
    (a,), (b,) = await warm(ann, ben)

    def end_in_thread() -> None:
        seen.before = lambda: None
        at_once(partial(end, ann))

    seen.before = end_in_thread
    answers = await asyncio.gather(ann.say(a), ben.say(b))
    assert [type(each) for each in answers] == [NotAuthenticated, turns.Accepted]
    assert await in_db(live_turns, a, b) == [0, 1]


@ENDS
async def test_a_repeated_creation_with_a_key_that_has_ended_is_refused(ann: Client, end: Callable[[Client], None]) -> None:
    await warm(ann)
    first = await ann.create("again")
    assert await ann.create("again") == first
    await in_db(end, ann)
    assert isinstance(await ann.create("again"), NotAuthenticated)


async def test_a_new_limit_holds_at_once(ann: Client) -> None:
    (a, other) = (await warm(ann, sessions=2))[0]
    await in_db(lambda: keys.set_limits(ann.key, Limits(turns_at_once=2), actor="tests"))
    # One is live since the sessions were made.
    answers = [await ann.say(a), await ann.say(other)]
    assert [type(each) for each in answers] == [turns.Accepted, QuotaExceeded]


async def test_turns_at_once_are_limited_however_many_arrive_at_once(ann: Client) -> None:
    sessions = (await warm(ann, sessions=12))[0]
    await in_db(lambda: keys.set_limits(ann.key, Limits(turns_at_once=5), actor="tests"))
    answers = await asyncio.gather(*(ann.say(each) for each in sessions))
    assert kinds_of(answers) == ["Accepted"] * 4 + ["QuotaExceeded"] * 8


# --- idempotency keys ---


async def test_a_request_that_is_sent_twice_at_once_takes_effect_once(ann: Client, ben: Client) -> None:
    (a,), (b,) = await warm(ann, ben)
    before = await in_db(Session.objects.count)
    answers = await asyncio.gather(
        ann.create("twice"), ann.create("twice"), ann.say(a, key="twice"), ann.say(a, key="twice"), ben.say(b)
    )
    assert answers[0] == answers[1]
    assert answers[2].public_id == answers[3].public_id
    assert kinds_of(answers[4:]) == ["Accepted"]
    assert await in_db(Session.objects.count) == before + 1
    assert await in_db(live_turns, a, b) == [1, 1]


def test_requests_that_are_sent_to_two_webs_at_once_take_effect_once(ann: Client) -> None:
    sessions = asyncio.run(warm(ann, sessions=10))[0]
    before = Session.objects.count()

    async def all_of_them() -> list[Any]:
        turns_ = [ann.say(each, key="k") for each in sessions]
        return await asyncio.gather(*turns_, *(ann.create(f"key {number}") for number in range(10)))

    one, other = at_once(*[lambda: asyncio.run(all_of_them())] * 2)
    assert [each.public_id for each in one[:10]] == [each.public_id for each in other[:10]]
    assert one[10:] == other[10:]
    assert live_turns(*sessions) == [1] * 10
    assert Session.objects.count() == before + 10


async def test_an_idempotency_key_with_another_body_is_refused(ann: Client) -> None:
    (a,) = (await warm(ann))[0]
    answers = await asyncio.gather(ann.say(a, "one", key="k"), ann.say(a, "two", key="k"))
    assert kinds_of(answers) == ["Accepted", IdempotencyKeyReused.__name__]
    answers = await asyncio.gather(ann.create("k", "one"), ann.create("k", "two"))
    assert kinds_of(answers) == [IdempotencyKeyReused.__name__, "str"]
    assert await in_db(live_turns, a) == [1]


# --- clients that go away ---


@pytest.mark.parametrize("moment", ["before it reads", "before it decides", "before COMMIT", "after COMMIT"])
async def test_a_cancelled_request_ends_and_the_others_are_stored_once(
    ann: Client, ben: Client, seen: Batches, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    (a,), (b,) = await warm(ann, ben)
    before = await in_db(Session.objects.count)
    cancelled = asyncio.create_task(ann.say(a))
    others = [asyncio.create_task(ben.say(b)), asyncio.create_task(ben.create())]

    def cancel() -> None:
        seen.before = lambda: None
        cancelled.cancel()

    if moment == "before it reads":
        monkeypatch.setattr(raw_sql, "rows_in_batch", cancelling(raw_sql.rows_in_batch, cancel, after=False))
    elif moment == "before it decides":
        monkeypatch.setattr(raw_sql, "rows_in_batch", cancelling(raw_sql.rows_in_batch, cancel, after=True))
    elif moment == "before COMMIT":
        seen.before = cancel
    else:
        wait = cancelling(barriers.wait, cancel, after=False)
        monkeypatch.setattr(batches, "barriers", SimpleNamespace(wait=wait))
        monkeypatch.setattr(postgres, "BARRIER", "select null, null")
    (ended, *answers) = await asyncio.gather(cancelled, *others, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    assert kinds_of(answers) == ["Accepted", "str"]
    monkeypatch.undo()
    assert await in_db(Session.objects.count) == before + 1
    ((of_a, of_b),) = [await in_db(live_turns, a, b)]
    assert of_b == 1
    # All of it is stored, or nothing.
    messages = await in_db(lambda: Session.objects.get(public_id=a).messages.count())
    assert (of_a, messages) in ((0, 0), (1, 1))
    again = await ann.say(a)
    assert isinstance(again, TurnAlreadyRunning if of_a else turns.Accepted)
    assert kinds_of([await ben.create()]) == ["str"]


def cancelling(fn: Callable[..., Any], cancel: Callable[[], None], *, after: bool) -> Callable[..., Any]:
    def called(*args: Any, **given: Any) -> Any:
        if not after:
            cancel()
            # The cancelled task runs before the batch continues.
            loop_calls.wait_for(asyncio.sleep(0))
        found = fn(*args, **given)
        if after:
            cancel()
            loop_calls.wait_for(asyncio.sleep(0))
        return found

    return called


# --- the database goes away ---


@pytest.fixture
def loses_connection(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The connection is lost with an answer of the batch: when it has locked the sessions, at its end, or at the barrier."""
    rows, commit, read, barrier = pipeline.Pipeline.rows, raw_sql.execute_and_commit, raw_sql.rows_in_batch, postgres.BARRIER

    def lost(self: pipeline.Pipeline) -> Any:
        monkeypatch.setattr(pipeline.Pipeline, "rows", rows)
        rows(self)
        self._is_reading = True
        self._conn.close()
        raise psycopg.OperationalError("the connection is lost")

    def losing(fn: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **given: Any) -> Any:
            monkeypatch.setattr(raw_sql, fn.__name__, fn)
            monkeypatch.setattr(pipeline.Pipeline, "rows", lost)
            return fn(*args, **given)

        return called

    def set_up(answer: str) -> None:
        if answer == "locks":
            monkeypatch.setattr(raw_sql, "rows_in_batch", losing(read))
        elif answer == "end":
            monkeypatch.setattr(raw_sql, "execute_and_commit", losing(commit))
        else:
            monkeypatch.setattr(postgres, "BARRIER", f"select pg_terminate_backend(pg_backend_pid())::text, ({barrier})")

    return set_up


@pytest.mark.parametrize("answer", ["locks", "end", "barrier"])
async def test_requests_whose_transaction_may_be_stored_are_not_repeated(
    ann: Client, ben: Client, loses_connection: Callable[[str], None], answer: str
) -> None:
    """A repetition would be a second session, or a refusal of a turn that was accepted."""
    (a,), (b,) = await warm(ann, ben)
    before = await in_db(Session.objects.count)
    loses_connection(answer)
    answers = await asyncio.gather(ann.say(a), ben.say(b), ann.create())
    # With the locks nothing was stored, so they were repeated. At the barrier another one showed that it is on disk.
    assert kinds_of(answers) == (["NotReady"] * 3 if answer == "end" else ["Accepted", "Accepted", "str"])
    assert await in_db(live_turns, a, b) == [1, 1]
    assert await in_db(Session.objects.count) == before + 1
    # The next requests get another connection.
    assert kinds_of(await asyncio.gather(ann.create(), ben.create())) == ["str", "str"]


async def test_nothing_is_acknowledged_if_the_database_crashed_before_the_barrier(
    ann: Client, ben: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The era is another one then: what was committed may be lost."""
    (a,), (b,) = await warm(ann, ben)
    monkeypatch.setattr(postgres, "BARRIER", "select 1, -1::bigint")
    monkeypatch.setattr(barriers, "passed", other_era)
    monkeypatch.setattr(barriers, "passed_async", other_era_async)
    answers = await asyncio.gather(ann.say(a), ben.say(b), ann.create())
    assert [type(each) for each in answers] == [NotReady] * 3


def other_era() -> Future[int | None]:
    future: Future[int | None] = Future()
    future.set_result(-1)
    return future


def other_era_async() -> asyncio.Future[int | None]:
    future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    future.set_result(-1)
    return future


async def test_connections_that_the_server_ended_while_idle_are_not_used(ann: Client, ben: Client) -> None:
    (a,), (b,) = await warm(ann, ben)
    pools = loop_connections._pools[asyncio.get_running_loop()].values()
    await in_db(terminate, [wrapper.connection.info.backend_pid for pool in pools for wrapper in pool._idle])
    answers = await asyncio.gather(ann.say(a), ben.say(b), ann.create())
    assert kinds_of(answers) == ["Accepted", "Accepted", "str"]


def terminate(backends: list[int]) -> None:
    assert backends
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(pid, 60000) from unnest(%s::int[]) as pid", [backends])
