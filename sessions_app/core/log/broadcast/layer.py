"""The channel layer: Channels' interface over a pub/sub transport (local.py, redis.py).

Joining a group waits for the transport's acknowledgement. Messages are JSON objects, delivered at most once; a receiver is
notified when its channel lost messages.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Sequence
from typing import Any

import orjson
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

from sessions_app.core.log.broadcast.local import LocalPubSub
from sessions_app.core.log.broadcast.mailbox import Mailbox
from sessions_app.core.log.broadcast.pubsub import PubSub
from sessions_app.core.log.broadcast.redis import RedisPubSub, database_number

LOST = "broadcast.lost"
"""The type of the message that marks lost messages, after an overflow or an outage of the transport."""


class ChannelLayer(BaseChannelLayer):  # type: ignore[misc]  # channels ships no types
    """A channel layer within this process (``url`` None) or over Redis.

    Deployments that share a Redis need different database numbers or prefixes (publishing ignores the number, so it is part of
    every topic's name). Group members are channels of this process. A channel without "!" is received by any process that waits
    for it, and is not buffered while none does. All methods may be called from any thread or loop.
    """

    extensions = ("groups", "flush")

    def __init__(
        self,
        url: str | None = None,
        prefix: str = "agenthost",
        capacity: int = 1000,
        max_bytes: int = 8 * 1024 * 1024,
        expiry: float = 60,
    ) -> None:
        super().__init__(expiry=expiry, capacity=capacity)
        self._max_bytes = max_bytes
        self._process = secrets.token_hex(6)
        self._lock = threading.Lock()
        self._boxes: dict[str, Mailbox] = {}
        # Replaced, never changed: the transport reads it without the lock.
        self._members: dict[str, dict[str, Mailbox]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._channel_topics: set[str] = set()
        if url is None:
            self._topic_prefix = f"{prefix}."
            self._pubsub: PubSub = LocalPubSub(self._deliver)
        else:
            self._topic_prefix = f"{prefix}.{database_number(url)}."
            self._pubsub = RedisPubSub(url, self._deliver, self._interrupted)
        self._channel_prefix = f"{self._topic_prefix}channel."

    # Sending

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send to one channel of any process. ChannelFull can be raised only for channels of this process."""
        self.require_valid_channel_name(channel)
        payload = orjson.dumps([message])
        if self._is_own(channel):
            box = self._boxes.get(channel)
            if box is not None and not box.put(payload):
                raise ChannelFull(channel)
        else:
            self._pubsub.publish(self._channel_topic(channel), channel.encode() + b"\n" + payload)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.publish(group, [message])

    async def group_send_many(self, group: str, messages: Sequence[dict[str, Any]]) -> None:
        """Send several messages at once: they arrive together and in order, or not at all."""
        self.publish(group, messages)

    def publish(self, group: str, messages: Sequence[dict[str, Any]]) -> bool:
        """``group_send_many`` for callers without a loop. Never waits; False if the messages were dropped."""
        self.require_valid_group_name(group)
        topic = self._group_topic(group)
        if not messages or not self._pubsub.may_have_subscribers(topic):
            return True
        return self._pubsub.publish(topic, orjson.dumps(messages))

    # Receiving

    async def new_channel(self, prefix: str = "specific") -> str:
        """Create a channel of this process; all processes can send to its name."""
        channel = f"{prefix}.{self._process}!{secrets.token_hex(8)}"
        self.require_valid_channel_name(channel)
        with self._lock:
            self._boxes[channel] = self._new_box()
        await self._subscribe_channel(channel)
        return channel

    async def receive(self, channel: str) -> dict[str, Any]:
        """Wait for the channel's next message; it has the type ``broadcast.lost`` where messages were lost."""
        message = await (await self._box_of(channel)).take_one()
        return {"type": LOST} if message is None else message

    async def receive_many(self, channel: str) -> tuple[list[dict[str, Any]], bool]:
        """Wait for messages and return all that have arrived, up to a limit, and whether some were lost after them."""
        return await (await self._box_of(channel)).take()

    def forget(self, channel: str) -> None:
        """Remove a channel of this process."""
        with self._lock:
            self._forget(channel)

    # Groups

    async def group_add(self, group: str, channel: str) -> None:
        """Join a group; returns when all later messages to it will arrive.

        While the transport is down it returns at once: the group is joined before the transport is up again, and the channel is
        notified of a loss then.
        """
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        if "!" in channel and not self._is_own(channel):
            raise ValueError(f"channel {channel} belongs to another process")
        topic = self._group_topic(group)
        with self._lock:
            box = self._boxes.setdefault(channel, self._new_box())
            self._members[topic] = {**self._members.get(topic, {}), channel: box}
            self._topics_of.setdefault(channel, set()).add(topic)
            joined = self._pubsub.subscribe(topic)
        await asyncio.wrap_future(joined)

    async def group_discard(self, group: str, channel: str) -> None:
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        with self._lock:
            self._leave(self._group_topic(group), channel)

    # The layer as a whole

    def pubsub_up(self) -> bool:
        return self._pubsub.up()

    def pubsub_tried(self) -> bool:
        return self._pubsub.tried()

    async def flush(self) -> None:
        """Remove all channels and groups of this process."""
        with self._lock:
            for topic in [*self._members, *self._channel_topics]:
                self._pubsub.unsubscribe(topic)
            self._boxes, self._members, self._topics_of = {}, {}, {}
            self._channel_topics.clear()

    def close(self) -> None:
        """Close the transport. The layer cannot be used afterwards."""
        self._pubsub.close()

    # Called by the transport, from any thread

    def _deliver(self, topic: str, payload: bytes) -> None:
        members = self._members.get(topic)
        if members is not None:
            for channel, box in members.items():
                if not box.put(payload) and box.idle_seconds() > self.expiry:
                    self.forget(channel)
        elif topic.startswith(self._channel_prefix):
            name, _, message = payload.partition(b"\n")
            box_of_name = self._boxes.get(name.decode())
            if box_of_name is not None:
                box_of_name.put(message)

    def _interrupted(self) -> None:
        with self._lock:
            boxes = list(self._boxes.values())
        for box in boxes:
            box.mark_lost()

    # Names

    def _is_own(self, channel: str) -> bool:
        return f".{self._process}!" in channel

    def _group_topic(self, group: str) -> str:
        return f"{self._topic_prefix}group.{group}"

    def _channel_topic(self, channel: str) -> str:
        return f"{self._channel_prefix}{self.non_local_name(channel)}"

    def _new_box(self, *, lost: bool = False) -> Mailbox:
        return Mailbox(self.capacity, self._max_bytes, lost=lost)

    async def _box_of(self, channel: str) -> Mailbox:
        known = self._boxes.get(channel)
        if known is not None and self._is_own(channel):
            return known
        self.require_valid_channel_name(channel)
        with self._lock:
            box = self._boxes.get(channel)
            if box is None:
                # A channel of this process without a box was removed, and messages to it since then are lost.
                box = self._boxes[channel] = self._new_box(lost=self._is_own(channel))
        if not self._is_own(channel):
            await self._subscribe_channel(channel)
        return box

    async def _subscribe_channel(self, channel: str) -> None:
        topic = self._channel_topic(channel)
        with self._lock:
            if topic in self._channel_topics:
                return
            subscribed = self._pubsub.subscribe(topic)
        await asyncio.wrap_future(subscribed)
        self._channel_topics.add(topic)

    def _leave(self, topic: str, channel: str) -> None:
        members = dict(self._members.get(topic, {}))
        if members.pop(channel, None) is None:
            return
        self._topics_of[channel].discard(topic)
        if members:
            self._members[topic] = members
        else:
            del self._members[topic]
            # Under the lock, so that the transport gets joins and leaves in their order.
            self._pubsub.unsubscribe(topic)

    def _forget(self, channel: str) -> None:
        self._boxes.pop(channel, None)
        for topic in list(self._topics_of.get(channel, ())):
            self._leave(topic, channel)
        self._topics_of.pop(channel, None)
