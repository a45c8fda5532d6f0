"""Limits on open streams and connections, and closing them when their key is revoked or expires. Used by both protocols.

Each loop reads the keys of all its open streams and connections with one statement, their short-lived tokens with another one,
and none while nothing is open. A key that was revoked, has expired or belongs to a suspended tenant is not in the result, and
neither is a token that has ended with its key or before.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import Error as DatabaseError

from sessions_app.core.base import database, metrics, supervision
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotReady, QuotaExceeded
from sessions_app.core.base.periodic_tasks import PeriodicTask
from sessions_app.core.tenancy import credentials
from sessions_app.core.tenancy.quotas import Quota

_CHECK_SECONDS = 0.5
"""Streams and connections end within a second after their key; half of that is left for the statement."""
_RETRY_AFTER = 5

_LIMITS = {
    Quota.STREAMS_AT_ONCE: ("AGENTHOST_AAP_STREAMS_PER_KEY", "AGENTHOST_AAP_STREAMS"),
    Quota.CONNECTIONS_AT_ONCE: ("AGENTHOST_AHP_CONNECTIONS_PER_KEY", "AGENTHOST_AHP_CONNECTIONS"),
}
"""Settings: the limit of a key (counted together with the keys it was rotated from) and of a tenant; both per process."""


# --- limits ------------------------------------------------------------------------------------

Level = tuple[Quota, str, int]
_open: Counter[Level] = Counter()
_open_lock = threading.Lock()
_released: deque[tuple[Level, Level]] = deque()
"""Released slots that are still counted: the garbage collector may release one while ``_open_lock`` is held."""


class Slot:
    """One of the streams or connections that a caller may have open. It is freed by ``release`` or with the object.

    ``on_end``: called when the key has ended, while the slot is watched (``watching``). ``write``: sends a chunk of the
    stream without its task, if it returns True.
    """

    ended = False
    """Whether the key has ended; always False here, because an unwatched slot is not checked."""

    def __init__(self, quota: Quota, caller: Caller) -> None:
        """Raises QuotaExceeded if the key or its tenant has no slot left in this process."""
        self.caller = caller
        self.is_kept = False
        self.on_end: Callable[[], None] | None = None
        self.write: Callable[[bytes], bool] | None = None
        levels = ((quota, "key", caller.line), (quota, "tenant", caller.tenant))
        with _open_lock:
            _free_released()
            for level, setting in zip(levels, _LIMITS[quota], strict=True):
                limit: int = getattr(settings, setting)
                if _open[level] >= limit:
                    metrics.REFUSALS.labels(quota).inc()
                    raise QuotaExceeded(quota, limit, _RETRY_AFTER, of_key=level[1] == "key")
            _open.update(levels)
        self._release = weakref.finalize(self, _released.append, levels)
        self._release.atexit = False

    def keep(self) -> Slot:
        """Keep the slot after its ``with`` block; the stream releases it."""
        self.is_kept = True
        return self

    def release(self) -> None:
        """Free the slot. Safe to call from any thread and more than once."""
        self._release()


def _free_released() -> None:
    while _released:
        for level in _released.popleft():
            _open[level] -= 1
            if not _open[level]:
                del _open[level]


def open_now(quota: Quota) -> int:
    """How many slots this process has given for streams or connections."""
    with _open_lock:
        _free_released()
        return sum(number for (of, level, _), number in _open.items() if of == quota and level == "tenant")


metrics.STREAMS.set_function(partial(open_now, Quota.STREAMS_AT_ONCE))
metrics.CONNECTIONS.set_function(partial(open_now, Quota.CONNECTIONS_AT_ONCE))


@contextmanager
def slot(quota: Quota, caller: Caller) -> Iterator[Slot]:
    """A slot that is released at the end of the block, unless ``keep`` was called."""
    taken = Slot(quota, caller)
    try:
        yield taken
    except BaseException:
        taken.release()
        raise
    if not taken.is_kept:
        taken.release()


# --- the end of keys -----------------------------------------------------------------------------------


class Watched:
    """An open stream or connection in this loop. ``caller`` has the limits that its key had at the last check."""

    __slots__ = ("_on_end", "_slot", "_watch", "caller", "ended")

    def __init__(self, slot: Slot, watch: _Watch) -> None:
        self.caller = slot.caller
        self.ended = False
        self._slot, self._watch = slot, watch
        self._on_end: Callable[[], None] | None = None

    def on_end(self, call: Callable[[], None]) -> None:
        """Call this, in the loop, when the key has ended; immediately if it has ended already."""
        self._on_end = call
        if self.ended:
            call()

    async def check(self) -> None:
        """Check the key now. If the database does not answer, the next periodic check does it."""
        with contextlib.suppress(DatabaseError, NotReady):
            await self._watch.check([self])

    def update(self, caller: Caller | None) -> None:
        """``caller``: the result of a check; None if the key has ended."""
        if caller is not None:
            self.caller = caller
        elif not self.ended:
            self.ended = True
            for call in (self._on_end, self._slot.on_end):
                if call is not None:
                    call()

    def end(self) -> None:
        """Call nothing from now on: what would be called refers to this object."""
        self._on_end = self._slot.on_end = self._slot.write = None


class _Watch:
    """The watch of one loop."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._checking: asyncio.Task[None] | None = None
        self._task = PeriodicTask("key watch", self._check_all)

    def enter(self, watched: Watched) -> None:
        self._watched.add(watched)
        if self._checking is None:
            self._checking = supervision.task(self._check_forever(), "key-watch")

    def leave(self, watched: Watched) -> None:
        self._watched.discard(watched)
        if not self._watched and self._checking is not None:
            self._checking.cancel()
            self._checking = None

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            await self._task.attempt()

    async def _check_all(self) -> None:
        """While the database is down, keys stay valid: nothing can be done with them either."""
        await self.check(list(self._watched))

    async def check(self, watched: list[Watched]) -> None:
        found = await database.run(credentials.current, [each.caller for each in watched])
        for each in watched:
            each.update(found.get(credentials.identity(each.caller)))


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()
_watches_lock = threading.Lock()


class watching:  # noqa: N801 - used as a function: a class takes less memory than a generator
    """Check the slot's key periodically within the block, in the running loop; the slot is released at its end."""

    __slots__ = ("_slot", "_watch", "_watched")

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    def __enter__(self) -> Watched:
        loop = asyncio.get_running_loop()
        with _watches_lock:
            watch = _watches.get(loop)
            if watch is None:
                watch = _watches[loop] = _Watch()
        self._watch = watch
        self._watched = Watched(self._slot, self._watch)
        self._watch.enter(self._watched)
        return self._watched

    def __exit__(self, *_error: object) -> None:
        self._watch.leave(self._watched)
        self._watched.end()
        self._slot.release()
