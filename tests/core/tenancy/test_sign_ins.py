"""Limits on failed sign-ins: what counts, what is refused, and for how long."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from axes.models import AccessAttempt
from django.db.models import F
from pytest_django import Settings

from sessions_app.core.tenancy import audit, sign_ins
from sessions_app.core.tenancy.sign_ins import Attempt
from sessions_app.models import AuditRecord
from tests.core.threads import at_once, errors_of

pytestmark = pytest.mark.django_db(transaction=True)

HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"
QUARTER = timedelta(minutes=15)


@pytest.fixture(autouse=True)
def limits(settings: Settings) -> None:
    settings.AGENTHOST_SIGN_IN_FAILURES = 5
    settings.AGENTHOST_SIGN_IN_FAILURES_OF_ADDRESS = 8
    settings.AGENTHOST_SIGN_IN_FAILURES_OF_ACCOUNT = 12
    settings.AGENTHOST_SIGN_IN_COOL_OFF_SECONDS = QUARTER.total_seconds()


def fail(account: str, address: str, times: int = 1) -> None:
    for _ in range(times):
        attempt = Attempt(account, address)
        assert sign_ins.begin(attempt) is None
        sign_ins.fail(attempt)


def is_refused(account: str, address: str) -> bool:
    wait = sign_ins.begin(Attempt(account, address))
    return wait is not None


def later(by: timedelta) -> None:
    """Make the counted failures older."""
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - by)


def test_after_five_failures_the_account_is_refused_from_there_and_from_nowhere_else() -> None:
    fail("eve", HERE, 5)
    wait = sign_ins.begin(Attempt("eve", HERE))
    assert wait is not None
    assert timedelta(minutes=14) < wait <= QUARTER
    assert not is_refused("eve", ELSEWHERE)
    assert not is_refused("bob", HERE)


def test_the_last_failure_allowed_says_how_long_to_wait() -> None:
    fail("eve", HERE, 4)
    attempt = Attempt("eve", HERE)
    assert sign_ins.begin(attempt) is None
    wait = sign_ins.fail(attempt)
    assert wait is not None
    assert wait <= QUARTER


def test_refused_attempts_do_not_make_the_wait_longer() -> None:
    fail("eve", HERE, 5)
    later(timedelta(minutes=10))
    for _ in range(20):
        wait = sign_ins.begin(Attempt("eve", HERE))
        assert wait is not None
        assert wait <= timedelta(minutes=5)
    later(timedelta(minutes=5))
    assert not is_refused("eve", HERE)


def test_many_accounts_from_one_address_are_refused_together() -> None:
    for number in range(8):
        fail(f"guess{number}", HERE)
    assert is_refused("another", HERE)
    assert not is_refused("another", ELSEWHERE)


def test_a_network_of_ipv6_is_one_address() -> None:
    for number in range(5):
        fail("eve", f"2001:db8:1:2::{number + 1:x}")
    assert is_refused("eve", "2001:db8:1:2:aaaa:bbbb:cccc:dddd")
    assert not is_refused("eve", "2001:db8:1:3::1")


def test_the_port_that_a_proxy_reports_makes_no_new_address() -> None:
    for port in range(5):
        fail("eve", f"{HERE}:{50000 + port}")
    assert is_refused("eve", f"{HERE}:40000")


@pytest.mark.parametrize("address", ["", "unix:", "testclient"])
def test_without_an_address_there_is_a_limit_too(address: str) -> None:
    fail("eve", address, 5)
    assert is_refused("eve", address)


def test_an_account_guessed_from_many_addresses_is_refused_but_not_to_its_owner() -> None:
    sign_ins.begin(Attempt("eve", HERE))
    sign_ins.succeed(Attempt("eve", HERE))
    for number in range(12):
        fail("eve", f"203.0.113.{number}")
    assert is_refused("eve", "203.0.113.200")
    # An attacker that fails in eve's name does not lock eve out.
    assert not is_refused("eve", HERE)
    assert not is_refused("bob", "203.0.113.200")


def test_a_success_forgets_the_failures_of_that_account_there_and_no_others() -> None:
    fail("eve", HERE, 4)
    fail("root", HERE, 3)
    # The address has one failure left; an account of the attacker's own gives it no new ones.
    mine = Attempt("mine", HERE)
    assert sign_ins.begin(mine) is None
    sign_ins.succeed(mine)
    fail("root", HERE)
    assert is_refused("root", HERE)
    assert is_refused("eve", HERE)


def test_a_success_resets_the_count() -> None:
    for _ in range(3):
        fail("eve", HERE, 4)
        attempt = Attempt("eve", HERE)
        assert sign_ins.begin(attempt) is None
        sign_ins.succeed(attempt)


def test_attempts_at_the_same_moment_do_not_pass_together() -> None:
    outcomes = at_once(*[lambda: sign_ins.begin(Attempt("eve", HERE))] * 16)
    assert errors_of(outcomes) == ["done"] * 16
    assert outcomes.count(None) <= 5


def test_failures_lockouts_and_successes_are_records_and_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sessions_app.core.tenancy.sign_ins")
    fail("eve", HERE, 5)
    for _ in range(10):
        assert is_refused("eve", HERE)
    attempt = Attempt("eve", ELSEWHERE)
    assert sign_ins.begin(attempt) is None
    sign_ins.succeed(attempt)
    rows = list(AuditRecord.objects.order_by("id").values_list("action", "actor", "target", "address"))
    failed = ("sign_in_failed", "anonymous", "account eve", HERE)
    locked = ("sign_in_locked", "anonymous", "account eve", HERE)
    # Refused attempts are not recorded: otherwise anybody could fill the audit.
    assert rows == [*[failed] * 5, locked, ("signed_in", "admin:eve", "account eve", ELSEWHERE)]
    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("sign_in_failed account='eve'") and HERE in line for line in lines) == 5
    assert any(line.startswith("sign_in_locked ") for line in lines)
    assert any(line.startswith("signed_in account='eve'") and ELSEWHERE in line for line in lines)


def test_what_is_too_old_to_count_is_deleted() -> None:
    fail("eve", HERE, 5)
    later(QUARTER)
    fail("bob", ELSEWHERE)
    assert list(AccessAttempt.objects.values_list("username", flat=True)) == ["bob"]


def test_an_operator_lifts_the_wait_and_that_is_a_record() -> None:
    fail("eve", HERE, 5)
    with audit.acting(lambda: ("shell:ann", "host")):
        assert sign_ins.unlock(account="bob") == 0
        assert sign_ins.unlock(account="eve") == 1
    assert not is_refused("eve", HERE)
    row = AuditRecord.objects.filter(action="sign_in_unlocked").latest("id")
    assert (row.actor, row.target, row.address) == ("shell:ann", "account eve", "host")
