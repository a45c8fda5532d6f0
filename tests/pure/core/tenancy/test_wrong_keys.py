"""Counting and remembering wrong keys; pure."""

from __future__ import annotations

import pytest

from sessions_app.core.base.errors import NotAuthenticated, TooManyWrongKeys
from sessions_app.core.tenancy import wrong_keys
from sessions_app.core.tenancy.wrong_keys import CACHED_SECONDS, WrongKeys


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def try_wrong(keys: WrongKeys, digest: str, address: str = "a") -> str:
    try:
        keys.before_lookup(digest, address)
    except NotAuthenticated:
        return "remembered"
    except TooManyWrongKeys as error:
        return f"in {error.retry_after} s"
    keys.remember(digest)
    return "looked up"


def test_an_address_may_try_again_when_the_answer_says(clock: Clock) -> None:
    keys = WrongKeys(lambda: 6, clock)
    assert [try_wrong(keys, str(number)) for number in range(7)] == ["looked up"] * 6 + ["in 10 s"]
    clock.now += 9
    assert try_wrong(keys, "x") == "in 1 s"
    clock.now += 1
    assert try_wrong(keys, "x") == "looked up"
    assert try_wrong(keys, "y") == "in 10 s"


def test_the_same_wrong_key_is_counted_and_not_looked_up(clock: Clock) -> None:
    keys = WrongKeys(lambda: 3, clock)
    assert [try_wrong(keys, "same") for _ in range(4)] == ["looked up", "remembered", "remembered", "in 20 s"]
    clock.now += 60
    assert try_wrong(keys, "same") == "looked up"


def test_keys_are_remembered_for_a_moment_and_in_a_bounded_number(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_keys, "_MOST_REMEMBERED", 3)
    keys = WrongKeys(lambda: 0, clock)
    for digest in "abcd":
        assert try_wrong(keys, digest) == "looked up"
    assert [try_wrong(keys, digest) for digest in "bcd"] == ["remembered"] * 3
    assert try_wrong(keys, "a") == "looked up"
    clock.now += CACHED_SECONDS
    assert try_wrong(keys, "d") == "looked up"
    assert len(keys._until) <= 3


def test_addresses_are_kept_in_a_bounded_number_and_the_quietest_goes_first(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrong_keys, "_MOST_ADDRESSES", 2)
    keys = WrongKeys(lambda: 1, clock)
    assert try_wrong(keys, "1", "quiet") == "looked up"
    assert try_wrong(keys, "2", "loud") == "looked up"
    assert try_wrong(keys, "3", "new") == "looked up"
    assert try_wrong(keys, "4", "loud").startswith("in ")
    assert try_wrong(keys, "5", "quiet") == "looked up"
    assert len(keys._buckets) == 2
