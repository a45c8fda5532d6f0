"""Limits, as clients see them: 429 with the time of the next attempt, headers with the rest of a rate, sizes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sessions_app.aap import ratelimit
from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import QuotaExceeded
from sessions_app.core.tenancy import keys, rates, tenants, usage_entries
from sessions_app.core.tenancy.quotas import Quota, RateStatus
from sessions_app.models import ApiKey, Measure, Session, Tenant, Turn
from tests.faces.aap.conftest import HELLO, Person, problem, whole


@pytest.fixture(autouse=True)
def _own_rates() -> Iterator[None]:
    rates.reset()
    yield
    rates.reset()


def limit_tenant(**limits: int) -> None:
    tenants.set_limits(Tenant.objects.get(slug="alice"), Limits(**limits), session_retention_days=None, actor="tests")


def limit_key(**limits: int) -> None:
    keys.set_limits(ApiKey.objects.get(tenant__slug="alice"), Limits(**limits), actor="tests")


def refusal(response: Any) -> tuple[str, int]:
    """What a 429 says: the policy's name and the seconds to wait, told the same way everywhere."""
    document = problem(response, 429)
    assert document["title"] == "Too Many Requests"
    assert re.fullmatch(r"[1-9][0-9]*", response["Retry-After"])
    name, _, rest = response["RateLimit"].partition(";")
    assert rest == f"r=0;t={response['Retry-After']}"
    assert response["RateLimit-Policy"].startswith(f"{name};q=")
    return name.strip('"'), int(response["Retry-After"])


@pytest.mark.rule("A6", "A122")
def test_turns_at_once_are_refused_with_when_to_come_again_and_let_in_when_one_has_ended(alice: Person) -> None:
    limit_tenant(turns_at_once=1)
    first, second = alice.create(), alice.create()
    alice.turn(first)
    response = alice.turn(second)
    assert refusal(response) == ("turns-at-once", 2)
    assert response["RateLimit-Policy"] == '"turns-at-once";q=1;qu="concurrent-requests"'
    assert problem(response, 429)["detail"] == "This tenant has reached its limit of 1 simultaneous turns."
    assert alice.history(second) == []
    alice.cancel(first)
    assert alice.turn(second).status_code == 200


@pytest.mark.rule("A6", "A122")
def test_answers_show_how_much_of_a_rate_is_left(alice: Person) -> None:
    limit_tenant(turns_per_minute=3)
    limit_key(turns_per_minute=2)
    sessions = [alice.create() for _ in range(3)]
    began = time.monotonic()
    first = alice.turn(sessions[0])
    assert first["RateLimit-Policy"] == '"turns-per-minute";q=3;w=60, "turns-per-minute-of-key";q=2;w=60'
    found = re.fullmatch(r'"turns-per-minute";r=2;t=(\d+), "turns-per-minute-of-key";r=1;t=(\d+)', first["RateLimit"])
    assert found is not None
    assert all(60 - (time.monotonic() - began) - 1 <= int(each) <= 60 for each in found.groups())
    assert 'of-key";r=0;' in alice.turn(sessions[1])["RateLimit"]
    name, seconds = refusal(alice.turn(sessions[2]))
    assert name == "turns-per-minute-of-key"
    assert 60 - (time.monotonic() - began) - 1 <= seconds <= 60
    assert alice.history(sessions[2]) == []


def test_answers_without_a_rate_have_no_ratelimit_headers(alice: Person) -> None:
    response = alice.turn(alice.create())
    assert "RateLimit" not in response
    assert "RateLimit-Policy" not in response


@pytest.mark.rule("A6", "A7")
def test_sessions_beyond_their_number_are_refused_until_one_is_deleted(alice: Person) -> None:
    limit_key(sessions=1)
    there = alice.create()
    assert refusal(alice.post("/sessions", {"agent": {"name": "pilot"}})) == ("sessions-of-key", 60)
    assert Session.objects.count() == 1
    alice.delete(f"/sessions/{there}")
    alice.create()


