"""What happened lately in a tenant, over HTTP at /api/overview."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sessions_app.core import figures
from sessions_app.core.records import live_workers
from sessions_app.core.tenancy import keys
from sessions_app.models import Session, Tenant, TurnState
from tests.faces.aap.conftest import Person, key_of, problem
from tests.faces.aap.test_tokens import api
from tests.faces.admin.conversations import make_turn


def turn_of(session: str, state: TurnState = TurnState.DONE, **fields: Any) -> None:
    now = live_workers.database_clock()
    ended = {} if state == TurnState.WAITING else {"ended_at": now - timedelta(minutes=3)}
    began = now - timedelta(minutes=4)
    make_turn(Session.objects.get(public_id=session), state, created_at=began, queued_at=began, **ended, **fields)


def test_what_the_consoles_first_page_shows_is_one_request(alice: Person, bob: Person) -> None:
    mine, waiting, theirs = alice.create(), alice.create(), bob.create()
    turn_of(mine)
    turn_of(mine, TurnState.ERROR, failure='{"kind":"timeout"}')
    turn_of(waiting, TurnState.WAITING)
    turn_of(theirs)
    turn_of(bob.create(), TurnState.WAITING)
    for slug in ("alice", "bob"):
        tenant = Tenant.objects.get(slug=slug)
        soon = datetime.now(UTC) + timedelta(days=3)
        keys.issue(tenant, name=f"of {slug}", scopes=["use"], expires_at=soon, allowed_agents=None, actor="x")
    figures.keep(60.0)
    shown = api(alice).get("/overview").json()
    assert (shown["range"], shown["turns"], shown["errors"]) == ("day", 2, 1)
    assert (shown["running"], shown["queued"], shown["waiting"]) == (0, 0, 1)
    assert shown["durationSeconds"]["median"] > 0
    assert shown["firstOutputSeconds"] == {"median": None, "p95": None}
    assert (shown["calls"], shown["cost"]) == (0, "0")
    assert shown["agents"] == [{"agent": "pilot", "turns": 2, "errors": 1}]
    assert [(turn["sessionId"], turn["agent"]) for turn in shown["waitingLongest"]] == [(waiting, "pilot")]
    assert [key["name"] for key in shown["keysThatExpire"]] == ["of alice"]
    assert {"name": "sessions", "used": 2, "limit": None} in shown["limits"]
    assert api(alice).get("/overview?range=week").json()["turns"] == 2
    live_workers.announce("w1")
    assert api(alice).get("/overview").json()["workersAlive"] is True


def test_a_key_sees_of_the_overview_what_its_scopes_allow(alice: Person) -> None:
    session = alice.create()
    turn_of(session, TurnState.WAITING)
    shown = api(Person(key_of("alice", scopes=["use"]))).get("/overview").json()
    assert shown["waiting"] == 1
    assert "waitingLongest" not in shown
    assert "keysThatExpire" not in shown
    assert session not in str(shown)
    problem(api(Person(key_of("alice", scopes=["sessions:read", "keys"]))).get("/overview"), 403)
    problem(api(Person(key_of("alice", scopes=["use"], allowed=["pilot"]))).get("/overview"), 409)
    problem(api(alice).get("/overview?range=year"), 400)
