"""Watches of files: what changes in a tenant's workspaces is reported to the clients that asked for it.

A watch belongs to one client's connection in one process, and ends with it. The kernel's notices are merged for a moment, and the
changes wait here, at most so many. Then the rules are checked again, and an event without content is appended, so that the report
has a number in the tenant's order. When that event arrives, the changes are reported under its number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.conf import settings
from django.db import Error as DatabaseError

from agents_app import exact_json
from sessions_app.core.base import database, journal_keys, redaction, supervision
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, FilesAway, InvalidInput, NotReady, PathOutside, WatchesOff
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Event, NewEvent
from sessions_app.core.workspaces import access, making, places, threads, trees
from sessions_app.core.workspaces.access import Grants
from sessions_app.core.workspaces.files import refusals
from sessions_app.core.workspaces.places import Place
from sessions_app.workspace import changes, globs, inotify, paths
from sessions_app.workspace.errors import BadPattern, Refused, TooMany
from sessions_app.workspace.inotify import Exhausted
from sessions_app.workspace.paths import Path
from sessions_app.workspace.watching import Watch, Watcher

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.1
"""How long changes are merged before they are reported."""
PAUSE_SECONDS = 0.5
"""Between two reports."""
_UNUSED_SECONDS = 30.0
_AGAIN_SECONDS = 60.0
"""How often a watch that cannot see all directories tries it again, and reports that anything may have changed."""
_RETRY_SECONDS = 2.0
_MORE_WATCHES = "raise the sysctls fs.inotify.max_user_watches and fs.inotify.max_user_instances"
MOST_ALTERNATIVES = 100
"""Patterns of one watch, with all their alternatives."""

Change = tuple[str, changes.Kind]
"""A URI, and what happened to it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """``uri``: the root. ``includes`` and ``excludes``: glob patterns or paths, relative to the root."""

    uri: str
    recursive: bool = False
    includes: Sequence[str] | None = None
    excludes: Sequence[str] | None = None


@dataclass(slots=True, eq=False)
class OpenWatch:
    """A watch of a client. ``report`` is called with the number and the changes; ``is_crowded``: not now.

    ``ready``: changes that wait for their number. ``is_hidden``: the client may not see the root any more.
    """

    id: str
    owner: Hashable
    wanted: Wanted
    place: Place
    watch: Watch = field(repr=False)
    caller: Callable[[], Caller] = field(repr=False)
    grants: Grants = field(repr=False)
    report: Callable[[int, Sequence[Change]], None] = field(repr=False)
    is_crowded: Callable[[], bool] = field(repr=False)
    is_used: bool = False
    is_hidden: bool = False
    ready: list[Change] | None = None
    asked_at: float = float("-inf")
    not_before: float = float("-inf")


