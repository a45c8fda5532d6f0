"""Messages between processes: announcements of stored events to a tenant's listeners, notifications to a worker.

The only user of the channel layer. Messages may be lost, duplicated or late: listeners rely on the journal or on the turn's
row.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from channels import DEFAULT_CHANNEL_LAYER
from channels.layers import channel_layers

from sessions_app.core.base import supervision
from sessions_app.core.log.broadcast import wire
from sessions_app.core.log.broadcast.layer import ChannelLayer
from sessions_app.core.log.broadcast.wire import Received
from sessions_app.core.log.journal.types import Announcement

__all__ = [
    "Received",
    "announce",
    "dropped_messages",
    "listen_tenant",
    "listen_worker",
    "notify_worker",
    "pubsub_up",
    "pubsub_up_within",
]

log = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.01

_layer_lock = threading.Lock()
_dropped = 0
_failure_logged = False


def announce(announcements: Sequence[Announcement]) -> None:
    """Send announcements to the tenants' listeners in every process. From any thread or loop; never waits, never raises."""
    try:
        messages: dict[int, list[dict[str, Any]]] = {}
        for announcement in announcements:
            messages.setdefault(announcement.tenant, []).append(wire.to_message(announcement))
        layer = _layer()
        for tenant, of_tenant in messages.items():
            if not layer.publish(_tenant_group(tenant), of_tenant):
                _count_dropped()
    except Exception as error:
        # The events are stored already: a failure here must not become an error of their writer.
        _count_failure(error)


def notify_worker(worker: str, message: dict[str, Any]) -> None:
    """Send a message to a worker; it may be lost. From any thread or loop; never waits, never raises."""
    try:
        if not _layer().publish(_worker_group(worker), [{"type": "worker.notified", "of": message}]):
            _count_dropped()
    except Exception as error:
        _count_failure(error)


@asynccontextmanager
async def listen_worker(worker: str, callback: Callable[[dict[str, Any]], None]) -> AsyncIterator[None]:
    """Within the block, call ``callback`` in this loop with each message to the worker."""
    layer = _layer()
    channel = await layer.new_channel("worker")
    await layer.group_add(_worker_group(worker), channel)

    async def listen() -> None:
        while True:
            messages, _ = await layer.receive_many(channel)
            for message in messages:
                try:
                    callback(message["of"])
                except Exception:
                    log.exception("worker_message_failed worker=%s", worker)

    listening = supervision.task(listen(), "worker-listener")
    try:
        yield
    finally:
        listening.cancel()
        layer.forget(channel)
        await asyncio.wait([listening])


class TenantListener:
    """Receives a tenant's announcements from the moment it was returned by ``listen_tenant``."""

    def __init__(self, layer: ChannelLayer, channel: str) -> None:
        self._layer, self._channel = layer, channel

    async def receive(self) -> Received:
        """Wait for announcements and return all that have arrived, up to a limit."""
        messages, lost = await self._layer.receive_many(self._channel)
        return wire.from_messages(messages, missed=lost)


@asynccontextmanager
async def listen_tenant(tenant: int) -> AsyncIterator[TenantListener]:
    """A listener that receives all later announcements once the block is entered.

    While the pub/sub transport is down, the block is entered at once, and the listener is notified of a loss when it is up.
    """
    layer = _layer()
    channel = await layer.new_channel("feed")
    try:
        await layer.group_add(_tenant_group(tenant), channel)
        yield TenantListener(layer, channel)
    finally:
        layer.forget(channel)


def pubsub_up() -> bool:
    """Whether the pub/sub transport is connected. The first call may return False while it is still connecting."""
    return _layer().pubsub_up()


async def pubsub_up_within(within: float) -> bool:
    """``pubsub_up``, but in a new process it waits up to ``within`` seconds for the first attempt to connect."""
    layer = _layer()
    until = time.monotonic() + within
    while not layer.pubsub_tried() and time.monotonic() < until:  # noqa: ASYNC110  # the transport has its own loop
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    return layer.pubsub_up()


def dropped_messages() -> int:
    """The number of messages that this process could not publish."""
    return _dropped


def _layer() -> ChannelLayer:
    layer = channel_layers.backends.get(DEFAULT_CHANNEL_LAYER)
    if layer is None:
        # Two threads must not create two layers: announcements of one would not reach the other's listeners.
        with _layer_lock:
            layer = channel_layers[DEFAULT_CHANNEL_LAYER]
    return cast("ChannelLayer", layer)


def _tenant_group(tenant: int) -> str:
    return f"tenant.{tenant}"


def _worker_group(worker: str) -> str:
    # Worker names may contain characters that group names must not.
    return f"worker.{hashlib.blake2s(worker.encode(), digest_size=16).hexdigest()}"


def _count_dropped() -> None:
    global _dropped
    _dropped += 1


def _count_failure(error: Exception) -> None:
    global _failure_logged
    _count_dropped()
    if not _failure_logged:
        _failure_logged = True
        log.error("broadcast_failed: later failures are only counted", exc_info=error)
