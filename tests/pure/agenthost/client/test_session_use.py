"""Dates and use of sessions, as the server reports them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from agenthost.client.session_use import Use, date_text, read

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("when", "shown"),
    [
        ("2026-02-28T22:10:00Z", "00:10"),
        ("2026-02-28T21:50:00Z", "Feb 28"),
        ("2025-12-31T12:00:00+00:00", "2025-12-31"),
        ("2026-02-28T22:10:00", "00:10"),
        ("yesterday", ""),
        (None, ""),
    ],
)
def test_a_date_is_shown_as_briefly_as_it_is_clear(when: Any, shown: str) -> None:
    assert date_text(read({"modifiedAt": when}).modified_at, NOW) == shown


@pytest.mark.parametrize(
    ("cost", "shown"), [("0.000001234", "0.000001234"), ("1234.5", "1,234.50"), ("0.0123456", "0.01235"), ("0", "0")]
)
def test_costs_are_rounded_and_never_exponents(cost: str, shown: str) -> None:
    use = read({"use": {"inputTokens": 1200, "outputTokens": 3, "cost": cost}}).use
    assert str(use) == f"1,200 tokens in, 3 out, cost {shown}"


def test_the_use_of_an_answer_is_the_difference() -> None:
    assert Use(10, 5, Decimal("0.5")).since(Use(4, 1, Decimal("0.2"))) == Use(6, 4, Decimal("0.3"))
    assert Use(10, 5, Decimal("0.5")).since(Use(4, 1)) == Use(6, 4, Decimal("0.5"))
    assert Use(10, 5).since(Use(10, 5)).is_nothing


@pytest.mark.parametrize("value", ["NaN", "1e999999", "x" * 100, 7, True, -1, [], {}])
def test_malformed_values_are_left_out(value: Any) -> None:
    found = read({"modifiedAt": value, "use": {"inputTokens": str(value), "outputTokens": [value], "cost": value}})
    assert found.use == Use()
    assert found.modified_at is None
    assert read({"use": value}).use == Use()
