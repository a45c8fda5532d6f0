"""A Celery task message that is built once and sent many times.

Celery and kombu take about 100 µs to build a message without arguments, and all but its ids is the same each time. The message
is recorded from Celery's own publisher, so its format, its headers and its queue are those of ``apply_async``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from celery import Task
from kombu import Connection
from kombu.transport import memory, virtual

_TASK_ID, _DELIVERY_TAG = str(uuid.uuid4()), str(uuid.uuid4())


class _Channel(memory.Channel):
    def _put(self, queue: str, message: Any, **_: Any) -> None:
        cast(_Transport, self.connection).recorded.append((queue, message))


class _Transport(memory.Transport):
    Channel = _Channel
    global_state = virtual.BrokerState()

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.recorded: list[tuple[str, Any]] = []


class TaskMessage:
    """The messages of one task without arguments for one queue, as kombu's virtual transports (Redis is one) store them."""

    def __init__(self, task: Task[..., Any], queue: str) -> None:
        with Connection(transport=_Transport) as connection:
            task.apply_async(
                connection=connection,  # type: ignore[call-arg]  # missing in the types
                task_id=_TASK_ID,
                queue=queue,
                retry=False,
                ignore_result=True,
            )
            ((self.queue, message),) = cast(_Transport, connection.transport).recorded
        message["properties"]["delivery_tag"] = _DELIVERY_TAG
        self._next_id = _ids()
        self._text = json.dumps(message, separators=(",", ":")).replace("%", "%%")
        # The task's id is in several places; it is all of the value in each.
        self._text = self._text.replace(_TASK_ID, "%(id)s").replace(_DELIVERY_TAG, "%(tag)s")

    def new(self) -> bytes:
        """A message with ids of its own."""
        return (self._text % {"id": self._next_id(), "tag": self._next_id()}).encode()


def _ids() -> Callable[[], str]:
    """Makes UUIDs whose first 80 bits are random for this process and whose last 48 are counted."""
    start, numbers = str(uuid.uuid4())[:24], count()
    return lambda: f"{start}{next(numbers):012x}"
