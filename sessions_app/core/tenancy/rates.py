"""Rate limits over a sliding window of one minute, counted in Redis for all processes together.

A window stores the times of admitted requests, so no minute has more than the limit, and the time of the next free slot is
known. Without Redis, or while it is unreachable, each process counts for itself: no request fails or waits long for a rate
limit. A call on the event loop (core/base/loop_calls.py) waits for Redis without blocking the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import redis
import redis.asyncio
import redis.asyncio.retry
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from sessions_app.core.base import loop_calls, process_loop

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60
_READ_TIMEOUT = 0.25
"""Seconds to wait for a connection or an answer of Redis; a request is waiting."""
_PROBE_SECONDS = 1.0
"""Seconds between probes of a Redis that did not answer."""
_CONNECTIONS = 32
_MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of one window, identified by ``name``. Windows that are taken together share a {tag}, for Redis Cluster."""

    name: str
    limit: int


@dataclass(frozen=True, slots=True)
class Level:
    """The use of one window. ``seconds``: time until the next slot is free."""

    limit: int
    used: int
    seconds: float

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


class _Windows(Protocol):
    def take(self, bounds: Sequence[Bound], member: str) -> tuple[bool, list[Level]]: ...

    def give_back(self, bounds: Sequence[Bound], member: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """The outcome of ``take``: a slot in every window, or in none (``allowed`` false). ``levels`` are in the bounds' order."""

    allowed: bool
    levels: Sequence[Level]
    bounds: Sequence[Bound]
    member: str
    windows: _Windows


def take(bounds: Sequence[Bound]) -> Taken:
    """Take a slot in each window, or in none if one of them is full."""
    member = secrets.token_hex(8)
    shared = _shared()
    if shared is not None and shared.usable():
        try:
            allowed, levels = shared.take(bounds, member)
        except (redis.RedisError, OSError) as error:
            shared.failed(error)
        else:
            return Taken(allowed, levels, bounds, member, shared)
    allowed, levels = _local.take(bounds, member)
    return Taken(allowed, levels, bounds, member, _local)


def give_back(taken: Taken) -> None:
    """Return the slots of a request that was admitted but failed."""
    if not taken.allowed:
        return
    try:
        taken.windows.give_back(taken.bounds, taken.member)
    except (redis.RedisError, OSError) as error:
        assert isinstance(taken.windows, RedisWindows)
        taken.windows.failed(error)


def _seconds_until_free(moments: Sequence[float], limit: int, now: float) -> float:
    """The time until enough old entries have left the window to free a slot."""
    index = max(0, len(moments) - limit)
    return moments[index] + WINDOW_SECONDS - now if index < len(moments) else WINDOW_SECONDS


class LocalWindows:
    """The windows of this process, used without Redis."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[str, deque[tuple[float, str]]] = {}

    def take(self, bounds: Sequence[Bound], member: str) -> tuple[bool, list[Level]]:
        with self._lock:
            now = self._clock()
            if len(self._windows) > _MOST_WINDOWS:
                for name in list(self._windows):
                    self._window(name, now)
                self._windows = {name: window for name, window in self._windows.items() if window}
            allowed = all(len(self._window(bound.name, now)) < bound.limit for bound in bounds)
            levels = []
            for bound in bounds:
                window = self._window(bound.name, now)
                if allowed:
                    window.append((now, member))
                moments = [moment for moment, _ in window]
                levels.append(Level(bound.limit, len(moments), _seconds_until_free(moments, bound.limit, now)))
            return allowed, levels

    def _window(self, name: str, now: float) -> deque[tuple[float, str]]:
        window = self._windows.setdefault(name, deque())
        while window and window[0][0] <= now - WINDOW_SECONDS:
            window.popleft()
        return window

    def give_back(self, bounds: Sequence[Bound], member: str) -> None:
        with self._lock:
            for bound in bounds:
                window = self._windows.get(bound.name, deque())
                self._windows[bound.name] = deque(each for each in window if each[1] != member)


_TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = tonumber(ARGV[1])
local allowed = 1
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
  if redis.call('ZCARD', key) >= tonumber(ARGV[i + 2]) then allowed = 0 end
end
local answer = {allowed}
for i, key in ipairs(KEYS) do
  if allowed == 1 then
    redis.call('ZADD', key, now, ARGV[2])
    redis.call('PEXPIRE', key, window)
  end
  local used = redis.call('ZCARD', key)
  local index = math.max(0, used - tonumber(ARGV[i + 2]))
  local next = redis.call('ZRANGE', key, index, index, 'WITHSCORES')
  answer[#answer + 1] = used
  answer[#answer + 1] = next[2] and tonumber(next[2]) + window - now or window
end
return answer
"""


class RedisWindows:
    """The windows that all processes share through Redis."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._of_loops: dict[asyncio.AbstractEventLoop, _LoopClient] = {}
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_READ_TIMEOUT,
            socket_timeout=_READ_TIMEOUT,
            socket_connect_timeout=_READ_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )
        self._client = redis.Redis(connection_pool=pool)
        self._take = self._client.register_script(_TAKE)
        self._lock = threading.Lock()
        self._probe: threading.Thread | None = None
        self._closed = threading.Event()

    def usable(self) -> bool:
        """False from a failure until a probe succeeds: no request waits for a Redis that is known to hang."""
        return self._probe is None

    def failed(self, error: Exception) -> None:
        with self._lock:
            if self._probe is not None or self._closed.is_set():
                return
            self._probe = threading.Thread(target=self._probe_until_it_answers, name="rates-probe", daemon=True)
            self._probe.start()
        log.warning("rate_limits_per_process: Redis does not answer (%s)", type(error).__name__)

    def _probe_until_it_answers(self) -> None:
        try:
            while not self._closed.wait(_PROBE_SECONDS):
                try:
                    self._client.ping()
                except (redis.RedisError, OSError):
                    continue
                log.info("rate_limits_shared_again: Redis answers")
                break
        finally:
            # Also after an unexpected error: the next request then tries Redis.
            self._probe = None

    def take(self, bounds: Sequence[Bound], member: str) -> tuple[bool, list[Level]]:
        arguments = [WINDOW_SECONDS * 1000, member, *(bound.limit for bound in bounds)]
        keys = [_key(bound) for bound in bounds]
        if loop_calls.current() is None:
            answer: Any = self._take(keys=keys, args=cast(Any, arguments))
        else:
            answer = loop_calls.wait_for(self._of_loop().take(keys, arguments))
        allowed, *pairs = cast(list[int], answer)
        levels = [
            Level(bound.limit, used, wait / 1000) for bound, used, wait in zip(bounds, pairs[::2], pairs[1::2], strict=True)
        ]
        return bool(allowed), levels

    def give_back(self, bounds: Sequence[Bound], member: str) -> None:
        if loop_calls.current() is not None:
            loop_calls.wait_for(self._of_loop().give_back([_key(bound) for bound in bounds], member))
            return
        with self._client.pipeline(transaction=False) as pipeline:
            for bound in bounds:
                pipeline.zrem(_key(bound), member)
            pipeline.execute()

    def answers(self) -> bool:
        # Twice: one late answer on a busy machine is no outage.
        for _ in range(2):
            with contextlib.suppress(redis.RedisError, OSError):
                self._client.ping()
                return True
        return False

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            probe = self._probe
        if probe is not None:
            probe.join()
        self._client.close()
        self._client.connection_pool.disconnect()
        for client in list(self._of_loops.values()):
            client.close_from_elsewhere()

    def _of_loop(self) -> _LoopClient:
        loop = asyncio.get_running_loop()
        found = self._of_loops.get(loop)
        if found is None:
            found = self._of_loops[loop] = _LoopClient(loop, self._url, lambda: self._of_loops.pop(loop, None))
            process_loop.attach(loop, found.close)
        return found


class _LoopClient:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, closed: Callable[[], object]) -> None:
        self._loop, self._closed = loop, closed
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_READ_TIMEOUT,
            socket_timeout=_READ_TIMEOUT,
            socket_connect_timeout=_READ_TIMEOUT,
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        )
        self._client = redis.asyncio.Redis(connection_pool=pool)
        self._take = self._client.register_script(_TAKE)

    async def take(self, keys: list[str], arguments: list[Any]) -> Any:
        return await self._take(keys=keys, args=arguments)

    async def give_back(self, keys: list[str], member: str) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.zrem(key, member)
            await pipeline.execute()

    async def close(self) -> None:
        self._closed()
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    def close_from_elsewhere(self) -> None:
        """Close in any thread but the loop's own."""
        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self.close(), self._loop).result()
        else:
            self._closed()


def _key(bound: Bound) -> str:
    return f"agenthost:rate:{bound.name}"


_local = LocalWindows()
_lock = threading.Lock()
_by_url: dict[str, RedisWindows] = {}


def _shared() -> RedisWindows | None:
    url: str | None = settings.AGENTHOST_REDIS_URL
    if url is None:
        return None
    found = _by_url.get(url)
    if found is None:
        with _lock:
            found = _by_url.setdefault(url, RedisWindows(url))
    return found


def redis_answers() -> bool | None:
    """Whether Redis answers now, within a second; None if this server uses none. Not for calls on an event loop."""
    shared = _shared()
    return None if shared is None else shared.answers()


def reset() -> None:
    """Close the connections and clear this process's windows."""
    with _lock:
        for each in _by_url.values():
            each.close()
        _by_url.clear()
    _local._windows.clear()
