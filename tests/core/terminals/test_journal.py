"""Terminals' events in the journal: beside those of sessions, fenced, pruned, and forgotten."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from agents_app import exact_json
from sessions_app.core.base import journal_keys
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal import marks, pruning
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.terminals import changing, checkpoints, creating, disposing, ending, services, state
from sessions_app.core.terminals.types import Claim
from sessions_app.core.workspaces import volume
from sessions_app.models import Pruned, Terminal
from tests.core.conftest import WAIT, World, kinds, locked, wait_for
from tests.core.dispatching import of_tenant

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def terminal(alice: World, tmp_path: Path, settings: Any) -> Terminal:
    """A terminal that the service ``mine`` has claimed."""
    settings.AGENTHOST_WORKSPACES_DIR, settings.AGENTHOST_TERMINALS = tmp_path / "workspaces", True
    volume.forget()
    services.renew("mine")
    wanted = creating.Wanted("term:/one", Claim(client="c1"))
    row = creating.create(alice.caller, wanted, "c1")
    [claimed] = services.claim("mine", 10)
    assert (claimed.terminal, claimed.fence) == (row.pk, 1)
    assert services.claim("other", 10) == []
    return Terminal.objects.get(pk=row.pk)


def say(row: Terminal, text: str, fence: int = 1) -> None:
    with journal.transaction() as tx:
        happening = Happening(Kind.TERMINAL_DATA, {"delta": text}, "output")
        tx.append(NewEvent(row.tenant_id, journal_keys.of_terminal(row.pk), happening, fence))


def shown(world: World, row: Terminal) -> str:
    return "".join(part.text for part in state.read(world.caller, row).screen.parts)


def test_an_ended_terminal_takes_no_output_of_its_service(alice: World, terminal: Terminal) -> None:
    say(terminal, "one")
    assert ending.exited(terminal.pk, 1, None, message=" end")
    with pytest.raises(journal.StaleFence):
        say(terminal, "late")
    assert not ending.exited(terminal.pk, 1, 0)
    assert not ending.retitle(terminal.pk, 1, "late")
    assert shown(alice, terminal) == "one end"
    assert [len(each["terminals"]) for each in of_tenant(alice.caller.tenant, "terminals_changed")] == [1, 1]


def test_lists_of_terminals_are_appended_in_the_order_of_changes(alice: World, terminal: Terminal) -> None:
    changing.rename(alice.caller, terminal, "A", dispatched=None)
    changing.claim(alice.caller, terminal, Claim(client="c2"), "c1", dispatched=None)
    disposing.dispose(alice.caller, terminal)
    lists = [each["terminals"] for each in of_tenant(alice.caller.tenant, "terminals_changed")]
    assert [[(one["title"], one["claim"]["client"]) for one in each] for each in lists] == [
        [("", "c1")],
        [("A", "c1")],
        [("A", "c2")],
        [],
    ]


def test_pruning_leaves_the_screen_and_the_sessions(alice: World, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    session = alice.session()
    for number in range(5):
        say(terminal, f"line {number}\r\n")
    before = kinds(session)
    through = checkpoints.store(terminal.pk)
    say(terminal, "after")
    key = journal_keys.of_terminal(terminal.pk)
    assert journal.prune_covered(key, through, LATER, 100) == 5
    assert [exact_json.loads(each.data)["delta"] for each in journal.events_of(key, 0) if each.kind == "terminal_data"] == [
        "after"
    ]
    assert shown(alice, terminal) == "".join(f"line {number}\r\n" for number in range(5)) + "after"
    with pytest.raises(PositionPruned):
        journal.read_session(terminal.tenant_id, key, 1)
    assert kinds(session) == before
    # The general pruning, of a terminal whose newest output no checkpoint has yet: it is made within half a minute.
    checkpoints.store(terminal.pk)
    monkeypatch.setattr(pruning, "KEPT", 0)
    assert journal.prune(LATER, datetime.now(UTC) - timedelta(days=1), 100) == 1
    assert shown(alice, terminal).endswith("after")
    assert not Pruned.objects.filter(session_id__lt=0, session_id__gt=marks.tenant_mark(0) + 1).exists()


def test_a_screen_is_stored_once_for_all_its_events(alice: World, terminal: Terminal) -> None:
    say(terminal, "one")
    first = checkpoints.store(terminal.pk)
    assert checkpoints.store(terminal.pk) == first
    changing.clear(alice.caller, terminal, dispatched=None)
    say(terminal, "two")
    assert checkpoints.store(terminal.pk) > first
    assert shown(alice, terminal) == "two"


def test_changes_at_once_are_both_in_the_last_list(alice: World, terminal: Terminal, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one write transaction at a time")
    tenant = alice.caller.tenant

    def create(number: int) -> None:
        try:
            creating.create(alice.caller, creating.Wanted(f"term:/{number}", Claim(client="c1")), "c1")
        finally:
            connection.close()

    threads = [threading.Thread(target=create, args=(number,)) for number in range(2)]
    with locked(lambda: journal.lock_counter(tenant)):
        for thread in threads:
            thread.start()
        wait_for(lambda: waiting_for_locks() == 2, "both wait for the counter")
    for thread in threads:
        thread.join(WAIT)
    last = of_tenant(tenant, "terminals_changed")[-1]["terminals"]
    assert sorted(each["uri"] for each in last) == ["term:/0", "term:/1", "term:/one"]


def waiting_for_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select pg_stat_clear_snapshot()")
        cursor.execute("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
        return int(cursor.fetchone()[0])