class Watches:
    """The watches of one tenant in one event loop."""

    def __init__(self, tenant: int, failed: Callable[[], None]) -> None:
        """``failed`` is called if nothing is reported any more."""
        self._tenant, self._failed = tenant, failed
        self._open: dict[str, OpenWatch] = {}
        self._beginning = 0
        self._watcher: Watcher | None = None
        self._is_closed = False
        self._news = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._paused: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Future[None]] = set()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._open

    def of(self, owner: Hashable) -> list[OpenWatch]:
        return [each for each in self._open.values() if each.owner == owner]

    # --- beginning and ending ---

    async def begin(
        self,
        owner: Hashable,
        wanted: Wanted,
        caller: Callable[[], Caller],
        grants: Grants,
        report: Callable[[str, int, Sequence[Change]], None],
        is_crowded: Callable[[], bool],
    ) -> str:
        """A new watch; its id. It ends if nobody says ``use`` soon.

        WatchesOff, WorkspacesOff, FilesAway; InvalidInput for a bad pattern or over a limit; else as for reading the root.
        """
        self._require_room(owner)
        self._beginning += 1
        try:
            place, watch = await threads.run(self._tenant, _prepare, caller(), wanted, grants)
            await self._begin(watch)
            id_ = new_id("watch")
            self._open[id_] = OpenWatch(id_, owner, wanted, place, watch, caller, grants, partial(report, id_), is_crowded)
        finally:
            self._beginning -= 1
            self._close_if_unused()
        self._timers[id_] = asyncio.get_running_loop().call_later(_UNUSED_SECONDS, self._end_unused, id_)
        self._look()
        return id_

    def _require_room(self, owner: Hashable) -> None:
        most, most_all = settings.AGENTHOST_AHP_WATCHES, settings.AGENTHOST_TENANT_WATCHES
        if len(self.of(owner)) >= most:
            detail = f"this connection has {most:,} watches, which is the limit (AGENTHOST_AHP_WATCHES)"
        elif len(self._open) + self._beginning >= most_all:
            detail = f"the tenant has {most_all:,} watches at this server, which is the limit (AGENTHOST_TENANT_WATCHES)"
        else:
            return
        raise InvalidInput([Fault((), detail)])

    async def _begin(self, watch: Watch) -> None:
        try:
            if self._is_closed:
                raise FilesAway
            if self._watcher is None:
                self._watcher = Watcher(settings.AGENTHOST_TENANT_WATCH_DIRECTORIES)
                asyncio.get_running_loop().add_reader(self._watcher.descriptor, self._read)
            with refusals("uri"):
                await self._find_first(self._watcher, watch)
            if self._is_closed:
                raise FilesAway
        except BaseException as error:
            # If the client has gone, the thread may still look for directories.
            self._end_in_thread(watch)
            if isinstance(error, Exhausted):
                log.error("watch_refused error=%s fix=%s", error, _MORE_WATCHES)
                raise FilesAway from None
            raise

    async def _find_first(self, watcher: Watcher, watch: Watch) -> None:
        try:
            await threads.run(self._tenant, watcher.begin, watch)
        except TooMany:
            raise InvalidInput([Fault(("uri",), _too_many())]) from None

    def use(self, id_: str) -> None:
        """A client has subscribed."""
        self._open[id_].is_used = True
        if (timer := self._timers.pop(id_, None)) is not None:
            timer.cancel()
        self._look()

    def end(self, id_: str) -> None:
        found = self._open.pop(id_, None)
        if found is None:
            return
        if (timer := self._timers.pop(id_, None)) is not None:
            timer.cancel()
        self._end_in_thread(found.watch)
        self._close_if_unused()

    def end_of(self, owner: Hashable) -> None:
        for each in self.of(owner):
            self.end(each.id)

    def _end_unused(self, id_: str) -> None:
        if not self._open[id_].is_used:
            self.end(id_)

    def close(self) -> None:
        self._is_closed = True
        for id_ in list(self._open):
            self.end(id_)
        if self._working is not None:
            self._working.cancel()
        if self._paused is not None:
            self._paused.cancel()

    def _end_in_thread(self, watch: Watch) -> None:
        """In a thread: the kernel may take a while to forget many directories."""
        watch.has_ended = True
        if self._watcher is not None:
            self._in_thread(partial(self._watcher.end, watch))

    def _close_if_unused(self) -> None:
        if self._watcher is not None and not self._open and not self._beginning:
            asyncio.get_running_loop().remove_reader(self._watcher.descriptor)
            self._in_thread(self._watcher.close)
            self._watcher = None

    def _in_thread(self, call: Callable[[], None]) -> None:
        future = asyncio.get_running_loop().run_in_executor(None, call)
        self._closing.add(future)
        future.add_done_callback(self._closing.discard)

    # --- notices ---

    def _read(self) -> None:
        """Called by the loop when notices wait. A flood is read in portions, with time for others in between."""
        watcher = self._watcher
        if watcher is None:
            return
        if watcher.read():
            loop = asyncio.get_running_loop()
            loop.remove_reader(watcher.descriptor)
            self._paused = loop.call_later(GATHER_SECONDS / 2, self._read_on, watcher)
        self._look()

    def _read_on(self, watcher: Watcher) -> None:
        if watcher is self._watcher:
            asyncio.get_running_loop().add_reader(watcher.descriptor, self._read)

    def _look(self) -> None:
        if any(self._is_due(each) or each.watch.needs_work for each in self._open.values()):
            self._news.set()
            if self._working is None:
                self._working = supervision.task(self._work(), f"watches {self._tenant}", instead=lambda _: self._failed())

    @staticmethod
    def _is_due(each: OpenWatch) -> bool:
        return each.is_used and (each.ready is not None or bool(each.watch.changes))

    # --- reports ---

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        failing = False
        while True:
            await self._news.wait()
            self._news.clear()
            await asyncio.sleep(GATHER_SECONDS)
            started = loop.time()
            try:
                await self._find_directories()
                await self._number()
                failing = False
            except (DatabaseError, NotReady, OSError) as error:
                if not failing:
                    log.warning("watches_delayed tenant=%d error=%s", self._tenant, redaction.kinds(error))
                failing = True
                await asyncio.sleep(_RETRY_SECONDS)
            # Matching many patterns takes its time, which is the tenant's own.
            await asyncio.sleep(max(PAUSE_SECONDS, 4 * (loop.time() - started)))
            self._look()

    async def _find_directories(self) -> None:
        loop = asyncio.get_running_loop()
        for each in list(self._open.values()):
            watcher = self._watcher
            if watcher is None or not each.watch.needs_work or loop.time() < each.not_before:
                continue
            was_stale, started = each.watch.is_stale, loop.time()
            await threads.run(self._tenant, watcher.work, each.watch)
            if was_stale:
                # A flood that overflows the kernel's queue again and again must not mean to walk the tree again and again.
                each.not_before = loop.time() + max(1.0, 20 * (loop.time() - started))
            if each.watch.is_incomplete and each.id in self._open and each.id not in self._timers:
                self._timers[each.id] = loop.call_later(_AGAIN_SECONDS, self._find_again, each)

    def _find_again(self, each: OpenWatch) -> None:
        self._timers.pop(each.id, None)
        each.watch.changes.lose()
        each.watch.is_stale = True
        self._look()

    async def _number(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [
            each
            for each in self._open.values()
            if self._is_due(each) and not each.is_crowded() and (each.ready is None or now - each.asked_at > 10 * _RETRY_SECONDS)
        ]
        if not due:
            return
        for each in due:
            each.asked_at = float("-inf")
        await database.run_for(self._tenant, _prepare_reports, self._tenant, [(each, each.caller()) for each in due])
        for each in due:
            each.asked_at = now

    def take(self, event: Event) -> None:
        """An event ``files_changed``, in the tenant's order: report what waits for it. Those of other processes are unknown."""
        each = self._open.get(exact_json.loads(event.data)["watch"])
        if each is None or each.ready is None:
            return
        ready, each.ready = each.ready, None
        if each.is_used:
            each.report(event.seq, ready)


def _prepare(caller: Caller, wanted: Wanted, grants: Grants) -> tuple[Place, Watch]:
    """The place of the root, and its watch, which has not begun."""
    if not inotify.is_available():
        raise WatchesOff
    includes, excludes = _matchers(wanted.includes, "includes"), _matchers(wanted.excludes, "excludes")
    if _alternatives(wanted.includes) + _alternatives(wanted.excludes) > MOST_ALTERNATIVES:
        detail = f"includes and excludes have more than {MOST_ALTERNATIVES} patterns, counting the alternatives in braces"
        raise InvalidInput([Fault((), detail)])
    place = making.find_or_make(caller, wanted.uri)
    guard = access.guard_of(caller, place, grants, "read")
    with refusals("uri"):
        access.require(guard, place.path)
        tree = trees.tree_of(place, make=True, guard=guard)
        with tree.open() as at:
            if not inotify.sees_all(at.root):
                raise WatchesOff
    _create_tail(place.tenant)
    watch = Watch(
        tree,
        place.path,
        recursive=wanted.recursive,
        includes=includes,
        excludes=excludes,
        most=settings.AGENTHOST_WATCH_DIRECTORIES,
    )
    return place, watch


def _too_many() -> str:
    return (
        f"has more directories than {settings.AGENTHOST_WATCH_DIRECTORIES:,} for one watch (AGENTHOST_WATCH_DIRECTORIES) or"
        f" {settings.AGENTHOST_TENANT_WATCH_DIRECTORIES:,} for a tenant (AGENTHOST_TENANT_WATCH_DIRECTORIES); exclude some"
    )


def _matchers(patterns: Sequence[str] | None, member: str) -> list[Callable[[Path], bool]]:
    try:
        return [globs.matcher(pattern) for pattern in patterns or ()]
    except BadPattern as error:
        raise InvalidInput([Fault((member, "items"), str(error))]) from None


def _alternatives(patterns: Sequence[str] | None) -> int:
    return sum(len(globs.alternatives(pattern)) for pattern in patterns or ())


def _create_tail(tenant: int) -> None:
    try:
        journal.create_tail_if_missing(journal_keys.of_watches(tenant))
    finally:
        database.release()


def _prepare_reports(tenant: int, due: Sequence[tuple[OpenWatch, Caller]]) -> None:
    """Take the changes that each caller may see now, and request numbers for them."""
    for each, caller in due:
        if each.ready is None:
            each.ready = _visible_changes(each, caller) or None
    numbered = [each for each, _ in due if each.ready is not None]
    if numbered:
        with journal.transaction() as tx:
            for each in numbered:
                tx.append(NewEvent(tenant, journal_keys.of_watches(tenant), Happening(Kind.FILES_CHANGED, {"watch": each.id})))


def _visible_changes(each: OpenWatch, caller: Caller) -> list[Change]:
    try:
        place = places.find(caller, each.wanted.uri)
        guard = access.guard_of(caller, place, each.grants, "read")
        access.require(guard, place.path)
    except (PathOutside, Refused):
        # For this caller the root does not exist any more.
        each.watch.changes.take()
        was_hidden, each.is_hidden = each.is_hidden, True
        return [] if was_hidden else [(each.wanted.uri, "deleted")]
    if each.is_hidden:
        each.is_hidden = False
        each.watch.changes.lose()
    if place.public_id == each.place.public_id:
        each.watch.tree = each.watch.tree.guarded(guard)
    elif place.workspace is not None:
        # A workspace was made for a part of the other one's paths, or the other one was removed.
        each.place, each.watch.tree, each.watch.path = place, trees.tree_of(place, make=True, guard=guard), place.path
        each.watch.is_stale = True
    found = each.watch.batch(_hides_nothing if guard is None else guard.hides)
    return [(_uri(each.wanted.uri, path), kind) for path, kind in found]


def _uri(root: str, path: Path) -> str:
    """A URI below the root, which keeps its spelling."""
    return root if not path else f"{root.rstrip('/')}/{paths.uri_of(path).removeprefix('file:///')}"


def _hides_nothing(_path: Path) -> bool:
    return False
