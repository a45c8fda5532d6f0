"""Limits of open streams and connections, and their end when their key ends. Shared by both protocols.

Each loop reads the keys of everything that is open in it with one statement, and none while nothing is open. A key that
was revoked, has expired or belongs to a suspended tenant is not found any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import Error as DatabaseError

from sessions_app.core.base import database, supervision
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotReady, QuotaExceeded
from sessions_app.core.base.periodic_tasks import PeriodicTask
from sessions_app.core.tenancy import keys
from sessions_app.core.tenancy.quotas import Quota

_LOOK_SECONDS = 0.5
"""Streams and connections end within a second of their key; half of it is left for the statement."""
_RETRY_AFTER = 5

_LIMITS = {
    Quota.STREAMS_AT_ONCE: ("AGENTHOST_AAP_STREAMS_PER_KEY", "AGENTHOST_AAP_STREAMS"),
    Quota.CONNECTIONS_AT_ONCE: ("AGENTHOST_AHP_CONNECTIONS_PER_KEY", "AGENTHOST_AHP_CONNECTIONS"),
}
"""Settings: the limit of a key, with those it was rotated from, and of a tenant; both per process."""


# --- limits ------------------------------------------------------------------------------------

Level = tuple[Quota, str, int]
_open: Counter[Level] = Counter()
_open_lock = threading.Lock()
_released: deque[tuple[Level, Level]] = deque()
"""Slots that are free again but still counted: the garbage collector may free one while another is being taken."""


class Slot:
    """One of the streams or connections that a caller may have open. ``release`` frees it, or the end of the object.

    ``on_end``: called when the key has ended, while the slot is watched.
    """

    ended = False
    """Whether the key has ended: a slot by itself is not watched."""

    def __init__(self, quota: Quota, caller: Caller) -> None:
        """QuotaExceeded if the key or its tenant has no slot left in this process."""
        self.caller = caller
        self.is_kept = False
        self.on_end: Callable[[], None] | None = None
        levels = ((quota, "key", caller.line), (quota, "tenant", caller.tenant))
        with _open_lock:
            _free_released()
            for level, setting in zip(levels, _LIMITS[quota], strict=True):
                limit: int = getattr(settings, setting)
                if _open[level] >= limit:
                    raise QuotaExceeded(quota, limit, _RETRY_AFTER, of_key=level[1] == "key")
            _open.update(levels)
        self._release = weakref.finalize(self, _released.append, levels)
        self._release.atexit = False

    def keep(self) -> Slot:
        """Keep the slot beyond its ``with`` block: its stream releases it."""
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


@contextmanager
def slot(quota: Quota, caller: Caller) -> Iterator[Slot]:
    """A slot that is released at the end of the block, unless it was kept."""
    taken = Slot(quota, caller)
    try:
        yield taken
    except BaseException:
        taken.release()
        raise
    if not taken.is_kept:
        taken.release()


# --- until the key ends --------------------------------------------------------------------------------


class Watched:
    """An open stream or connection in this loop. ``caller`` has the limits that its key had at the last look."""

    def __init__(self, slot: Slot, watch: _Watch) -> None:
        self.caller = slot.caller
        self.ended = False
        self._slot, self._watch = slot, watch
        self._on_end: Callable[[], None] | None = None

    def on_end(self, call: Callable[[], None]) -> None:
        """Call this, in the loop, when the key has ended; at once if it has."""
        self._on_end = call
        if self.ended:
            call()

    async def look(self) -> None:
        """Look at the key now. Without the database the next of the regular looks does it."""
        with contextlib.suppress(DatabaseError, NotReady):
            await self._watch.look([self])

    def found(self, caller: Caller | None) -> None:
        if caller is not None:
            self.caller = caller
        elif not self.ended:
            self.ended = True
            for call in (self._on_end, self._slot.on_end):
                if call is not None:
                    call()


class _Watch:
    """The watch of one loop."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._looking: asyncio.Task[None] | None = None
        self._duty = PeriodicTask("key watch", self._look_at_all)

    def enter(self, watched: Watched) -> None:
        self._watched.add(watched)
        if self._looking is None:
            self._looking = supervision.task(self._look_forever(), "key-watch")

    def leave(self, watched: Watched) -> None:
        self._watched.discard(watched)
        if not self._watched and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._duty.attempt()

    async def _look_at_all(self) -> None:
        """Without the database keys stay as good as they were: nothing can be done with them either."""
        await self.look(list(self._watched))

    async def look(self, watched: list[Watched]) -> None:
        found = await database.run(keys.callers, {each.caller.key for each in watched})
        for each in watched:
            each.found(found.get(each.caller.key))


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()
_watches_lock = threading.Lock()


@contextmanager
def watching(slot: Slot) -> Iterator[Watched]:
    """Watch the slot's key within the block, in the running loop; the slot is released at its end."""
    with _watches_lock:
        watch = _watches.setdefault(asyncio.get_running_loop(), _Watch())
    watched = Watched(slot, watch)
    watch.enter(watched)
    try:
        yield watched
    finally:
        watch.leave(watched)
        slot.release()
