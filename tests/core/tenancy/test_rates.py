"""Rates: a window that slides, shared through Redis, per process without one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any
from unittest import mock

import pytest
from django.conf import settings as django_settings

from ops import services
from sessions_app.core.base import loop_calls, process_loop
from sessions_app.core.base.loop_calls import LoopCall
from sessions_app.core.tenancy import rates
from sessions_app.core.tenancy.rates import Bound, LocalWindows, RedisWindows
from tests.paths import ROOT

TAKE = """
import django, json, sys
django.setup()
from sessions_app.core.tenancy import rates
rates._READ_TIMEOUT = 30.0
bounds = [rates.Bound(name, limit) for name, limit in json.loads(sys.argv[1])]
taken = [rates.take(bounds) for _ in range(int(sys.argv[2]))]
print(json.dumps([each.allowed for each in taken]))
"""

with_redis = pytest.mark.skipif(not os.environ.get("REDIS_URL"), reason="needs a Redis")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _own_rates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A late answer of a machine under pressure is none of a Redis that hangs.
    monkeypatch.setattr(rates, "_READ_TIMEOUT", 30.0)
    rates.reset()
    yield
    rates.reset()


def a_name() -> str:
    return f"{{{uuid.uuid4().hex}}}:t"


def process(bounds: list[tuple[str, int]], times: int, **environment: str) -> list[bool]:
    """What another process is allowed."""
    variables = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **environment}
    command = [sys.executable, "-c", TAKE, json.dumps(bounds), str(times)]
    done = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    allowed: list[bool] = json.loads(done.stdout)
    return allowed


def test_in_no_minute_is_more_let_through_than_allowed() -> None:
    clock = Clock()
    windows, bound = LocalWindows(clock), [Bound("t", 3)]
    let_through: list[float] = []
    for second in range(200):
        clock.now = 1000.0 + second
        if windows.take(bound, str(second))[0]:
            let_through.append(clock.now)
    assert all(sum(start <= moment < start + 60 for moment in let_through) <= 3 for start in let_through)
    assert let_through[:4] == [1000.0, 1001.0, 1002.0, 1060.0]


def test_the_time_until_a_place_is_free_is_right_also_when_the_limit_was_lowered() -> None:
    clock = Clock()
    windows = LocalWindows(clock)
    for second in (0, 10, 20):
        clock.now = 1000.0 + second
        windows.take([Bound("t", 3)], str(second))
    clock.now = 1030.0
    allowed, [level] = windows.take([Bound("t", 3)], "x")
    assert (allowed, level.left, level.seconds) == (False, 0, 30.0)
    allowed, [level] = windows.take([Bound("t", 1)], "x")
    assert (allowed, level.used, level.seconds) == (False, 3, 50.0)
    allowed, [level] = windows.take([Bound("t", 0)], "x")
    assert (allowed, level.seconds) == (False, 60)
    clock.now = 1060.0
    assert windows.take([Bound("t", 3)], "y")[0]


def test_a_full_window_takes_no_place_in_the_others_and_a_place_can_be_given_back() -> None:
    windows = LocalWindows(Clock())
    both = [Bound("tenant", 2), Bound("key", 1)]
    assert windows.take(both, "a")[0]
    allowed, levels = windows.take(both, "b")
    assert (allowed, [level.used for level in levels]) == (False, [1, 1])
    windows.give_back(both, "a")
    assert windows.take(both, "c")[0]


def test_windows_that_nobody_uses_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MOST_WINDOWS", 10)
    clock = Clock()
    windows = LocalWindows(clock)
    for n in range(11):
        windows.take([Bound(str(n), 1)], "m")
    clock.now += 61
    windows.take([Bound("new", 1)], "m")
    assert list(windows._windows) == ["new"]


@with_redis
def test_processes_count_together_in_redis() -> None:
    name = a_name()
    bounds = [(name, 5), (f"{name}:key", 4)]
    assert process(bounds, 3) == [True] * 3
    assert [rates.take([Bound(*each) for each in bounds]).allowed for _ in range(2)] == [True, False]
    assert process(bounds, 1) == [False]


def test_each_process_counts_for_itself_without_redis() -> None:
    bounds = [(a_name(), 2)]
    without = {"REDIS_URL": "", "DATABASE_URL": ""}
    assert process(bounds, 3, **without) == [True, True, False]
    assert process(bounds, 3, **without) == [True, True, False]


@with_redis
def test_redis_says_the_same_as_a_process_of_its_own() -> None:
    url = django_settings.AGENTHOST_REDIS_URL
    assert url is not None
    shared, own, name = RedisWindows(url), LocalWindows(), a_name()
    try:
        for limit, member in ((2, "a"), (2, "b"), (2, "c"), (1, "d"), (0, "e"), (3, "f")):
            bounds = [Bound(name, limit), Bound(f"{name}:key", 9)]
            (allowed, levels), (expected, wanted) = shared.take(bounds, member), own.take(bounds, member)
            assert allowed == expected
            assert [level.used for level in levels] == [level.used for level in wanted]
            assert [level.seconds for level in levels] == pytest.approx([level.seconds for level in wanted], abs=5)
        for each in (shared, own):
            each.give_back([Bound(name, 3)], "a")
        assert shared.take([Bound(name, 3)], "g")[0]
        assert own.take([Bound(name, 3)], "g")[0]
    finally:
        shared.close()


def test_a_redis_that_does_not_answer_costs_one_look_and_no_request(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.AGENTHOST_REDIS_URL = "redis://127.0.0.1:1/0"
    bound = [Bound(a_name(), 3)]
    taken = [rates.take(bound) for _ in range(4)]
    assert [each.allowed for each in taken] == [True, True, True, False]
    rates.give_back(taken[0])
    assert rates.take(bound).allowed
    assert sum("Redis does not answer" in record.getMessage() for record in caplog.records) == 1


@with_redis
def test_a_redis_that_hangs_is_asked_once_and_then_only_by_a_probe(
    settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", logger="sessions_app.core.tenancy.rates")
    monkeypatch.setattr(rates, "_PROBE_SECONDS", 0.01)
    monkeypatch.setattr(rates, "_READ_TIMEOUT", 3.0)
    with services.folder() as home:
        redis = services.Redis(home)
        redis.start()
        assert redis.pid is not None
        settings.AGENTHOST_REDIS_URL = redis.url()
        bound = [Bound(a_name(), 100)]
        assert isinstance(rates.take(bound).windows, RedisWindows)
        os.kill(redis.pid, signal.SIGSTOP)
        try:
            with mock.patch.object(RedisWindows, "take", autospec=True, side_effect=RedisWindows.take) as asked:
                assert {rates.take(bound).windows for _ in range(50)} == {rates._local}
            assert asked.call_count == 1
        finally:
            os.kill(redis.pid, signal.SIGCONT)
        until = time.monotonic() + 60
        while not isinstance(rates.take(bound).windows, RedisWindows):
            assert time.monotonic() < until, "Redis is not used again"
        rates.reset()
        redis.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "rate_limits_per_process: Redis does not answer (TimeoutError)",
        "rate_limits_shared_again: Redis answers",
    ]


async def on_loop(fn: Any, *arguments: Any) -> Any:
    """The result of a call on this loop."""
    return await loop_calls.run(LoopCall(lambda: fn(*arguments), "owner", copy_context()))


@with_redis
def test_calls_on_a_loop_count_with_the_others() -> None:
    name = a_name()
    bounds = [Bound(name, 3), Bound(f"{name}:key", 2)]

    async def main() -> None:
        process_loop.adopt()
        first, second, third = await asyncio.gather(*[on_loop(rates.take, bounds) for _ in range(3)])
        assert sorted([first.allowed, second.allowed, third.allowed]) == [False, True, True]
        assert isinstance(first.windows, RedisWindows)
        await on_loop(rates.give_back, first if first.allowed else second)
        await process_loop.release()
        assert first.windows._of_loops == {}

    asyncio.run(main())
    assert [rates.take(bounds).allowed for _ in range(2)] == [True, False]


@with_redis
def test_a_redis_that_hangs_holds_up_only_the_calls_that_need_it(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it blocked the loop, nobody could let Redis continue, and the call would count alone."""
    monkeypatch.setattr(rates, "_READ_TIMEOUT", 30.0)
    with services.folder() as home:
        redis = services.Redis(home)
        redis.start()
        pid = redis.pid
        assert pid is not None
        settings.AGENTHOST_REDIS_URL = redis.url()
        bound = [Bound(a_name(), 10)]

        async def main() -> None:
            process_loop.adopt()
            await on_loop(rates.take, bound)
            os.kill(pid, signal.SIGSTOP)
            try:
                waiting = [asyncio.create_task(on_loop(rates.take, bound)) for _ in range(3)]
                for _ in range(100):
                    await asyncio.sleep(0)
                    assert await on_loop(lambda: "another request") == "another request"
                assert not any(task.done() for task in waiting)
            finally:
                os.kill(pid, signal.SIGCONT)
            taken = await asyncio.gather(*waiting)
            assert all(isinstance(each.windows, RedisWindows) for each in taken)
            assert max(each.levels[0].used for each in taken) == 4
            await process_loop.release()

        asyncio.run(main())
        rates.reset()
        redis.stop()


def test_a_redis_that_is_away_fails_no_call_on_a_loop(settings: Any) -> None:
    settings.AGENTHOST_REDIS_URL = "redis://127.0.0.1:1/0"
    bound = [Bound(a_name(), 3)]

    async def main() -> list[bool]:
        process_loop.adopt()
        allowed = [(await on_loop(rates.take, bound)).allowed for _ in range(4)]
        await process_loop.release()
        return allowed

    assert asyncio.run(main()) == [True, True, True, False]
