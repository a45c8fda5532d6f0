"""A live transcript: server-sent events for an open page of a session.

The page has a ticket for this stream. Its reading was recorded with the page, which says so; the stream is not recorded again
when it reconnects. The ticket ends after half an hour, and the rights of the account are checked again while it is used.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from weakref import WeakSet

from django.contrib import auth
from django.core import signing
from django.http import HttpRequest
from django.template.loader import render_to_string

from agents_app import exact_json
from sessions_app.core.base import database, draining
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import STREAM_KINDS, Kind
from sessions_app.core.log import feed
from sessions_app.core.log.journal.types import Event
from sessions_app.core.tenancy import rights
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import Session
from sessions_app.presentation import transcript

SECONDS = 1800
"""How long an open page follows its session."""
AT_ONCE, OF_ACCOUNT = 40, 8
"""Streams of one process: each has a thread of Django until it ends."""
KEEP_ALIVE_SECONDS = 15.0
CHECK_SECONDS = 10.0
_TOGETHER_SECONDS = 0.25
"""Events of this time share one rendering of their turn."""
_TURNS_AT_ONCE = 5
_SALT = "agenthost.admin.live"

_SETTLING = frozenset({Kind.STEP_DONE, Kind.TURN_ENDED, Kind.TURN_FAILED, Kind.TURN_CANCELLED})
"""After these, the output of the step is a message, or is gone."""
_DELTAS: dict[str, str] = {Kind.TEXT_DELTA: "text", Kind.THINKING_DELTA: "thinking"}

_open: WeakSet[Live] = WeakSet()
_opening = threading.Lock()


def ticket(account_id: int, session: Session) -> str:
    return signing.dumps([account_id, session.pk], salt=_SALT)


def is_ticket(text: str, account_id: int, session: Session) -> bool:
    """Whether this is a ticket of this account for this session that has not ended."""
    try:
        found = signing.loads(text, salt=_SALT, max_age=SECONDS)
    except signing.BadSignature:
        return False
    return bool(found == [account_id, session.pk])


def open_stream(request: HttpRequest, session: Session, after: int) -> Live | None:
    """The body of the stream; None if this process, or the account, has too many."""
    account_id = rights.account_of(request.user).id
    with _opening:
        own = sum(stream.account == account_id for stream in _open)
        if len(_open) >= AT_ONCE or own >= OF_ACCOUNT:
            return None
        stream = Live(account_id, session, after, _check(request, session))
        _open.add(stream)
        return stream


def _check(request: HttpRequest, session: Session) -> Callable[[], bool]:
    """Whether the sign-in and the right of the request still exist. It keeps no request."""
    store, key = type(request.session), request.session.session_key
    user_id, row = request.user.pk, session.pk

    def may_still_read() -> bool:
        again = HttpRequest()
        again.session = store(key)
        user = auth.get_user(again)
        found = Session.objects.filter(pk=row).values_list("tenant_id", flat=True).first()
        if found is None or user.pk != user_id:
            return False
        return rights.as_staff(rights.account_of(user), Right.READ_TRANSCRIPTS, found)

    return may_still_read


class Live:
    """The chunks of one stream. It counts as open as long as this object exists."""

    def __init__(self, account: int, session: Session, after: int, may_still_read: Callable[[], bool]) -> None:
        self.account = account
        self._tenant, self._session, self._after = session.tenant_id, session.pk, after
        self._may_still_read = may_still_read

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        until, check_at = loop.time() + SECONDS, loop.time() + CHECK_SECONDS
        yield b"retry: 2000\n\n"
        try:
            async with feed.follow(self._tenant, self._session, self._after) as reader:
                with draining.listening(reader.nudge):
                    while loop.time() < until:
                        events = await reader.next(min(KEEP_ALIVE_SECONDS, max(0.1, check_at - loop.time())))
                        if draining.is_draining():
                            # The page connects again, to another process.
                            return
                        if loop.time() >= check_at:
                            if not await database.run_for(self._tenant, self._may_still_read):
                                yield _event("over", "The session is gone, or you may not read it any more.")
                                return
                            check_at = loop.time() + CHECK_SECONDS
                        if not events:
                            yield b": still here\n\n"
                            continue
                        yield await self._encoded(events)
                        await asyncio.sleep(_TOGETHER_SECONDS)
        except PositionPruned:
            yield _event("over", "This page missed something. Load it again.")
            return
        yield _event("over", "This page has followed the session for half an hour. Load it again to go on.")

    async def _encoded(self, events: Sequence[Event]) -> bytes:
        changed: dict[str, None] = {}
        deltas: list[tuple[str, str]] = []
        settled = False
        for event in events:
            if (kind := _DELTAS.get(event.kind)) is not None:
                deltas.append((kind, exact_json.loads(event.data)["delta"]))
                continue
            if event.kind in _SETTLING:
                settled = True
                deltas.clear()
            if event.kind not in STREAM_KINDS:
                turn = exact_json.loads(event.data).get("turn")
                if isinstance(turn, str):
                    changed[turn] = None
        chunks = []
        if changed:
            names = list(changed)[-_TURNS_AT_ONCE:]
            rendered, facts = await database.run_for(self._tenant, self._rendered, names)
            chunks += [_event("turn", shown) for shown in rendered]
            if facts:
                chunks.append(_event("facts", facts))
        if settled:
            chunks.append(_event("settled", {}))
        chunks += [_event("delta", {"kind": kind, "text": text}) for kind, text in _joined(deltas)]
        chunks.append(b"id: %d\nevent: at\ndata: \n\n" % events[-1].seq)
        return b"".join(chunks)

    def _rendered(self, turns: Sequence[str]) -> tuple[list[dict[str, str]], str]:
        """The turns, and what is shown beside them; empty if the session is gone."""
        session = Session.objects.select_related("tenant").filter(pk=self._session).first()
        if session is None:
            return [], ""
        found = []
        for name in turns:
            context: dict[str, Any] = {"session": session, "only": None}
            views = transcript.turn(session, name)
            if views:
                html = render_to_string("agenthost/transcript_turn.html", {**context, "view": views[-1]})
                found.append({"id": name, "html": html})
        context = {"session": session, "facts": transcript.facts(session)}
        return found, render_to_string("agenthost/transcript_facts.html", context)


def _joined(deltas: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    joined: list[tuple[str, str]] = []
    for kind, text in deltas:
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined


def _event(name: str, data: Any) -> bytes:
    # ASCII: no character of the data ends a line.
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
