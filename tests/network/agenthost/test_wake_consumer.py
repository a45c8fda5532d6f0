"""A worker's consumer is an ordinary Celery worker to everybody else, and finds Redis again within a second."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from celery import Celery
from celery.worker import state
from kombu import Consumer as StockConsumer
from redis import Redis as Client

from agenthost import celery, wake_ups, worker_services
from agenthost.celery import HOUSEKEEPING, QUEUE, WAKE
from agenthost.redis_publisher import RedisPublisher
from ops.services import Redis
from sessions_app.core.turns import tasks

KEY = "agenthost.agenthost"


def _until(condition: Callable[[], Any], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        threading.Event().wait(0.002)


class Worker:
    """A loop in a thread, and the calls that reach it."""

    def __init__(self) -> None:
        self.woken, self.kept = threading.Semaphore(0), threading.Semaphore(0)
        self.threads: list[str] = []
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="runs", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.woken.release()

    def end(self) -> None:
        async def cancel() -> None:
            tasks_left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks_left:
                task.cancel()
            await asyncio.gather(*tasks_left, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


@pytest.fixture
def app(own_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """Our application with a Redis of its own."""
    made = celery.make_app(own_redis.url())
    monkeypatch.setattr(worker_services, "app", made)
    monkeypatch.setattr(wake_ups, "app", made)
    made.set_current()
    yield made
    made.close()
    celery.app.set_current()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    working = Worker()
    monkeypatch.setattr(tasks, "_service", tasks.Service(wake=working.wake, keep_house=working.kept.release))
    yield working
    working.end()


@pytest.fixture(params=["in the loop", "in Celery's thread"])
def consumer(request: pytest.FixtureRequest, app: Celery, worker: Worker) -> Iterator[worker_services.Consumer]:
    in_loop = getattr(request, "param", "in the loop") == "in the loop"
    consuming = worker_services.Consumer(worker.loop if in_loop else None)
    consuming.start()
    # When it is connected; in the loop, when the receiver is.
    for _ in range(2 if in_loop else 1):
        assert worker.woken.acquire(timeout=30)
    # Celery listens to inspect and control a moment after it is ready.
    with Client.from_url(app.conf.broker_url) as client:
        _until(lambda: client.pubsub_numpat() >= 1)
    worker.threads.clear()
    yield consuming
    consuming.close()
    assert consuming.join(30)


only_in_loop = pytest.mark.parametrize("consumer", ["in the loop"], indirect=True)


@pytest.fixture
def publisher(app: Celery, worker: Worker) -> Iterator[RedisPublisher]:
    made = wake_ups.publish_from(worker.loop)
    assert made is not None
    yield made
    wake_ups.stop()


def test_our_message_and_celerys_wake_the_worker(
    app: Celery, consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    before = state.total_count[WAKE]
    tasks.wake()
    assert worker.woken.acquire(timeout=30)
    app.tasks[WAKE].apply_async(retry=False)
    assert worker.woken.acquire(timeout=30)
    assert state.total_count[WAKE] == before + 2


@only_in_loop
def test_the_worker_is_woken_in_its_own_loop(
    app: Celery, consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    tasks.wake()
    assert worker.woken.acquire(timeout=30)
    assert worker.threads == ["runs"]


def test_other_tasks_and_wake_ups_with_options_take_celerys_path(
    app: Celery, consumer: worker_services.Consumer, worker: Worker
) -> None:
    app.tasks[HOUSEKEEPING].apply_async(expires=55, retry=False)
    assert worker.kept.acquire(timeout=30)
    app.tasks[WAKE].apply_async(expires=55, retry=False)
    assert worker.woken.acquire(timeout=30)
    app.tasks[WAKE].apply_async(countdown=0.1, retry=False)
    assert worker.woken.acquire(timeout=30)
    assert worker.threads == ["celery"] * 2


def test_messages_that_are_none_are_survived(
    app: Celery, own_redis: Redis, consumer: worker_services.Consumer, worker: Worker
) -> None:
    with Client.from_url(own_redis.url()) as client:
        client.lpush(KEY, json.dumps({"headers": {}, "body": "", "properties": {"delivery_tag": "1"}}))
    app.tasks[WAKE].apply_async(retry=False)
    assert worker.woken.acquire(timeout=30)


def test_a_stock_consumer_takes_our_message(app: Celery, worker: Worker, publisher: RedisPublisher) -> None:
    taken: list[Any] = []

    def take(body: object, message: Any) -> None:
        taken.append((body, message.headers["task"], message.content_type))

    tasks.wake()
    # Celery's own decoder of a message and of its body.
    with app.connection_for_read() as connection, StockConsumer(connection, [QUEUE], callbacks=[take], accept=["json"]):
        connection.drain_events(timeout=30)
    assert taken == [
        ([[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}], WAKE, "application/json"),
    ]


@only_in_loop
def test_celery_inspect_and_control_work(app: Celery, consumer: worker_services.Consumer, worker: Worker) -> None:
    app.tasks[WAKE].apply_async(retry=False)
    assert worker.woken.acquire(timeout=30)
    inspect = app.control.inspect(timeout=60, limit=1)
    (name,) = inspect.ping() or {}
    assert [queue["name"] for queue in (inspect.active_queues() or {})[name]] == ["agenthost"]
    assert (inspect.stats() or {})[name]["total"][WAKE] >= 1
    # A worker that an operator takes off the queue gets no more messages; back on it, it gets them.
    app.control.cancel_consumer("agenthost", reply=True, limit=1, timeout=60)
    # The wait in Redis that was under way has ended.
    assert consumer._receiver is not None
    _until(lambda: not consumer._receiver._connection.unanswered)  # type: ignore[union-attr]  # as asserted
    app.tasks[WAKE].apply_async(retry=False)
    assert not worker.woken.acquire(blocking=False)
    app.control.add_consumer("agenthost", reply=True, limit=1, timeout=60)
    assert worker.woken.acquire(timeout=30)


def test_events_are_sent_when_an_operator_wants_them(app: Celery, consumer: worker_services.Consumer, worker: Worker) -> None:
    app.control.broadcast("enable_events", reply=True, limit=1, timeout=60)
    seen: list[str] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: seen.append(event["type"])})
        with receiver.consumer_context(wakeup=False) as (events, _, _):
            # The subscription may begin after the first one.
            while "task-succeeded" not in seen:
                app.tasks[WAKE].apply_async(retry=False)
                assert worker.woken.acquire(timeout=30)
                with suppress(TimeoutError):
                    while "task-succeeded" not in seen:
                        events.drain_events(timeout=0.5)
    assert "task-received" in seen


@only_in_loop
def test_after_a_restart_of_redis_wake_ups_arrive_within_seconds(
    app: Celery, own_redis: Redis, consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    own_redis.kill()
    # Stock Celery waits 2, 4, 6 … 30 s between its attempts; after an outage of 6.5 s it would come back after 12.
    threading.Event().wait(6.5)
    own_redis.start()
    back = time.monotonic()
    # What was committed meanwhile is looked for without a message, by the receiver and by Celery's consumer.
    for _ in range(2):
        assert worker.woken.acquire(timeout=30)
    assert time.monotonic() - back < 4.9
    tasks.wake()
    assert worker.woken.acquire(timeout=30)


@only_in_loop
def test_a_frozen_redis_is_left_and_found_again(
    app: Celery, own_redis: Redis, consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    assert own_redis.pid is not None
    assert consumer._receiver is not None
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        _until(lambda: not consumer._receiver._connection.is_open)  # type: ignore[union-attr]  # as asserted
        tasks.wake()
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    assert worker.woken.acquire(timeout=30)


@only_in_loop
def test_a_worker_that_stops_passes_a_wake_up_on(
    app: Celery, own_redis: Redis, consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    state.should_stop = 0  # type: ignore[assignment]  # as while a worker stops
    consumer._closing.set()
    assert consumer._receiver is not None
    consumer._receiver.stop()
    app.tasks[WAKE].apply_async(retry=False)
    with Client.from_url(own_redis.url()) as client:
        # Taken and put back, or not taken.
        _until(lambda: not consumer._receiver._connection.is_open)  # type: ignore[union-attr]  # as asserted
        _until(lambda: client.llen(KEY) == 1)
    assert not worker.woken.acquire(blocking=False)


@pytest.fixture
def heavy_consumer(app: Celery, worker: Worker) -> Iterator[worker_services.Consumer]:
    """Of a worker of two queues, one of them the default one."""
    consuming = worker_services.Consumer(worker.loop, ("heavy", "default"))
    consuming.start()
    for _ in range(2):
        assert worker.woken.acquire(timeout=30)
    with Client.from_url(app.conf.broker_url) as client:
        _until(lambda: client.pubsub_numpat() >= 1)
    yield consuming
    consuming.close()
    assert consuming.join(30)


def test_a_worker_of_several_queues_is_woken_by_each_and_shows_them_to_celery(
    app: Celery, heavy_consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    for queue in ("heavy", "default"):
        tasks.wake(queue)
        assert worker.woken.acquire(timeout=30)
    # Celery's own publisher, as on other brokers and in processes without a loop.
    tasks._publish("heavy")
    assert worker.woken.acquire(timeout=30)
    inspect = app.control.inspect(timeout=60, limit=1)
    ((_, active),) = (inspect.active_queues() or {}).items()
    assert {queue["name"]: queue["no_ack"] for queue in active} == {"heavy": True, "agenthost": True}


def test_wake_ups_of_other_queues_stay_in_the_broker_for_their_workers(
    app: Celery, own_redis: Redis, heavy_consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    tasks.wake("light")
    with Client.from_url(own_redis.url()) as client:
        _until(lambda: client.llen("agenthost.light") == 1)
        # An operator cannot make the worker take wake-ups that it would not follow.
        app.control.add_consumer("light", reply=True, limit=1, timeout=60)
        tasks.wake("heavy")
        assert worker.woken.acquire(timeout=30)
        assert client.llen("agenthost.light") == 1
    assert not worker.woken.acquire(blocking=False)


def test_a_worker_that_stops_passes_a_wake_up_on_in_its_queue(
    app: Celery, own_redis: Redis, heavy_consumer: worker_services.Consumer, worker: Worker, publisher: RedisPublisher
) -> None:
    state.should_stop = 0  # type: ignore[assignment]  # as while a worker stops
    heavy_consumer._closing.set()
    assert heavy_consumer._receiver is not None
    heavy_consumer._receiver.stop()
    tasks._publish("heavy")
    with Client.from_url(own_redis.url()) as client:
        # Taken and put back, or not taken.
        _until(lambda: not heavy_consumer._receiver._connection.is_open)  # type: ignore[union-attr]  # as asserted
        _until(lambda: client.llen("agenthost.heavy") == 1)
        assert client.llen(KEY) == 0
    assert not worker.woken.acquire(blocking=False)


@only_in_loop
def test_celery_control_shutdown_stops_the_process_as_a_signal_does(
    app: Celery, consumer: worker_services.Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[tuple[int, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *arguments: signals.append(arguments))
        app.control.broadcast("shutdown")
        assert consumer.join(30)
    assert signals == [(os.getpid(), signal.SIGTERM)]
