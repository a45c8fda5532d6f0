"""The pub/sub transport within one process, used without Redis."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from sessions_app.core.log.broadcast.pubsub import Deliver


class LocalPubSub:
    """Delivers payloads directly. It is always up, and subscriptions are active immediately."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._lock = threading.Lock()
        self._topics: frozenset[str] = frozenset()

    def publish(self, topic: str, payload: bytes) -> bool:
        if topic in self._topics:
            self._deliver(topic, payload)
        return True

    def may_have_subscribers(self, topic: str) -> bool:
        return topic in self._topics

    def subscribe(self, topic: str) -> Future[bool]:
        with self._lock:
            self._topics = self._topics | {topic}
        subscribed: Future[bool] = Future()
        subscribed.set_result(True)
        return subscribed

    def unsubscribe(self, topic: str) -> None:
        with self._lock:
            self._topics = self._topics - {topic}

    def up(self) -> bool:
        return True

    def tried(self) -> bool:
        return True

    def close(self) -> None:
        self._topics = frozenset()
