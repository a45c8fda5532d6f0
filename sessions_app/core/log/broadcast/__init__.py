"""Telling other processes: what was stored, to a tenant's listeners; what to look at, to a worker.

The one user of the channel layer. It promises little: a message may be lost, come twice, or late.
Whoever listens has the journal or the turn's row to go by.
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

__all__ = ["Heard", "announce", "carrier_settled", "carrier_up", "dropped", "listen_tenant", "listen_worker", "tell_worker"]

log = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.01

_layer_lock = threading.Lock()
_dropped = 0
_failure_logged = False


def announce(announcements: Sequence[Announcement]) -> None:
    """Tell the tenants' listeners in every process. From any thread or loop; never waits, never raises."""
    try:
        messages: dict[int, list[dict[str, Any]]] = {}
        for announcement in announcements:
            messages.setdefault(announcement.tenant, []).append(wire.to_message(announcement))
        layer = _layer()
        for tenant, of_tenant in messages.items():
            if not layer.publish(_tenant_group(tenant), of_tenant):
                _count_dropped()
    except Exception as error:
        # What is announced has been stored: nothing that goes wrong here may become its writer's error.
        _count_failure(error)


def notify_worker(worker: str, message: dict[str, Any]) -> None:
    """Tell a worker, if it lives and the carrier is up. From any thread or loop; never waits, never raises."""
    try:
        if not _layer().publish(_worker_group(worker), [{"type": "worker.told", "of": message}]):
            _count_dropped()
    except Exception as error:
        _count_failure(error)


@asynccontextmanager
async def listen_worker(worker: str, callback: Callable[[dict[str, Any]], None]) -> AsyncIterator[None]:
    """Call ``callback`` in this loop with whatever the worker is told, until the block is left."""
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
                    log.exception("a message to worker %s was not taken", worker)

    listening = supervision.task(listen(), "worker-listener")
    try:
        yield
    finally:
        listening.cancel()
        layer.forget(channel)
        await asyncio.wait([listening])


class TenantListener:
    """Hears what is announced to one tenant, from the moment ``listen_tenant`` gave it."""

    def __init__(self, layer: ChannelLayer, channel: str) -> None:
        self._layer, self._channel = layer, channel

    async def receive(self) -> Received:
        """Wait for announcements, then all that have come, up to a bound."""
        messages, lost = await self._layer.receive_many(self._channel)
        return wire.from_messages(messages, missed=lost)


@asynccontextmanager
async def listen_tenant(tenant: int) -> AsyncIterator[TenantListener]:
    """Entered once everything announced from now on will be heard (or the carrier is down: then the
    listener hears that it missed something as soon as it is up)."""
    layer = _layer()
    channel = await layer.new_channel("feed")
    try:
        await layer.group_add(_tenant_group(tenant), channel)
        yield TenantListener(layer, channel)
    finally:
        layer.forget(channel)


def pubsub_up() -> bool:
    """Whether announcements get through. The first call may say no while the connection is being made."""
    return _layer().pubsub_up()


async def pubsub_up_within(within: float) -> bool:
    """The same, but in a fresh process first waits for the attempt to connect, at most so many seconds."""
    layer = _layer()
    until = time.monotonic() + within
    while not layer.pubsub_tried() and time.monotonic() < until:  # noqa: ASYNC110  # a carrier has no loop in common with us
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    return layer.pubsub_up()


def dropped_messages() -> int:
    """How many messages this process could not hand to the carrier."""
    return _dropped


def _layer() -> ChannelLayer:
    layer = channel_layers.backends.get(DEFAULT_CHANNEL_LAYER)
    if layer is None:
        # Two threads must not make two layers: what one announces would not reach the other's listeners.
        with _layer_lock:
            layer = channel_layers[DEFAULT_CHANNEL_LAYER]
    return cast("ChannelLayer", layer)


def _tenant_group(tenant: int) -> str:
    return f"tenant.{tenant}"


def _worker_group(worker: str) -> str:
    # A worker's name may hold characters that a group's name may not.
    return f"worker.{hashlib.blake2s(worker.encode(), digest_size=16).hexdigest()}"


def _count_dropped() -> None:
    global _dropped
    _dropped += 1


def _count_failure(error: Exception) -> None:
    global _failure_logged
    _count_dropped()
    if not _failure_logged:
        _failure_logged = True
        log.error("a message could not be sent; later failures are only counted", exc_info=error)
