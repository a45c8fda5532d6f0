"""A message that is built once is what Celery would have published."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from celery import Celery
from redis import Redis as Client

from agenthost.celery import QUEUE, WAKE, make_app
from agenthost.task_message import TaskMessage
from ops.services import Redis
from sessions_app.core.turns import tasks  # noqa: F401  # declares the task

KEY = "agenthost.agenthost"


def _without_ids(text: bytes) -> dict[str, Any]:
    """A stored message; its ids are checked and replaced by names."""
    message = json.loads(text)
    task, tag = message["headers"]["id"], message["properties"]["delivery_tag"]
    UUID(task)
    UUID(tag)
    assert task != tag
    named: dict[str, Any] = json.loads(text.decode().replace(task, "task").replace(tag, "tag"))
    return named


def _published_by_celery(app: Celery, client: Client) -> bytes:
    app.tasks[WAKE].apply_async(retry=False, ignore_result=True)
    published = client.rpop(KEY)
    assert isinstance(published, bytes)
    return published


def test_it_equals_what_celery_publishes_to_redis(own_redis: Redis) -> None:
    app = make_app(own_redis.url())
    message = TaskMessage(app.tasks[WAKE], QUEUE.name)
    assert message.queue == "agenthost"
    with Client.from_url(own_redis.url()) as client:
        assert _without_ids(message.new()) == _without_ids(_published_by_celery(app, client))


def test_each_message_has_ids_of_its_own(own_redis: Redis) -> None:
    task = make_app(own_redis.url()).tasks[WAKE]
    one, other = TaskMessage(task, QUEUE.name), TaskMessage(task, QUEUE.name)
    messages = [json.loads(message.new()) for message in (one, other) for _ in range(3)]
    ids = {message["headers"]["id"] for message in messages} | {message["properties"]["delivery_tag"] for message in messages}
    assert len(ids) == 12
    assert all(message["properties"]["correlation_id"] == message["headers"]["id"] for message in messages)
