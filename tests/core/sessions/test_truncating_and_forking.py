"""Sessions cut back to an earlier turn, and copied up to one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core.base.errors import TurnAlreadyRunning, TurnUnknown
from sessions_app.core.records import history, options, stored_messages
from sessions_app.core.sessions import deleting, entries, listing, state, truncating
from sessions_app.core.sessions.creating import Fork
from sessions_app.models import AuditRecord, Compaction, Message, Session, Turn
from tests.core import tools
from tests.core.client_actions import SEED, ends, make, put, said, start, state_of, waiting_call
from tests.core.conftest import World, wait_for
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.core.threads import at_once, errors_of
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, gate, status, text
from tests.sample_tenants import make_session_of_client

pytestmark = pytest.mark.django_db(transaction=True)


def talked(world: World, model: ModelServer, count: int = 3, **given: Any) -> Session:
    """A session with turns t1, t2, …, each of them ended."""
    session = make(world, **given)
    for number in range(1, count + 1):
        start(world, session, model.script([text(f"answer {number}")]), f"t{number}")
        ends(session, f"t{number}")
    return session


def ids(world: World, session: Session) -> list[str]:
    return [turn.id for turn in state.read(world.caller, session).turns]


def answers(session: Session) -> list[Any]:
    return [content for role, content in said(session) if role == "assistant"]


# --- truncating ---


@pytest.mark.rule("R220")
def test_cut_turns_leave_every_history_and_the_models_input(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = talked(alice, model)
    for through in (1, 6):
        Compaction.objects.create(tenant_id=session.tenant_id, session=session, covers_through=through, created_at=timezone.now())
    truncating.truncate(alice.caller, session, "t2", dispatched=action())
    assert ids(alice, session) == ["t1", "t2"]
    assert answers(session) == ["answer 1", "answer 2"]
    assert [row.covers_through for row in Compaction.objects.all()] == [1]
    assert events(session, "history_cut") == [("history_cut", {"turn": "t2", "found": True})]
    assert list(AuditRecord.objects.filter(action="session_truncated").values_list("detail", flat=True)) == [
        "what followed turn t2"
    ]
    Compaction.objects.all().delete()
    script = model.script([text("answer 4")])
    start(alice, session, script, "t4")
    ends(session, "t4")
    roles = [message["role"] for message in model.requests_of(script)[0].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert ids(alice, session) == ["t1", "t2", "t4"]
    truncating.truncate(alice.caller, session, "t4", dispatched=action())
    assert answers(session) == ["answer 1", "answer 2", "answer 4"]


@pytest.mark.rule("R220")
def test_cutting_all_turns_keeps_only_the_system_messages(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = alice.session(seed=SEED)
    truncating.truncate(alice.caller, session, None, dispatched=action())
    assert said(session) == [("system", "S")]
    assert ids(alice, session) == []


@pytest.mark.rule("R90")
def test_an_unknown_turn_cuts_nothing_and_the_live_turn_continues(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = talked(alice, model, 1)
    start(alice, session, model.script([text("two"), gate("hold")]), "t2")
    model.wait_gate("hold")
    for unknown in ("nonsense", "t2"):
        truncating.truncate(alice.caller, session, unknown, dispatched=action())
    model.open_gate("hold")
    ends(session, "t2")
    assert ids(alice, session) == ["t1", "t2"]
    assert [payload["found"] for _, payload in events(session, "history_cut")] == [False, False]


@pytest.mark.rule("R220")
def test_a_running_turn_is_cut_too(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = talked(alice, model, 2)
    start(alice, session, model.script([text("half"), gate("hold")]), "t3")
    model.wait_gate("hold")
    put(alice, session, "queued")
    truncating.truncate(alice.caller, session, "t1", dispatched=action())
    model.open_gate("hold")
    shown = state.read(alice.caller, session)
    assert ([turn.id for turn in shown.turns], shown.live, shown.summary.state) == (["t1"], None, "idle")
    assert [each["id"] for each in shown.queued] == ["m1"]
    assert answers(session) == ["answer 1"]
    told = [(kind, payload.get("cause")) for kind, payload in events(session)][-2:]
    assert told == [("turn_cancelled", "cut"), ("history_cut", None)]


@pytest.mark.rule("R418")
def test_a_failure_is_no_longer_shown_after_a_cut(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([status(400)]))
    ends(session, "t1", "error")
    assert entries.of(alice.caller.tenant, [session.pk])[session.pk].state == "failed"
    truncating.truncate(alice.caller, session, "t1", dispatched=action())
    assert entries.of(alice.caller.tenant, [session.pk])[session.pk].state == "idle"
    start(alice, session, model.script([status(400)]), "t2")
    ends(session, "t2", "error")
    assert entries.of(alice.caller.tenant, [session.pk])[session.pk].state == "failed"


@pytest.mark.rule("R206")
def test_a_cut_ends_a_turn_that_waits(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = make(alice)
    start(alice, session, model.script([call("add_one", {"n": 1})]))
    waiting_call(session, "add_one")
    ends(session, "t1", "waiting")
    truncating.truncate(alice.caller, session, None, dispatched=action())
    assert said(session) == []
    assert state_of(session, "t1") == "cancelled"


def test_a_cut_and_a_start_at_the_same_moment_are_both_complete(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = talked(alice, model, 2)
    outcomes = at_once(
        lambda: truncating.truncate(alice.caller, session, "t1", dispatched=action()),
        lambda: start(alice, session, model.script([text("answer 3")]), "t3"),
    )
    assert errors_of(outcomes) == ["done", "done"]
    ends(session, "t3", "done", "cancelled")
    assert ids(alice, session) in (["t1"], ["t1", "t3"])
    kept = Message.objects.filter(session=session, cut_at=None, role="user").count()
    assert kept == len(ids(alice, session))


def locked_elsewhere(session: Session, turn: str) -> bool:
    with transaction.atomic():
        return not Turn.objects.filter(session=session, public_id=turn).select_for_update(skip_locked=True).exists()


@pytest.mark.rule("R220")
def test_a_turn_that_wants_to_end_during_a_cut_is_cut_whole(
    alice: World, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer: nothing can come in between")
    start_worker()
    session = talked(alice, model, 1)
    start(alice, session, model.script([text("answer 2"), gate("end")]), "t2")
    ends(session, "t2", "running")
    original = history.cut

    def cut(*arguments: Any) -> None:
        original(*arguments)
        (is_locked,) = at_once(lambda: locked_elsewhere(session, "t2"))
        if not is_locked:
            # Then the run may end the turn now.
            model.open_gate("end")
            ends(session, "t2")

    monkeypatch.setattr(history, "cut", cut)
    truncating.truncate(alice.caller, session, "t1", dispatched=action())
    assert state_of(session, "t2") == "cancelled"
    assert ids(alice, session) == ["t1"]
    assert answers(session) == ["answer 1"]


# --- forking ---


def fork(world: World, source: Session, turn: str, uri: str = "sailor:/fork", **given: Any) -> Session:
    return make_session_of_client(world.caller, uri=uri, agent=None, fork=Fork(source, turn), **given)


@pytest.mark.rule("R221")
def test_a_fork_has_the_turns_up_to_one_and_changes_nothing_in_its_source(
    alice: World, start_worker: Any, model: ModelServer
) -> None:
    tools.forget()
    start_worker()
    source = make(alice, options={"tone": "softly", "key": "sk-mine"}, approval="auto")
    start(alice, source, model.script([call("add_one", {"n": 1})], [text("answer 1")]), "t1")
    ends(source, "t1")
    for number in (2, 3):
        start(alice, source, model.script([text(f"answer {number}")]), f"t{number}")
        ends(source, f"t{number}")
    copied = fork(alice, source, "t2")
    before = state.read(alice.caller, source)
    after = state.read(alice.caller, copied)
    # The copies have the fork's own time.
    assert [replace(turn, began="", duration_ms=0) for turn in after.turns] == [
        replace(turn, began="", duration_ms=0) for turn in before.turns[:2]
    ]
    assert (after.summary.title, after.approval) == (before.summary.title, "auto")
    assert options.opened(copied.tenant_id, copied.pk) == {"tone": "softly", "key": "sk-mine"}
    assert said(copied) == said(source)[:6]
    assert events(copied, "turn_started") == []
    script = model.script([text("elsewhere")])
    start(alice, copied, script, "t3")
    ends(copied, "t3")
    assert len(model.requests_of(script)[0].messages) == 8
    assert answers(source)[-1] == "answer 3"
    truncating.truncate(alice.caller, source, None, dispatched=action())
    deleting.delete(alice.caller, source)
    assert ids(alice, copied) == ["t1", "t2", "t3"]


@pytest.mark.rule("R221")
def test_a_forks_own_options_replace_those_of_its_source(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    source = talked(alice, model, 1, options={"tone": "softly"})
    copied = fork(alice, source, "t1", options={"tone": "loudly"})
    assert listing.facts(copied).options == {"tone": "loudly"}
    again = fork(alice, copied, "t1", uri="sailor:/again")
    assert ids(alice, again) == ["t1"]


@pytest.mark.rule("R221")
def test_a_fork_needs_a_turn_that_has_ended(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    source = talked(alice, model, 1)
    start(alice, source, model.script([text("half"), gate("hold")]), "t2")
    model.wait_gate("hold")
    with pytest.raises(TurnAlreadyRunning):
        fork(alice, source, "t2")
    with pytest.raises(TurnUnknown):
        fork(alice, source, "nonsense")
    assert len(entries.listed(alice.caller)) == 1
    # A turn that runs in the source is not in the way of an earlier one.
    copied = fork(alice, source, "t1")
    assert ids(alice, copied) == ["t1"]
    assert state.read(alice.caller, copied).live is None
    model.open_gate("hold")
    ends(source, "t2")


def test_a_fork_during_a_cut_is_complete_or_refused(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    source = talked(alice, model)
    outcomes = errors_of(
        at_once(
            lambda: fork(alice, source, "t3", "sailor:/a"),
            lambda: fork(alice, source, "t3", "sailor:/b"),
            lambda: truncating.truncate(alice.caller, source, "t1", dispatched=action()),
        )
    )
    assert set(outcomes) <= {"done", "TurnUnknown"}
    copies = Session.objects.exclude(pk=source.pk)
    assert copies.count() == outcomes.count("done") - 1
    for copied in copies:
        assert ids(alice, copied) == ["t1", "t2", "t3"]
        assert answers(copied) == ["answer 1", "answer 2", "answer 3"]


# --- seeds ---


@pytest.mark.rule("R387")
def test_a_seed_is_shown_as_ended_turns(alice: World, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = alice.session(seed=SEED)
    alice.say(session, model.script([text("third")]))
    wait_for(lambda: Turn.objects.filter(session=session, state="done").first(), "the turn's end")
    shown = state.read(alice.caller, session)
    assert [(turn.id, turn.text, turn.ending) for turn in shown.turns[:2]] == [
        ("seed-2", "first", "complete"),
        ("seed-6", "second", "complete"),
    ]
    assert len(shown.turns) == 3
    parts = shown.turns[0].parts
    assert [part.kind for part in parts] == ["thinking", "text", "call", "text"]
    view = parts[2].call
    assert view is not None
    assert (view.status, view.content, view.input) == ("done", "2", '{"n":1}')
    copied = fork(alice, session, "seed-2")
    assert [content for role, content in said(copied)] == [exact_json.loads(exact_json.dumps(x["content"])) for x in SEED[:5]]
    truncating.truncate(alice.caller, session, "seed-2", dispatched=action())
    assert ids(alice, session) == ["seed-2"]
    assert len(stored_messages.read(session, "full")) == 5
