"""State consistency check: an old snapshot plus the events after it equals the current snapshot.

In a test module that imports ``_law_of_states``, it runs after each test for every session that the test has created: the
session's AHP 0.1 state at its creation, with all later actions applied by the protocol's reducers, is its current state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.versions.v0_1.projection.actions import action_of
from sessions_app.ahp.versions.v0_1.projection.sessions import state_of
from sessions_app.ahp.versions.v0_1.reducers import reduce_session
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


def _folded(session: Session, uri: str, seq: int, upto: int, shown: Any) -> Any:
    shown["summary"]["modifiedAt"] = 0
    for event in journal.read_session(session.tenant_id, session.pk, seq, limit=100_000).events:
        if event.seq <= upto and (action := action_of(event, uri)) is not None:
            shown = reduce_session(shown, exact_json.loads(exact_json.dumps(action)), 0)
    shown = json.loads(json.dumps(shown))
    del shown["summary"]["modifiedAt"]
    return shown


@pytest.fixture(autouse=True)
def _law_of_states(alice: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[tuple[Caller, Session, str, int, Any]] = []
    create = creating.create

    def note(caller: Caller, session: Session) -> None:
        made.append((caller, session, addresses.of(session), *_seen(caller, session)))

    def create_and_note(caller: Caller, wanted: Any, **given: Any) -> creating.Created:
        created = create(caller, wanted, **given)
        note(caller, access.session(caller, created.public_id))
        return created

    monkeypatch.setattr(creating, "create", create_and_note)
    yield
    for caller, session, uri, seq, shown in made:
        try:
            upto, now = _seen(caller, session)
        except SessionNotFound:
            continue
        assert _folded(session, uri, seq, upto, shown) == now
