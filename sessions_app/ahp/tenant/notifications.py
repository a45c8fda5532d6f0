"""Notifications about a tenant's list of sessions, for every connection that may see the session (R260-R263, R9).

Changes are gathered for a moment and read in one query, so that a turn costs two notifications and a busy tenant one query at a
time. The latest state is always sent. Each change is encoded once for each version that connections of the tenant use.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from django.db import Error as DatabaseError

from agents_app import exact_json
from sessions_app.core.base import database, supervision
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.events import Kind
from sessions_app.core.log.journal.types import Event
from sessions_app.core.sessions import entries

if TYPE_CHECKING:
    from sessions_app.ahp.version import SummaryNotifications, Version

log = logging.getLogger(__name__)

_PAUSE = 0.3
"""Seconds for which changes are gathered."""
_RETRY = 1.0
_MAX_READ = 200
_MAX_KNOWN = 2000
"""Number of sessions whose last summary is kept, to leave out members that have not changed."""

_STATE = frozenset({"state", "read", "archived"})
_STATE_AND_TIME = _STATE | {"modified_at"}
CHANGES: Mapping[str, frozenset[str]] = {
    Kind.TITLE_CHANGED: frozenset({"title", "modified_at"}),
    Kind.READ_CHANGED: _STATE,
    Kind.ARCHIVED_CHANGED: _STATE,
    Kind.MODEL_CHANGED: frozenset({"model", "modified_at"}),
    Kind.SETTINGS_CHANGED: frozenset({"modified_at"}),
    Kind.ACTIVITY_CHANGED: frozenset({"activity"}),
    Kind.DIFFS_CHANGED: frozenset({"diffs"}),
    Kind.HISTORY_CUT: _STATE_AND_TIME,
    Kind.TURN_STARTED: _STATE_AND_TIME,
    Kind.TURN_REOPENED: _STATE_AND_TIME,
    Kind.TURN_ENDED: _STATE_AND_TIME,
    Kind.TURN_FAILED: _STATE_AND_TIME,
    Kind.TURN_CANCELLED: _STATE_AND_TIME,
    Kind.CALL_READY: _STATE,
    Kind.CALL_GRANTED: _STATE,
    Kind.CALL_DENIED: _STATE,
    Kind.CALL_FINISHED: _STATE,
    Kind.CALL_RESULT_CONFIRMED: _STATE,
    Kind.FORM_OPENED: _STATE_AND_TIME,
    Kind.FORM_CLOSED: _STATE_AND_TIME,
}
"""The fields of a session's summary that a kind of event may change."""


class Notifications:
    """``versions``: those of open connections. ``publish`` gets each notification as a frame of one version, and the agent and
    the row of its session; ``failed`` is called if there will be no more."""

    def __init__(
        self,
        tenant: int,
        versions: Callable[[], Collection[Version]],
        publish: Callable[[Version, str, str, int], None],
        failed: Callable[[], None],
    ) -> None:
        self._tenant = tenant
        self._versions, self._publish, self._failed = versions, publish, failed
        self._added: dict[int, None] = {}
        # Created and deleted before a notification was sent; the event of their end is still to come.
        self._unannounced: set[int] = set()
        self._changed: dict[int, set[str]] = {}
        self._redefined: set[str] = set()
        self._known: OrderedDict[int, entries.SessionEntry] = OrderedDict()
        self._news = asyncio.Event()
        self._at_once = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def take(self, event: Event) -> None:
        """An event of a session, in the tenant's order."""
        if event.kind == Kind.SESSION_CREATED:
            self._added[event.session] = None
            self._at_once.set()
        elif event.kind == Kind.SESSION_DELETED:
            self._remove(event)
            return
        elif event.kind in CHANGES:
            self._changed.setdefault(event.session, set()).update(CHANGES[event.kind])
        else:
            return
        self._wake()

    def redefined(self, agents: Collection[str]) -> None:
        """These agents have changed, and with them the model of their sessions for which no model was chosen."""
        self._redefined.update(agents)
        self._wake()

    def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    def _wake(self) -> None:
        self._news.set()
        if self._writing is None:
            failed = self._failed
            self._writing = supervision.task(self._write(), f"notifications {self._tenant}", instead=lambda _: failed())

    def _remove(self, event: Event) -> None:
        self._changed.pop(event.session, None)
        self._known.pop(event.session, None)
        if event.session in self._added or event.session in self._unannounced:
            # No client was notified of it, so none is notified of its end (R263).
            self._added.pop(event.session, None)
            self._unannounced.discard(event.session)
            return
        # Events of the previous release have no agent.
        agent = exact_json.loads(event.data).get("agent", "")
        self._encode(agent, event.session, lambda encoder: encoder.removed(event))

    def _encode(self, agent: str, session: int, encode: Callable[[SummaryNotifications], str | None]) -> None:
        for version in self._versions():
            if (text := encode(version.summary_notifications)) is not None:
                self._publish(version, text, agent, session)

    async def _write(self) -> None:
        failing = False
        while True:
            await self._news.wait()
            if not self._at_once.is_set():
                try:
                    async with asyncio.timeout(_PAUSE):
                        await self._at_once.wait()
                except TimeoutError:
                    pass
            self._news.clear()
            self._at_once.clear()
            redefined, self._redefined = self._redefined, set()
            try:
                if redefined:
                    for key in await database.run_for(self._tenant, entries.sessions_of, self._tenant, redefined):
                        self._changed.setdefault(key, set()).add("model")
                    redefined = set()
                wanted = [*self._added, *(key for key in self._changed if key not in self._added)][:_MAX_READ]
                found = await database.run_for(self._tenant, entries.of, self._tenant, wanted)
            except (DatabaseError, NotReady) as error:
                if not failing:
                    log.warning("session_summaries_not_read tenant=%s error=%s", self._tenant, error)
                failing = True
                self._redefined |= redefined
                self._news.set()
                await asyncio.sleep(_RETRY)
                continue
            failing = False
            for key in wanted:
                self._publish_change(key, found.get(key))
            if self._added or self._changed:
                self._news.set()

    def _publish_change(self, key: int, summary: entries.SessionEntry | None) -> None:
        is_new = key in self._added
        self._added.pop(key, None)
        fields = self._changed.pop(key, set())
        if summary is None:
            if is_new:
                self._unannounced.add(key)
            return
        before = self._known.pop(key, None)
        self._known[key] = summary
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        if is_new:
            self._encode(summary.agent, key, lambda encoder: encoder.added(summary))
        else:
            self._encode(summary.agent, key, lambda encoder: encoder.changed(before, summary, fields))
