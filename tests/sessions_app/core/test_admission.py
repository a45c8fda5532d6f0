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

from sessions_app.core import admission, database, keys
from sessions_app.core.errors import NotAuthenticated

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
    wrong = [asyncio.create_task(admission.tenant_of(f"ah_{secrets.token_urlsafe(32)}", 60)) for _ in range(200)]
    await seen(lambda: len(looked_up) == 2)
    # One tenant's requests stand as well; the other's goes on.
    standing.come(A, 100)
    await seen(lambda: len(standing.inside) == 8)
    assert await serve(B, lambda: "served") == "served"
    assert len(looked_up) == 2, "an eighth of the threads, however many keys are tried"
    standing.go.set()
    answers = await asyncio.gather(*wrong, return_exceptions=True)
    assert {type(answer) for answer in answers} == {NotAuthenticated}
