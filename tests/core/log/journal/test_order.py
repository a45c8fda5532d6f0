"""Many writers at once: a reader that follows the numbers sees every event, once, in order."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable

import pytest
from django.db import connection

from sessions_app.core.base.events import Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Event

from .conftest import WAIT, Announced, InLoop, Run, World

ROUNDS = 40


class Follower(threading.Thread):
    """Polls a tenant from its last position, as a feed does; it must never have to look back."""

    def __init__(self, tenant: int) -> None:
        super().__init__(name=f"follower of {tenant}")
        self.tenant, self.events, self.upto = tenant, list[Event](), 0
        self.enough = threading.Event()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while True:
                last = self.enough.is_set()
                read = journal.read_tenant(self.tenant, self.upto, 50)
                self.events += read.events
                self.upto = read.upto
                if last and not read.more:
                    break
        except BaseException as failure:
            self.failure = failure
        finally:
            connection.close()

    def finish(self) -> list[Event]:
        self.enough.set()
        self.join(WAIT)
        assert not self.is_alive()
        assert self.failure is None
        return self.events


@pytest.mark.parametrize("tenants", [1, 3])
def test_a_polling_reader_misses_nothing_under_four_writers_and_web_requests(
    make_writer: Callable[[], InLoop], make_run: Callable[..., Run], world: World, announced: Announced, tenants: int
) -> None:
    everyone = [world.tenant() for _ in range(tenants)]
    runs = [make_run(everyone[number % tenants]) for number in range(12)]
    writers = [make_writer() for _ in range(4)]
    followers = [Follower(tenant) for tenant in everyone]

    def web() -> None:
        try:
            for number in range(ROUNDS // 4):
                world.append(runs[number % 12].tenant, runs[number % 12].session, Kind.MODEL_CHANGED, step=f"web{number}")
        finally:
            connection.close()

    requests = threading.Thread(target=web)
    requests.start()
    answers = []
    for step in range(1, ROUNDS + 1):
        for number, run in enumerate(runs):
            unit = run.commit(step) if step % 5 == 0 else run.delta(f"{step} ")
            answers += writers[number % 4].begin_submit(unit)
        if step % 8 == 0:
            assert {answer.result(WAIT) for answer in answers} == {"stored"}
    assert {answer.result(WAIT) for answer in answers} == {"stored"}
    requests.join(WAIT)
    followed = [follower.finish() for follower in followers]

    for tenant, events in zip(everyone, followed, strict=True):
        assert [event.seq for event in events] == list(range(1, journal.counters([tenant])[tenant] + 1))
    by_session: dict[int, list[Event]] = defaultdict(list)
    for events in followed:
        for event in events:
            by_session[event.session].append(event)
    for run in runs:
        steps = []
        for event in by_session[run.session]:
            payload = json.loads(event.data)
            if event.kind == Kind.STEP_DONE:
                steps.append(payload["step"])
            elif event.kind == Kind.TEXT_DELTA:
                steps += [int(each) for each in payload["delta"].split()]
        assert steps == list(range(1, ROUNDS + 1))

    # Listeners could have followed the announcements alone: each session's chain is whole.
    chains: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
    for announcement in announced.all:
        for item in announcement.items:
            chains[item.session].append((item.prev, [event.seq for event in item.events]))
    for run in runs:
        last = 0
        for prev, numbers in sorted(chains[run.session]):
            assert prev == last
            last = numbers[-1]
        assert last == by_session[run.session][-1].seq
    for tenant in everyone:
        covered = sorted((each.before, each.upto) for each in announced.all if each.tenant == tenant)
        assert [before for before, _ in covered] == [0, *(upto for _, upto in covered[:-1])]


def test_announcements_of_a_session_leave_a_writer_in_order(
    writer: InLoop, make_run: Callable[..., Run], announced: Announced, world: World
) -> None:
    tenant = world.tenant()
    runs = [make_run(tenant) for _ in range(5)]
    announced.lists.clear()
    answers = []
    for step in range(1, 60):
        for number, run in enumerate(runs):
            answers += writer.begin_submit(run.commit(step) if (step + number) % 7 == 0 else run.delta(f"{step} "))
    assert {answer.result(WAIT) for answer in answers} == {"stored"}
    for run in runs:
        numbers = [
            event.seq for each in announced.all for item in each.items if item.session == run.session for event in item.events
        ]
        assert numbers == sorted(numbers)
        assert numbers[-1] == journal.tail(run.session).seq
