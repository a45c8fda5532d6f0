"""Requests of one tenant that stand still, wrong keys in any number, and the requests of others beside them."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Hashable
from contextvars import copy_context
from typing import TypeVar

import pytest
from pytest_django import Settings

from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotAuthenticated, NotReady, TooManyWrongKeys
from sessions_app.core.tenancy import admission, keys
from sessions_app.core.tenancy.wrong_keys import WrongKeys

T = TypeVar("T")

A, B = 1, 2


class Standing:
    """Requests that hold their thread until they are let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.inside: list[Hashable] = []
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, owner: Hashable, count: int = 1) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(serve(owner, lambda: self._stand(owner))))

    def _stand(self, owner: Hashable) -> None:
        self.inside.append(owner)
        assert self.go.wait(60)

    async def let_go(self) -> None:
        self.go.set()
        await asyncio.gather(*self.tasks)


async def serve(owner: Hashable, fn: Callable[[], T], patience: float | None = None) -> T:
    return await database.serve(owner, patience, copy_context(), fn)


@pytest.fixture
async def standing(settings: Settings) -> AsyncIterator[Standing]:
    database.shut_down()
    settings.AGENTHOST_DATABASE_POOL_MAX = 16
    found = Standing()
    yield found
    await found.let_go()
    await asyncio.to_thread(database.shut_down)


async def seen(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.002)


async def test_one_tenant_has_half_of_the_threads_and_another_is_served_beside_it(standing: Standing) -> None:
    standing.come(A, 100)
    await seen(lambda: len(standing.inside) == 8)
    assert await serve(B, lambda: "served") == "served"
    assert standing.inside == [A] * 8
    standing.go.set()
    await seen(lambda: len(standing.inside) == 100)


async def test_a_request_that_has_no_thread_in_time_is_never_run(standing: Standing) -> None:
    standing.come(A, 8)
    await seen(lambda: len(standing.inside) == 8)
    ran: list[int] = []
    with pytest.raises(TimeoutError):
        await serve(A, lambda: ran.append(1), patience=0.01)
    await standing.let_go()
    assert await serve(A, lambda: "served", patience=0.01) == "served"
    assert not ran


async def test_a_request_that_was_given_up_keeps_its_share_until_it_ends(standing: Standing) -> None:
    standing.come(A, 8)
    await seen(lambda: len(standing.inside) == 8)
    for task in standing.tasks:
        task.cancel()
    await asyncio.wait(standing.tasks)
    standing.tasks.clear()
    standing.come(A)
    assert await serve(B, lambda: "served") == "served"
    assert len(standing.inside) == 8


async def test_requests_with_unknown_keys_share_one_small_account(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def authenticate(raw: str) -> None:
        looked_up.append(raw)
        assert standing.go.wait(60)
        raise NotAuthenticated

    monkeypatch.setattr(keys, "authenticate", authenticate)
    wrong = [asyncio.create_task(admission.tenant_of(new_key(), f"192.0.2.{number}", 60)) for number in range(200)]
    await seen(lambda: len(looked_up) == 2)
    # One tenant's requests stand as well; the other's goes on.
    standing.come(A, 100)
    await seen(lambda: len(standing.inside) == 8)
    assert await serve(B, lambda: "served") == "served"
    assert len(looked_up) == 2, "an eighth of the threads, however many keys are tried"
    standing.go.set()
    answers = await asyncio.gather(*wrong, return_exceptions=True)
    # A hundred wait at most; the others are told at once.
    assert [type(answer) for answer in answers].count(NotAuthenticated) == 100
    assert [type(answer) for answer in answers].count(NotReady) == 100


class Lookups:
    """Stands in for the table of keys, and counts the questions."""

    def __init__(self) -> None:
        self.good: set[str] = set()
        self.asked: list[str] = []

    def __call__(self, raw: str) -> Caller:
        self.asked.append(raw)
        if raw not in self.good:
            raise NotAuthenticated
        return Caller(tenant=A, key=1, key_prefix=raw[:11], scopes=frozenset({"*"}))


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Lookups:
    found = Lookups()
    monkeypatch.setattr(keys, "authenticate", found)
    monkeypatch.setattr(admission, "_SLOWED_SECONDS", 0.0)
    return found


def new_key() -> str:
    return f"ah_{secrets.token_urlsafe(32)}"


async def outcome(raw: str, address: str = "192.0.2.1") -> type | int:
    try:
        return await admission.tenant_of(raw, address, 60)
    except (NotAuthenticated, TooManyWrongKeys) as error:
        return type(error)


@pytest.mark.usefixtures("standing")
async def test_an_address_with_many_wrong_keys_is_told_to_wait_and_costs_no_query(
    monkeypatch: pytest.MonkeyPatch, lookups: Lookups
) -> None:
    # The clock does not move: one more is allowed every twelve seconds.
    monkeypatch.setattr(admission, "_wrong", WrongKeys(lambda: 5, lambda: 100.0))
    known, new = new_key(), new_key()
    lookups.good |= {known, new}
    assert await outcome(known) == A
    lookups.asked.clear()
    assert [await outcome(new_key()) for _ in range(8)] == [NotAuthenticated] * 5 + [TooManyWrongKeys] * 3
    assert len(lookups.asked) == 5
    # A key that this process knows is served as before, whoever shares its address; so is every other address.
    assert await outcome(known) == A
    assert await outcome(new, "192.0.2.2") == A
    assert await outcome(new_key(), "192.0.2.2") is NotAuthenticated


@pytest.mark.usefixtures("standing")
async def test_good_keys_are_not_counted(settings: Settings, lookups: Lookups) -> None:
    settings.AGENTHOST_WRONG_KEYS_PER_MINUTE = 2
    good = [new_key() for _ in range(10)]
    lookups.good |= set(good)
    assert [await outcome(each) for each in good] == [A] * 10


@pytest.mark.usefixtures("standing")
async def test_a_wrong_key_is_remembered_and_a_key_issued_meanwhile_soon_works(
    settings: Settings, lookups: Lookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_WRONG_KEYS_PER_MINUTE = 0
    now = [100.0]
    monkeypatch.setattr(admission, "_wrong", WrongKeys(lambda: 0, lambda: now[0]))
    raw = new_key()
    assert [await outcome(raw) for _ in range(20)] == [NotAuthenticated] * 20
    assert lookups.asked == [raw]
    lookups.good.add(raw)
    now[0] += 1.0
    assert await outcome(raw) == A


@pytest.mark.usefixtures("standing")
async def test_a_key_that_was_good_is_unknown_again_once_it_is_refused(settings: Settings, lookups: Lookups) -> None:
    settings.AGENTHOST_WRONG_KEYS_PER_MINUTE = 5
    raw = new_key()
    lookups.good.add(raw)
    assert await outcome(raw) == A
    lookups.good.clear()
    with pytest.raises(NotAuthenticated):
        await admission.authenticate(raw, "192.0.2.1", 60)
    assert await outcome(raw) is NotAuthenticated
    lookups.good.add(raw)
    admission.forget_all()
    assert await outcome(raw) == A


async def test_what_cannot_be_a_key_is_not_looked_up(lookups: Lookups) -> None:
    for raw in ("", "ah_short", "x" * 46):
        with pytest.raises(NotAuthenticated):
            await admission.authenticate(raw, "", 60)
    assert lookups.asked == []
