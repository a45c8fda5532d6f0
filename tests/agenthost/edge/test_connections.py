"""Counting connections and addresses; pure."""

from __future__ import annotations

import pytest

from agenthost.edge.addresses import Slots, group_of
from agenthost.edge.connections import RESERVE, Admission, Connections, Limits


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("x" * 5000, "x" * 64),
    ],
)
def test_an_ipv6_client_counts_as_its_network(host: str, group: str) -> None:
    assert group_of(host) == group


def test_slots_are_kept_apart_by_name_and_forgotten_when_given_back() -> None:
    slots = Slots(lambda: 2)
    assert [slots.take("a"), slots.take("a"), slots.take("a"), slots.take("b")] == [True, True, False, True]
    slots.give_back("a")
    assert slots.take("a")
    for name in ("a", "a", "b"):
        slots.give_back(name)
    assert len(slots) == 0


def test_a_slot_is_released_once() -> None:
    connections = Connections(Limits(connections=10, per_address=1))
    admission, slot = connections.enter("192.0.2.1")
    assert admission is Admission.ADMITTED
    assert connections.enter("192.0.2.1")[0] is Admission.ADDRESS_IS_FULL
    slot.release()
    slot.release()
    assert connections.open == 1
    assert connections.enter("192.0.2.1")[0] is Admission.ADMITTED
    assert connections.enter("192.0.2.1")[0] is Admission.ADDRESS_IS_FULL


def test_a_full_server_tells_some_and_drops_the_rest() -> None:
    connections = Connections(Limits(connections=3, per_address=1))
    outcomes = [connections.enter(None)[0] for _ in range(3 + RESERVE + 2)]
    assert outcomes == [Admission.ADMITTED] * 3 + [Admission.SERVER_IS_FULL] * RESERVE + [Admission.DROPPED] * 2
