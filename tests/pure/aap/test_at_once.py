"""What a stream sends at once, in place of its task: deltas of a run that goes on, and nothing that may end the stream."""

from __future__ import annotations

from typing import cast

import pytest

from sessions_app.aap.keep_alive import Quiet
from sessions_app.aap.sse import _AtOnce
from sessions_app.aap.stream import RunEnd, SSEEncoder
from sessions_app.core.base import byte_budget
from sessions_app.core.base.events import Kind
from sessions_app.core.log.journal.types import Event


class Sent:
    """Counts what was sent, and stands for the timer of the stream's silence."""

    def __init__(self, *, must_wait: bool = False) -> None:
        self.chunks: list[bytes] = []
        self.noted = 0
        self._must_wait = must_wait

    def write(self, chunk: bytes) -> bool:
        if not self._must_wait:
            self.chunks.append(chunk)
        return not self._must_wait

    def sent(self) -> None:
        self.noted += 1


def at_once(sent: Sent, end: RunEnd | None = None) -> _AtOnce:
    encoder = SSEEncoder("delta", lambda seq: f"p{seq}")
    return _AtOnce(sent.write, encoder, end or RunEnd(5, inside=True), cast(Quiet, sent))


def event(seq: int, kind: Kind = Kind.TEXT_DELTA, data: str = '{"turn":"t","delta":"a"}') -> Event:
    return Event(seq, 1, kind.value, data)


def test_deltas_that_came_together_are_one_chunk_and_end_the_silence() -> None:
    sent = Sent()
    assert at_once(sent)([event(6), event(7)])
    assert sent.chunks == [
        b'id: p6\nevent: text_delta\ndata: {"delta":"a"}\n\nid: p7\nevent: text_delta\ndata: {"delta":"a"}\n\n'
    ]
    assert sent.noted == 1


def test_events_without_a_form_in_this_mode_are_done_and_send_nothing() -> None:
    sent = Sent()
    assert at_once(sent)([event(6, Kind.TEXT_OPENED, '{"turn":"t"}')])
    assert (sent.chunks, sent.noted) == ([], 0)


@pytest.mark.parametrize("kind", [Kind.TURN_ENDED, Kind.TURN_CANCELLED, Kind.RUN_PAUSED, Kind.TURN_STARTED, Kind.CALL_FINISHED])
def test_with_an_event_that_the_task_has_to_see_nothing_is_sent(kind: Kind) -> None:
    sent = Sent()
    assert not at_once(sent)([event(6), event(7, kind, "{}")])
    assert sent.chunks == []


def test_a_delta_behind_the_end_of_the_run_is_left_to_the_task() -> None:
    sent = Sent()
    assert not at_once(sent, RunEnd(5, inside=False))([event(6)])
    assert sent.chunks == []


def test_a_chunk_that_is_counted_in_memory_and_one_for_a_slow_client_are_left_to_the_task() -> None:
    long = '{"turn":"t","delta":"' + "a" * byte_budget.SMALL_PIECE + '"}'
    for sent, given in ((Sent(), event(6, data=long)), (Sent(must_wait=True), event(6))):
        assert not at_once(sent)([given])
        assert (sent.chunks, sent.noted) == ([], 0)
