"""Limits on connections and addresses."""

from __future__ import annotations

from agenthost.edge.addresses import Slots
from agenthost.edge.connections import RESERVE, Admission, Connections, Limits
from sessions_app.core.base.byte_budget import ByteBudget


def test_slots_are_counted_per_name_and_released() -> None:
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


def test_a_full_server_refuses_some_connections_and_drops_the_rest() -> None:
    connections = Connections(Limits(connections=3, per_address=1))
    outcomes = [connections.enter(None)[0] for _ in range(3 + RESERVE + 2)]
    assert outcomes == [Admission.ADMITTED] * 3 + [Admission.SERVER_IS_FULL] * RESERVE + [Admission.DROPPED] * 2


def test_one_sender_gets_at_most_half_of_the_body_budget() -> None:
    bodies = ByteBudget(lambda: 160)
    assert [bodies.take("a", 50), bodies.take("a", 30), bodies.take("a", 1)] == [True, True, False]
    assert [bodies.take("b", 61), bodies.take("b", 60)] == [False, True]
    # What two owners leave is for others that hold little.
    assert [bodies.take("c", 11), bodies.take("c", 10), bodies.take("c", 1)] == [False, True, False]
    assert [bodies.take("d", 10), bodies.take("e", 1)] == [True, False]
    bodies.give_back("a", 50)
    assert bodies.take("c", 30)
    for owner, size in (("a", 30), ("b", 60), ("c", 40), ("d", 10), ("e", 0)):
        bodies.give_back(owner, size)
    assert bodies.held == 0
    assert bodies.take("a", 80)
