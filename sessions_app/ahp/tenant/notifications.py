"""Notifications: what every connection of a tenant is told about the sessions that exist for its key (R260-R263, R9).

Changes of summaries are gathered for a moment and read together, so that a turn costs two notifications and a busy
tenant one query at a time. The state that stands last always gets out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.db import Error as DatabaseError

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection import actions
from sessions_app.ahp.versions.v0_1.projection.sessions import summary_of
from sessions_app.core.base import database, supervision
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.events import Kind
from sessions_app.core.log.journal.types import Event
from sessions_app.core.sessions import entries

log = logging.getLogger(__name__)

_PAUSE = 0.3
"""Seconds for which changes are gathered."""
_RETRY = 1.0
_MANY = 200
_KNOWN = 2000
"""How many sessions' summaries are remembered, to tell what has changed from what was only touched."""


class Bulletin:
    """``publish`` is given each notification as text, and the agent of the session that it names; ``failed`` is called if
    there will be no more."""

    def __init__(self, tenant: int, publish: Callable[[str, str], None], failed: Callable[[], None]) -> None:
        self._tenant = tenant
        self._publish, self._failed = publish, failed
        self._added: dict[int, None] = {}
        # Made and gone before anybody was told; their end is on its way.
        self._unseen: set[int] = set()
        self._changed: dict[int, set[str]] = {}
        self._redefined: set[str] = set()
        self._known: OrderedDict[int, Mapping[str, Any]] = OrderedDict()
        self._news = asyncio.Event()
        self._at_once = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def take(self, event: Event) -> None:
        """In the tenant's order."""
        if event.kind == Kind.SESSION_CREATED:
            self._added[event.session] = None
            self._at_once.set()
        elif event.kind == Kind.SESSION_DELETED:
            self._remove(event)
            return
        elif event.kind in actions.CHANGES:
            self._changed.setdefault(event.session, set()).update(actions.CHANGES[event.kind])
        else:
            return
        self._wake()

    def redefined(self, agents: Collection[str]) -> None:
        """What is shown of these agents has changed, and with it what their sessions use if nobody has chosen a model."""
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
        if event.session in self._added or event.session in self._unseen:
            # Nobody has heard of it, so nobody hears that it is gone (R263).
            self._added.pop(event.session, None)
            self._unseen.discard(event.session)
            return
        gone = exact_json.loads(event.data)
        if gone.get("uri") is not None:
            # The previous release does not name the agent.
            self._tell(gone.get("agent", ""), {"type": "notify/sessionRemoved", "session": gone["uri"]})

    def _tell(self, agent: str, notification: Mapping[str, Any]) -> None:
        self._publish(jsonrpc.notification("notification", {"notification": notification}), agent)

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
                wanted = [*self._added, *(key for key in self._changed if key not in self._added)][:_MANY]
                found = await database.run_for(self._tenant, entries.of, self._tenant, wanted)
            except (DatabaseError, NotReady) as error:
                if not failing:
                    log.warning("summaries of tenant %s could not be read: %s", self._tenant, error)
                failing = True
                self._redefined |= redefined
                self._news.set()
                await asyncio.sleep(_RETRY)
                continue
            failing = False
            for key in wanted:
                self._tell_of(key, found.get(key))
            if self._added or self._changed:
                self._news.set()

    def _tell_of(self, key: int, found: entries.Summary | None) -> None:
        is_new = key in self._added
        self._added.pop(key, None)
        touched = self._changed.pop(key, set())
        if found is None:
            if is_new:
                self._unseen.add(key)
            return
        summary = summary_of(found)
        before = self._known.pop(key, None)
        self._known[key] = summary
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        if is_new:
            self._tell(found.agent, {"type": "notify/sessionAdded", "summary": summary})
            return
        changes = {
            member: summary.get(member, "")
            for member in sorted(touched)
            if before is None or summary.get(member) != before.get(member)
        }
        # A member that is not there now was cleared; only the activity can be (R262).
        changes = {member: value for member, value in changes.items() if member in summary or member == "activity"}
        if changes:
            self._tell(found.agent, {"type": "notify/sessionSummaryChanged", "session": found.uri, "changes": changes})
