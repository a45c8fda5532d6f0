"""Tenants, sessions and turns to append events for, and a record of what was announced."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from django.utils import timezone

from sessions_app.core.base import process_loop
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import Announcement, NewEvent, Outcome, Unit
from sessions_app.models import AgentDefinition, Session, Tenant, ToolCall, Turn, TurnState

T = TypeVar("T")

WAIT = 60.0

_numbers = itertools.count(1)


@dataclass
class Announced:
    """Every announcement, in order, from all threads."""

    lists: list[list[Announcement]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, announcements: list[Announcement]) -> None:
        with self.changed:
            self.lists.append(list(announcements))
            self.changed.notify_all()

    @property
    def all(self) -> list[Announcement]:
        with self.changed:
            return [each for some in self.lists for each in some]

    def wait(self, enough: Callable[[], bool], timeout: float = 60) -> None:
        # ``enough`` may wait for the loop that announces, so it is not called with the lock.
        while True:
            seen = len(self.lists)
            if enough():
                return
            with self.changed:
                assert self.changed.wait_for(lambda seen=seen: len(self.lists) > seen, timeout), "nothing was announced"  # type: ignore[misc]


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Announced:
    record = Announced()
    monkeypatch.setattr(broadcast, "announce", record)
    return record


@pytest.fixture(autouse=True)
def _announce_to_nobody(announced: Announced) -> None:
    """No test here has listeners."""


@dataclass
class World:
    """Makes rows that the journal needs beside its own."""

    def tenant(self) -> int:
        tenant = Tenant.objects.create(slug=f"tenant-{next(_numbers)}")
        with journal.transaction():
            journal.create_counter(tenant.pk)
        return tenant.pk

    def session(self, tenant: int) -> int:
        now = timezone.now()
        session = Session.objects.create(
            tenant_id=tenant, public_id=f"sess_{next(_numbers)}", agent_name="echo", created_at=now, modified_at=now
        )
        with journal.transaction():
            journal.create_tail(session.pk)
        return session.pk

    def turn(self, tenant: int, session: int, *, fence: int = 1, state: TurnState = TurnState.RUNNING) -> int:
        """A claimed turn: its fence is in the tail, as a claim leaves it."""
        now = timezone.now()
        definition, _ = AgentDefinition.objects.get_or_create(digest="0" * 64, defaults={"agent_name": "echo", "document": "{}"})
        turn = Turn.objects.create(
            tenant_id=tenant,
            session_id=session,
            public_id=f"turn_{next(_numbers)}",
            definition=definition,
            state=state,
            fence=fence,
            created_at=now,
            queued_at=now,
        )
        self.append(tenant, session, Kind.RUN_STARTED, fence=fence)
        return turn.pk

    def call(self, turn: int, call_id: str, state: str = "pending", *, stored: bool = False) -> int:
        row = Turn.objects.get(pk=turn)
        return ToolCall.objects.create(
            tenant_id=row.tenant_id,
            session_id=row.session_id,
            turn=row,
            call_id=call_id,
            name="weather",
            arguments="{}",
            runner="client",
            state=state,
            stored=stored,
            created_at=timezone.now(),
        ).pk

    def append(
        self, tenant: int, session: int | None, kind: Kind = Kind.SESSION_CREATED, *, fence: int | None = None, **payload: Any
    ) -> int:
        with journal.transaction() as tx:
            tx.append(NewEvent(tenant, session, Happening(kind, payload), fence=fence))
        return tx.stored[0].seq


@pytest.fixture
def world(transactional_db: None) -> World:
    return World()


class InLoop:
    """A writer in a loop of its own, which carries the process's connections as a worker's does, driven from a test's thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="writer's loop")
        self._thread.start()
        self.stale: list[int] = []
        self.writer = self.do(self._start())

    async def _start(self) -> journal.Writer:
        process_loop.adopt()
        writer = journal.Writer()
        writer.on_stale(self.stale.append)
        await writer.start()
        return writer

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.begin(coroutine).result(WAIT)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def submit(self, *units: Unit) -> list[Outcome | BaseException]:
        """All of them before the first is flushed; what became of each."""

        async def together() -> list[Outcome | BaseException]:
            return await asyncio.gather(*(self.writer.submit(unit) for unit in units), return_exceptions=True)

        return self.do(together())

    def begin_submit(self, *units: Unit) -> list[Future[Outcome]]:
        """The same, without waiting for what becomes of them."""
        ready: Future[list[asyncio.Task[Outcome]]] = Future()
        answers: list[Future[Outcome]] = [Future() for _ in units]

        def begin() -> None:
            tasks = [self.loop.create_task(self.writer.submit(unit)) for unit in units]
            for task, answer in zip(tasks, answers, strict=True):
                task.add_done_callback(lambda done, answer=answer: _copy(done, answer))  # type: ignore[misc]
            ready.set_result(tasks)

        self.loop.call_soon_threadsafe(begin)
        ready.result(WAIT)
        return answers

    def put(self, *units: Unit) -> None:
        async def together() -> None:
            for unit in units:
                self.writer.put(unit)

        self.do(together())

    def close(self) -> None:
        if not self.loop.is_closed():
            self.do(self.writer.close())
            self.do(process_loop.release())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(WAIT)
            self.loop.close()


def _copy(done: asyncio.Task[Outcome], answer: Future[Outcome]) -> None:
    if done.cancelled():
        answer.cancel()
    elif (error := done.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())


@pytest.fixture
def make_writer(world: World) -> Iterator[Callable[[], InLoop]]:
    made: list[InLoop] = []

    def make() -> InLoop:
        made.append(InLoop())
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def writer(make_writer: Callable[[], InLoop]) -> InLoop:
    return make_writer()


@dataclass
class Run:
    """A claimed run, and units of it."""

    tenant: int
    session: int
    turn: int
    fence: int = 1

    def delta(self, text: str, part: str | None = "p1") -> Unit:
        happening = Happening(Kind.TEXT_DELTA, {"part": part, "delta": text}, join=part)
        return Unit(self.tenant, self.session, self.turn, self.fence, [happening])

    def commit(self, step: int, *statements: Statement, kind: Kind = Kind.STEP_DONE, unless_answered: bool = False) -> Unit:
        always = Statement("update sessions_app_turn set step = %s where id = %s and fence = %s", (step, self.turn, self.fence))
        return Unit(
            self.tenant,
            self.session,
            self.turn,
            self.fence,
            [Happening(kind, {"step": step})],
            [always, *statements],
            unless_answered,
        )

    def as_fence(self, fence: int) -> Run:
        return Run(self.tenant, self.session, self.turn, fence)

    @property
    def step(self) -> int:
        return Turn.objects.get(pk=self.turn).step

    @property
    def said(self) -> list[tuple[str, str]]:
        """Kinds and texts (or steps) of the session's events, the claim left out."""
        events = journal.read_session(self.tenant, self.session, 0, 100_000).events
        payloads = [(event.kind, json.loads(event.data)) for event in events if event.kind != Kind.RUN_STARTED]
        return [(kind, str(payload.get("delta", payload.get("step", "")))) for kind, payload in payloads]


@pytest.fixture
def make_run(world: World) -> Callable[..., Run]:
    def make(tenant: int | None = None, *, fence: int = 1) -> Run:
        tenant = world.tenant() if tenant is None else tenant
        session = world.session(tenant)
        return Run(tenant, session, world.turn(tenant, session, fence=fence), fence)

    return make
