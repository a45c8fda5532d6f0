"""What is deleted is gone: from every answer at once, from every table soon after."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from sessions_app.core import access, housekeeping, journal, sessions
from sessions_app.core.errors import SessionNotFound
from sessions_app.core.turns import Accepted
from sessions_app.core.worker import Worker
from sessions_app.models import Session, SessionTail, Turn
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, text, thinking
from tests.sessions_app.core import tools
from tests.sessions_app.core.conftest import World, kinds, wait_for, wait_for_state
from tests.sessions_app.core.test_turns import READ_LOG

WORD = "heliotrope"


def tables_with(word: str) -> list[str]:
    """Every table that has this word in any column of any row."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            name = connection.ops.quote_name(table)
            cursor.execute(f"select * from {name}")
            values = [value for row in cursor.fetchall() for value in row]
            if any(word in str(bytes(value) if isinstance(value, memoryview) else value) for value in values):
                found.append(table)
    return found


def _long_ago(session: Session) -> None:
    Session.with_deleted.filter(pk=session.pk).update(deleted_at=timezone.now() - timedelta(hours=1))


@pytest.mark.rule("A32", "A92")
@pytest.mark.parametrize("state", ["queued", "speaking", "in a tool", "waiting", "done"])
def test_a_session_deleted_in_any_state_leaves_no_word(
    alice: World,
    start_worker: Callable[[], Worker],
    model: ModelServer,
    caplog: pytest.LogCaptureFixture,
    state: str,
) -> None:
    tools.forget()
    session = alice.session(
        tools=[{"name": "block", "trust": True}],
        client_tools=[{**READ_LOG, "description": WORD}],
        options={"tone": WORD, "key": WORD},
        seed=[{"role": "user", "content": WORD}, {"role": "assistant", "content": WORD}],
    )
    if state != "queued":
        start_worker()
    step = {
        "queued": [text(WORD)],
        "speaking": [thinking(WORD), text(WORD), gate("never")],
        "in a tool": [text(WORD), call("block", {"n": 1}, id=WORD)],
        "waiting": [text(WORD), call("read_log", {WORD: WORD}, id=WORD)],
        "done": [thinking(WORD), text(WORD)],
    }[state]
    accepted = alice.say(session, model.script(step))
    _reach(state, session, accepted)
    assert tables_with(WORD) != []
    with caplog.at_level(logging.DEBUG):
        sessions.delete(alice.caller, session)
        with pytest.raises(SessionNotFound):
            access.session(alice.caller, session.public_id)
        assert Turn.objects.get(pk=accepted.turn_id).state == ("done" if state == "done" else "cancelled")
        assert ("turn_cancelled" in kinds(session)) == (state != "done")
        housekeeping.run()
        assert tables_with(WORD) != [], "streams that were open still read the end"
        _long_ago(session)
        tools.release.set()
        housekeeping.run()
    assert tables_with(WORD) == []
    assert not Session.with_deleted.filter(pk=session.pk).exists()
    assert not SessionTail.objects.filter(session_id=session.pk).exists()
    assert WORD not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def _reach(state: str, session: Session, accepted: Accepted) -> None:
    match state:
        case "speaking":
            wait_for(lambda: "text_delta" in kinds(session), "the first words")
        case "in a tool":
            assert tools.entered.wait(90)
        case "waiting" | "done":
            wait_for_state(accepted, state)


def test_removing_one_session_leaves_the_next_alone(alice: World, model: ModelServer) -> None:
    gone, stays = alice.session(seed=[{"role": "user", "content": WORD}]), alice.session()
    accepted = alice.say(stays, "still here")
    sessions.delete(alice.caller, gone)
    _long_ago(gone)
    housekeeping.run()
    housekeeping.run()
    assert access.session(alice.caller, stays.public_id) == stays
    assert Turn.objects.get(pk=accepted.turn_id).state == "queued"
    events = journal.read_session(stays.tenant_id, stays.pk, 0).events
    assert [event.kind for event in events] == ["session_created", "turn_started", "title_changed"]
