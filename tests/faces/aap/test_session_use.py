"""Dates and use of sessions at /api/sessions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sessions_app.core.tenancy import usage_entries
from sessions_app.models import ModelUse, Session
from tests.faces.aap.conftest import Person, problem


def used(session: str, days_ago: int = 0, **counts: Any) -> None:
    row = Session.objects.get(public_id=session)
    ModelUse.objects.create(
        tenant_id=row.tenant_id,
        day=usage_entries.today() - timedelta(days=days_ago),
        session=session,
        agent="pilot",
        model=f"openai:m{ModelUse.objects.count()}",
        purpose="turn",
        **{"calls": 1, "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cost_nano": None, **counts},
    )


def api(person: Person) -> Person:
    return Person(person.key, "/api")


def test_a_session_has_its_dates_and_the_sum_of_its_model_calls(alice: Person) -> None:
    session, other = alice.create(), alice.create()
    Session.objects.filter(public_id=session).update(
        created_at=Session.objects.get(public_id=other).created_at - timedelta(days=3)
    )
    used(session, days_ago=2, input_tokens=100, output_tokens=20, cache_read_tokens=50, cost_nano=1_500_000)
    used(session, input_tokens=10, output_tokens=2, cost_nano=500_001, calls=2)
    used(session, input_tokens=7, output_tokens=1)
    used(other, input_tokens=1000)
    response = api(alice).get(f"/sessions/{session}")
    assert response.status_code == 200
    found = response.json()
    assert found["use"] == {
        "calls": 4,
        "inputTokens": 117,
        "outputTokens": 23,
        "cacheReadTokens": 50,
        "cost": "0.002000001",
        "unpricedTokens": 8,
    }
    assert (found["sessionId"], found["agent"], found["uri"]) == (session, "pilot", f"pilot:/{session}")
    assert found["createdAt"] < found["modifiedAt"]


def test_a_session_without_calls_has_used_nothing_and_has_no_cost(alice: Person) -> None:
    use = api(alice).get(f"/sessions/{alice.create()}").json()["use"]
    assert use["cost"] is None
    assert not any(use[name] for name in ("calls", "inputTokens", "outputTokens", "unpricedTokens"))


def test_the_use_of_a_session_is_as_hidden_as_the_session(alice: Person, bob: Person) -> None:
    session = alice.create()
    problem(api(bob).get(f"/sessions/{session}"), 404)
    problem(api(alice).get("/sessions/sess_unknown"), 404)
    problem(Person(None, "/api").get(f"/sessions/{session}"), 401)
    alice.delete(f"/sessions/{session}")
    problem(api(alice).get(f"/sessions/{session}"), 404)
