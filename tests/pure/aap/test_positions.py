"""Stream positions, as clients see them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.aap import positions
from sessions_app.core.base.errors import UnknownPosition

KEY = positions.signing_key("a secret")
numbers = st.integers(0, 2**63 - 1)


@pytest.mark.rule("A120")
@given(numbers, numbers)
def test_positions_are_in_the_order_of_the_events(first: int, second: int) -> None:
    one, two = positions.write(KEY, "sess_a", first), positions.write(KEY, "sess_a", second)
    assert (one < two) == (first < second)
    assert len(one) == len(two)
    assert positions.read([KEY], "sess_a", one) == first


@pytest.mark.rule("A120")
@given(st.text() | st.from_regex(r"\A[0-9a-f]{28}\Z"))
def test_a_forged_position_is_unknown(position: str) -> None:
    with pytest.raises(UnknownPosition):
        positions.read([KEY], "sess_a", position)


@pytest.mark.rule("A3", "A120")
def test_a_position_of_another_session_number_or_server_is_unknown() -> None:
    position = positions.write(KEY, "sess_a", 7)
    for key, session, text in [
        (KEY, "sess_b", position),
        (KEY, "sess_a", position.replace("7", "8", 1)),
        (positions.signing_key("another secret"), "sess_a", position),
        (KEY, "sess_a", position.upper() + " "),
        (KEY, "sess_a", " " + position[1:]),
    ]:
        with pytest.raises(UnknownPosition):
            positions.read([key], session, text)
