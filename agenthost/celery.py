"""The Celery application. Its tasks only wake somebody up; what is to be done stands in the database."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agenthost.settings")

from celery import Celery
from django.conf import settings
from kombu import Exchange, Queue

from agenthost import memory_broker, redis_broker  # noqa: F401 - naming it makes it the one for redis:

# Nothing is acknowledged: a task that is lost costs nothing, and keeping count of them took half of the consumer's time.
QUEUE = Queue("agenthost", Exchange("agenthost", type="direct"), routing_key="agenthost", no_ack=True)
WAKE, HOUSEKEEPING = "agenthost.wake_worker", "agenthost.housekeeping"


# Whoever publishes is answering a client: one look at a broker that is away, no second one after a pause.
# The consumer has its own, patient way to connect again.
_ONE_LOOK = {"max_retries": 0, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def _broker_options(url: str) -> dict[str, object]:
    if url.startswith("redis"):
        return {
            **_ONE_LOOK,
            "socket_connect_timeout": 1.0,
            "socket_timeout": 2.0,
            "socket_keepalive": True,
            "retry_on_timeout": False,
            "health_check_interval": 30,
            # Tasks are acknowledged when they are received, so nothing is ever given out a second time.
            "visibility_timeout": 3600,
            "global_keyprefix": "agenthost.",
        }
    if url.startswith("amqp"):
        return {**_ONE_LOOK, "connect_timeout": 1.0, "read_timeout": 2.0, "write_timeout": 2.0}
    return {}


broker_url = settings.AGENTHOST_BROKER_URL or memory_broker.URL

app = Celery("agenthost")
app.conf.update(
    broker_url=broker_url,
    broker_transport_options=_broker_options(broker_url),
    broker_connection_timeout=1.0,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # A Redis that became a replica, or whose disk is full, refuses the consumer's command. Its workers wait for a better one.
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
    # Tasks run where they are received: they return at once, and a thread of their own would only be one more to wake.
    worker_pool="solo",
    task_annotations={"*": {"Request": "agenthost.worker_services:Uncounted"}},
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_send_task_events=False,
    task_send_sent_event=False,
    worker_enable_remote_control=False,
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
            # A backlog of these is worth nothing: one that waited longer than its period is dropped.
            "options": {"expires": 55, "retry": False, "ignore_result": True},
        }
    },
    imports=["sessions_app.core.turns.tasks"],
)
app.set_default()