@pytest.mark.rule("A6", "A7")
def test_a_seed_beyond_the_stored_bytes_is_refused_whole(alice: Person) -> None:
    limit_tenant(stored_bytes=1000)
    long = [{"role": "user", "content": "x" * 2000}]
    assert refusal(alice.post("/sessions", {"agent": {"name": "pilot"}, "messages": long})) == ("stored-bytes", 60)
    assert not Session.objects.exists()
    assert usage_entries.used(Tenant.objects.get(slug="alice").pk, Measure.BYTES) == 0
    alice.create(messages=[HELLO])


@pytest.mark.rule("A7", "A98")
def test_a_request_sent_again_is_answered_as_the_first_time_and_not_refused(alice: Person) -> None:
    limit_tenant(turns_per_minute=1, turns_at_once=1, sessions=1)
    body = {"agent": {"name": "pilot"}}
    made = {alice.post("/sessions", body, **{"Idempotency-Key": "s"}).json()["sessionId"] for _ in range(3)}
    assert len(made) == 1
    session = made.pop()
    turn = {"messages": [HELLO], "stream": "delta"}
    ids = {alice.post(f"/sessions/{session}/turns", turn, **{"Idempotency-Key": "t"})["X-Turn-Id"] for _ in range(3)}
    assert len(ids) == Turn.objects.count() == 1
    alice.cancel(session)
    assert whole(alice.post(f"/sessions/{session}/turns", turn, **{"Idempotency-Key": "t"}))
    refusal(alice.turn(session))


@pytest.mark.rule("A4", "A93")
@pytest.mark.parametrize("whose", [limit_tenant, limit_key])
def test_a_body_larger_than_the_caller_may_send_is_413(alice: Person, whose: Any) -> None:
    session = alice.create()
    whose(request_bytes=300)
    long = {"messages": [{"role": "user", "content": "x" * 300}], "stream": "delta"}
    for path in ("/sessions", f"/sessions/{session}/turns", f"/sessions/{session}/cancel"):
        document = problem(alice.post(path, long), 413)
        assert "at most 300 bytes" in document["detail"]
    assert alice.history(session) == []
    assert alice.turn(session).status_code == 200


def test_a_keys_body_limit_above_the_servers_changes_nothing(alice: Person, settings: Any) -> None:
    settings.AGENTHOST_MAX_BODY_BYTES = 200
    limit_tenant(request_bytes=10_000)
    problem(alice.post("/sessions", {"agent": {"name": "pilot"}, "messages": [{"role": "user", "content": "x" * 300}]}), 413)


def test_a_wrong_key_is_401_whatever_the_bodys_size(alice: Person) -> None:
    limit_tenant(request_bytes=1)
    problem(Person("ah_" + "x" * 43).post("/sessions", {"agent": {"name": "pilot"}}), 401)


def test_every_quota_has_a_text_and_headers_that_can_be_parsed(alice: Person) -> None:
    from sessions_app.aap import problems

    for quota in Quota:
        found = problems.problem_of(QuotaExceeded(quota, 2**62, 7, window=60))
        assert found is not None
        assert found.status == 429
        # A structured field's integer ends at 15 digits.
        assert found.headers["RateLimit-Policy"].startswith(f'"{quota}";q=999999999999999')
    standing = RateStatus(Quota.TURNS_PER_MINUTE, of_key=False, limit=2**62, left=2**62, seconds=1, window=60)
    assert ";r=999999999999999;t=1" in ratelimit.of_standings([standing])["RateLimit"]


@pytest.mark.rule("A6", "A7")
def test_a_session_that_is_full_takes_no_turn_and_can_be_read_and_deleted(alice: Person, settings: Any) -> None:
    settings.AGENTHOST_SESSION_BYTES = 2_000
    session = alice.create(messages=[{"role": "user", "content": "x" * 2_000}])
    detail = problem(alice.turn(session), 422)["detail"]
    assert "size limit of 2,000 bytes (AGENTHOST_SESSION_BYTES)" in detail
    assert len(alice.history(session)) == 1
    assert Turn.objects.count() == 0
    assert alice.turn(alice.create()).status_code == 200
    assert alice.delete(f"/sessions/{session}").status_code == 204
