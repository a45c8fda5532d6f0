"""Parsing of server-sent events in any form that the standard allows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenthost.client import sse
from agenthost.client.sse import Event, EventReader, EventTooLong

STREAM = (
    '\ufeff: a comment\r\nid: 7\r\nevent: text_delta\r\ndata: {"delta":"naïve ☃"}\r\n\r\n'
    "data:without a blank\rdata\rdata: third\r\r"
    "id\nevent: later\nretry: 5\ndata: x\n\n"
    "id: 8\n\nevent: dropped\n\ndata: after\n\nid: bad\0id\ndata: z\n\ndata: never ended"
).encode()
EVENTS = [
    Event("7", "text_delta", '{"delta":"naïve ☃"}'),
    Event("7", "message", "without a blank\n\nthird"),
    Event("", "later", "x"),
    Event("8", "message", "after"),
    Event("8", "message", "z"),
]


def read(*chunks: bytes) -> list[Event]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


def test_every_form_of_the_standard_is_parsed() -> None:
    assert read(STREAM) == EVENTS


def test_any_single_chunk_boundary_does_not_change_events() -> None:
    assert read(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_chunk_boundaries_do_not_change_events(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[start:end] for start, end in itertools.pairwise(places))) == EVENTS


def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_CHARACTERS", 100)
    reader = EventReader()
    reader.feed(b"data: " + b"x" * 80)
    with pytest.raises(EventTooLong):
        reader.feed(b"x" * 80)


def test_served_messages_are_no_longer_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MOST_CHARACTERS", 100)
    reader = EventReader()
    for _ in range(50):
        assert len(reader.feed(b"data: " + b"x" * 80 + b"\n\n")) == 1
