"""State consistency check: an old snapshot plus the events after it equals the current snapshot.

In a test module that imports ``_law_of_states``, it runs after each test for every session that the test has created: the
session's state at its creation, with all later actions applied by the protocol's reducers, is its current state: in AHP 0.1,
and of the session and its chat in 0.9 and 1.0.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.version import Channel
from sessions_app.ahp.versions.v0_1.projection.actions import action_of, breaks
from sessions_app.ahp.versions.v0_1.projection.sessions import state_of
from sessions_app.ahp.versions.v0_1.reducers import reduce_session
from sessions_app.ahp.versions.v0_9 import reducers as v0_9
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import chats, sessions
from sessions_app.ahp.versions.v0_9.projection.actions import Projection
from sessions_app.ahp.versions.v0_9.spelling import spelled
from sessions_app.ahp.versions.v1_0 import reducers as v1_0
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.log import journal
from sessions_app.core.records import addresses
from sessions_app.core.sessions import creating, state
from sessions_app.core.tenancy import access
from sessions_app.models import Session


def _seen(caller: Caller, session: Session) -> tuple[int, Any]:
    found = state.read(caller, session)
    shown = json.loads(json.dumps(state_of(found, found.agent)))
    # Each side stamps it with its own clock (R70).
    del shown["summary"]["modifiedAt"]
    return found.seq, shown


def _is_broken(session: Session, seq: int, upto: int) -> bool:
    """Whether clients of 0.1 have to take a new snapshot between these positions."""
    events = journal.read_session(session.tenant_id, session.pk, seq, limit=100_000).events
    return any(breaks(event) for event in events if event.seq <= upto)


def _folded(session: Session, uri: str, seq: int, upto: int, shown: Any) -> Any:
    shown["summary"]["modifiedAt"] = 0
    for event in journal.read_session(session.tenant_id, session.pk, seq, limit=100_000).events:
        if event.seq <= upto and (action := action_of(event, uri)) is not None:
            shown = reduce_session(shown, exact_json.loads(exact_json.dumps(action)), 0)
    shown = json.loads(json.dumps(shown))
    del shown["summary"]["modifiedAt"]
    return shown


NEWER: list[tuple[Face, Any]] = [(Face("0.9"), v0_9), (Face("1"), v1_0)]
ACTIVITY_BITS = 31


def _seen_by_newer(caller: Caller, session: Session) -> tuple[int, list[Any]]:
    """The session and its chat, in both versions."""
    found = state.read(caller, session, 1_000_000)
    shown = []
    for face, _ in NEWER:
        uri = sessions.uri_of(found.summary, face)
        shown.append(_without_exceptions(sessions.state_of(found, found.agent, face), chats.state_of(found, uri, face)))
    return found.seq, json.loads(json.dumps(shown))


def _without_exceptions(of_session: Any, of_chat: Any) -> Any:
    """No action says a session's activity or a chat's title (V56)."""
    session = {**of_session, "status": of_session["status"] & ~ACTIVITY_BITS}
    return {"session": session, "chat": {name: value for name, value in of_chat.items() if name != "title"}}


def _folded_by_newer(session: Session, seq: int, upto: int, shown: list[Any]) -> list[Any]:
    folded = []
    for (face, reducers), before in zip(NEWER, shown, strict=True):
        projection, held = Projection(face), dict(before)
        uri = before["session"]["defaultChat"], before["session"]["chats"][0]["resource"]
        assert uri[0] == uri[1]
        channels = {kind: Channel(session.pk, "x:/y", kind, session=_session_uri(uri[0])) for kind in ("session", "chat")}
        for event in journal.read_session(session.tenant_id, session.pk, seq, limit=100_000).events:
            for kind, channel in channels.items():
                if event.seq <= upto and (action := projection.action_of(event, channel)) is not None:
                    held[kind] = reducers.reduce(held[kind], exact_json.loads(exact_json.dumps(action)))
        folded.append(json.loads(json.dumps(_without_exceptions(held["session"], held["chat"]))))
    return folded


def _session_uri(chat: str) -> str:
    return spelled(chat).session


@dataclass(frozen=True)
class Seen:
    """A session's state at a time, in 0.1 and in the newer versions, each with its position."""

    uri: str
    of_0_1: tuple[int, Any]
    of_newer: tuple[int, list[Any]]

    @staticmethod
    def of(caller: Caller, session: Session) -> Seen:
        return Seen(addresses.of(session), _seen(caller, session), _seen_by_newer(caller, session))

    def must_lead_to(self, session: Session, now: Seen) -> None:
        """The actions after this state make it the state of now."""
        seq, before = self.of_0_1
        if not _is_broken(session, seq, now.of_0_1[0]):
            assert _folded(session, self.uri, seq, now.of_0_1[0], copy.deepcopy(before)) == now.of_0_1[1]
        seq, before = self.of_newer
        assert _folded_by_newer(session, seq, now.of_newer[0], before) == now.of_newer[1]


@pytest.fixture(autouse=True)
def _law_of_states(alice: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[tuple[Caller, Session, Seen]] = []
    create = creating.create

    def create_and_note(caller: Caller, wanted: Any, **given: Any) -> creating.Created:
        created = create(caller, wanted, **given)
        session = access.session(caller, created.public_id)
        made.append((caller, session, Seen.of(caller, session)))
        return created

    monkeypatch.setattr(creating, "create", create_and_note)
    yield
    for caller, session, seen in made:
        with suppress(SessionNotFound):
            seen.must_lead_to(session, Seen.of(caller, session))
