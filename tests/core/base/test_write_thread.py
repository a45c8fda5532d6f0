"""Calls that write to SQLite in one thread: they share a COMMIT, and fail alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.utils.timezone import now

from sessions_app.core.base import database, write_thread
from sessions_app.models import Session, Tenant

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connections['default'].vendor != 'sqlite'", reason="about SQLite's connections"),
]

A, B = 1, 2


@pytest.fixture(autouse=True)
async def _new_thread() -> AsyncIterator[None]:
    await asyncio.to_thread(database.shut_down)
    yield
    await asyncio.to_thread(database.shut_down)


async def serve(owner: int, fn: Callable[[], Any]) -> Any:
    return await database.serve_on_loop(owner, 60, copy_context(), fn)


class Blocker:
    """Keeps the thread busy until ``go``, so that what is called meanwhile is one round."""

    def __init__(self) -> None:
        self._go, self._busy = threading.Event(), threading.Event()

    async def start(self) -> asyncio.Task[Any]:
        def block() -> None:
            self._busy.set()
            assert self._go.wait(60)

        task = asyncio.create_task(database.run_on_loop(block))
        await asyncio.to_thread(self._busy.wait, 60)
        return task

    async def together(self, *calls: tuple[int, Callable[[], Any]]) -> list[Any]:
        """The results or errors of calls that are made in one round."""
        blocking = await self.start()
        tasks = [asyncio.create_task(serve(owner, fn)) for owner, fn in calls]
        await asyncio.sleep(0)
        self._go.set()
        await blocking
        return await asyncio.gather(*tasks, return_exceptions=True)


def create(slug: str) -> Callable[[], str]:
    def call() -> str:
        with transaction.atomic(durable=True):
            Tenant.objects.create(slug=slug)
        return slug

    return call


def refused() -> None:
    with transaction.atomic():
        Tenant.objects.create(slug="refused")
        raise ValueError("refused")


def fails_at_commit() -> None:
    """Foreign keys are checked at COMMIT."""
    with transaction.atomic():
        Session.objects.create(tenant_id=999, public_id="of-nobody", agent_name="a", created_at=now(), modified_at=now())


def slugs() -> set[str]:
    return set(Tenant.objects.values_list("slug", flat=True))


async def test_calls_that_wait_at_the_same_time_are_stored_by_one_commit() -> None:
    commits: list[str] = []

    def trace() -> None:
        connection.ensure_connection()
        connection.connection.set_trace_callback(lambda sql: commits.append(sql) if sql.lower() == "commit" else None)

    await database.run_on_loop(trace)
    found = await Blocker().together(*[(A, create(f"a{each}")) for each in range(5)])
    assert found == [f"a{each}" for each in range(5)]
    assert len(commits) == 1
    assert await database.run(slugs) == set(found)


async def test_a_refused_call_rolls_back_alone() -> None:
    first, error, last = await Blocker().together((A, create("first")), (A, refused), (A, create("last")))
    assert (first, last) == ("first", "last")
    assert isinstance(error, ValueError)
    assert await database.run(slugs) == {"first", "last"}


async def test_a_call_whose_commit_fails_fails_alone() -> None:
    first, error, last = await Blocker().together((A, create("first")), (B, fails_at_commit), (B, create("last")))
    assert (first, last) == ("first", "last")
    assert isinstance(error, IntegrityError)
    assert await database.run(slugs) == {"first", "last"}
    assert await serve(A, create("after")) == "after"


async def test_a_transaction_that_sqlite_rolls_back_fails_no_other_call() -> None:
    """As SQLite does for example if the disk is full."""
    attempts = 0

    def breaks() -> None:
        nonlocal attempts
        attempts += 1
        with transaction.atomic():
            Tenant.objects.create(slug="broken")
            connection.connection.rollback()
            raise OperationalError("disk full")

    first, error, last = await Blocker().together((A, create("first")), (A, breaks), (B, create("last")))
    assert (first, last, str(error)) == ("first", "last", "disk full")
    assert attempts == 2
    assert await database.run(slugs) == {"first", "last"}


async def test_what_a_call_has_stored_before_is_not_stored_twice() -> None:
    created = 0

    def in_two_steps() -> str:
        nonlocal created
        with transaction.atomic():
            Tenant.objects.create(slug=f"step-one-{created}")
            created += 1
        try:
            fails_at_commit()
        except IntegrityError:
            return "second step refused"
        return "never"

    found = await Blocker().together((A, in_two_steps), (A, create("other")))
    assert found == ["second step refused", "other"]
    assert await database.run(slugs) == {"step-one-0", "other"}


async def test_a_call_that_tries_again_after_a_failed_commit_is_stored() -> None:
    def stubborn() -> str:
        try:
            fails_at_commit()
        except IntegrityError:
            return str(create("second-try")())
        return "never"

    assert await serve(A, stubborn) == "second-try"
    assert await database.run(slugs) == {"second-try"}


async def test_statements_outside_a_transaction_are_answered_when_they_are_stored() -> None:
    def statement() -> int:
        return Tenant.objects.filter(slug="first").update(slug="renamed")

    first, renamed = await Blocker().together((A, create("first")), (A, statement))
    assert (first, renamed) == ("first", 1)
    assert await database.run(slugs) == {"renamed"}


async def test_a_statement_outside_a_transaction_is_stored_before_the_transaction_that_follows_it() -> None:
    def both() -> str:
        Tenant.objects.bulk_create([Tenant(slug="statement")])
        with connection.cursor() as cursor:
            cursor.execute("update sessions_app_tenant set slug = 'changed' where slug = 'statement'")
        with pytest.raises(ValueError, match="refused"):
            refused()
        return str(create("transaction")())

    assert await serve(A, both) == "transaction"
    assert await database.run(slugs) == {"changed", "transaction"}


async def test_one_tenants_calls_do_not_delay_anothers() -> None:
    order: list[int] = []
    blocker = Blocker()
    many = [(A, lambda: order.append(A))] * (4 * write_thread.MOST)
    await blocker.together(*many, (B, lambda: order.append(B)))
    assert order.index(B) <= write_thread.MOST // 2
    assert len(order) == len(many) + 1


async def test_a_call_that_gets_no_slot_in_time_is_not_made() -> None:
    made: list[int] = []
    blocker = Blocker()
    blocking = await blocker.start()
    others = [asyncio.create_task(serve(A, int)) for _ in range(write_thread.MOST)]
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await database.serve_on_loop(A, 0.01, copy_context(), made.append, 1)
    blocker._go.set()
    await asyncio.gather(blocking, *others)
    assert made == []


async def test_a_call_whose_caller_is_gone_before_it_began_is_not_made() -> None:
    blocker = Blocker()
    blocking = await blocker.start()
    gone = asyncio.create_task(serve(A, create("gone")))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    blocker._go.set()
    await blocking
    assert await serve(A, create("next")) == "next"
    assert await database.run(slugs) == {"next"}


async def test_a_call_runs_in_the_context_that_its_caller_gave() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="")
    context = copy_context()
    context.run(variable.set, "given")

    def change() -> str:
        before = variable.get()
        create("in-context")()
        variable.set("changed")
        return before

    assert await database.serve_on_loop(A, 60, context, change) == "given"
    assert context[variable] == "changed"


async def test_while_another_thread_writes_too_long_all_calls_fail_together(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait_for_nobody() -> None:
        wrapper: Any = connections["default"]
        take = wrapper._take_lock

        def counted() -> None:
            waits.append(1)
            take()

        wrapper._take_lock = counted
        wrapper.settings_dict = {**wrapper.settings_dict, "OPTIONS": {**wrapper.settings_dict["OPTIONS"], "timeout": 0}}

    await database.run_on_loop(wait_for_nobody)
    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            held.set()
            assert may_end.wait(60)

    holding = asyncio.create_task(database.run(hold))
    await asyncio.to_thread(held.wait, 60)
    found = await Blocker().together((A, create("one")), (B, create("two")))
    may_end.set()
    await holding
    assert [str(error) for error in found] == ["database is locked"] * 2
    assert len(waits) == 1
    assert await serve(A, create("later")) == "later"
