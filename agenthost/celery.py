"""The Celery application. Its tasks are wake-up calls only; the work itself is stored in the database."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agenthost.settings")

from celery import Celery
from celery.backends.base import DisabledBackend
from django.conf import settings
from kombu import Exchange, Queue

from agenthost import memory_broker, redis_broker  # noqa: F401 - the import registers the transport for redis:


def queue_named(name: str) -> Queue:
    """A queue of the broker.

    No acknowledgements: a lost wake-up does no harm, and acknowledging them took half of the consumer's time.
    """
    return Queue(name, Exchange(name, type="direct"), routing_key=name, no_ack=True)


QUEUE = queue_named("agenthost")
"""The default queue."""
WAKE, HOUSEKEEPING = "agenthost.wake_worker", "agenthost.housekeeping"


# Publishing happens within client requests, so it does not retry when the broker is down. The consumer reconnects by itself.
_NO_RETRIES = {"max_retries": 0, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def _broker_options(url: str) -> dict[str, object]:
    if url.startswith("redis"):
        return {
            **_NO_RETRIES,
            "socket_connect_timeout": 1.0,
            "socket_timeout": 2.0,
            "socket_keepalive": True,
            "retry_on_timeout": False,
            "health_check_interval": 30,
            # Has no effect without acknowledgements: no task is delivered again.
            "visibility_timeout": 3600,
            "global_keyprefix": "agenthost.",
        }
    if url.startswith("amqp"):
        return {**_NO_RETRIES, "connect_timeout": 1.0, "read_timeout": 2.0, "write_timeout": 2.0}
    return {}


class _App(Celery):
    """Without results, and without looking for their backend among all installed packages, once in each thread."""

    def _get_backend(self) -> DisabledBackend:
        return DisabledBackend(app=self)


def make_app(broker_url: str) -> Celery:
    app = _App("agenthost")
    app.conf.update(
        broker_url=broker_url,
        broker_transport_options=_broker_options(broker_url),
        broker_connection_timeout=1.0,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A Redis that became a replica, or whose disk is full, refuses commands. The consumer retries until it accepts them.
        broker_channel_error_retry=True,
        broker_heartbeat=30,
        task_publish_retry=False,
        result_backend=None,
        task_ignore_result=True,
        task_acks_late=False,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=QUEUE.name,
        task_queues=[QUEUE],
        task_routes={WAKE: {"queue": QUEUE.name}, HOUSEKEEPING: {"queue": QUEUE.name}},
        task_create_missing_queues=True,
        # Tasks return at once, so they run in the consumer's thread; a pool would only add a thread switch.
        worker_pool="solo",
        task_annotations={
            "*": {"Request": "agenthost.wake_consumer:UnacknowledgedRequest"},
            WAKE: {"Strategy": "agenthost.wake_consumer:wake_up"},
        },
        worker_consumer="agenthost.wake_consumer:Consumer",
        worker_prefetch_multiplier=1,
        # No task is acknowledged late, so none is cancelled; Celery warns while this is not set.
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_send_task_events=False,
        task_send_sent_event=False,
        # `celery inspect` and `celery control`; nobody could send to the in-process broker.
        worker_enable_remote_control=broker_url != memory_broker.URL,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_proc_alive_timeout=60,
        timezone="UTC",
        enable_utc=True,
        beat_max_loop_interval=1,
        beat_schedule={
            "housekeeping": {
                "task": HOUSEKEEPING,
                "schedule": 60.0,
                # A task that waited longer than its period is dropped, because the next one replaces it.
                "options": {"expires": 55, "retry": False, "ignore_result": True},
            }
        },
        imports=["sessions_app.core.turns.tasks"],
    )
    return app


app = make_app(settings.AGENTHOST_BROKER_URL or memory_broker.URL)
app.set_default()


def declare(app: Celery, names: Sequence[str]) -> None:
    """Make queues known to Celery before a consumer takes them, which would declare them with acknowledgements."""
    for name in names:
        if name not in app.amqp.queues:
            app.amqp.queues.add(queue_named(name))


def load_publisher() -> None:
    """Load what Celery loads when the first task is published. Opens no connection."""
    app.finalize(auto=True)
    assert app.amqp.queues is not None
    for name in ("celery.app.task", "celery.events.receiver"):
        importlib.import_module(name)
