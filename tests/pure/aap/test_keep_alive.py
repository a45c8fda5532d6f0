"""Quiet streams, and how they are woken when they are due."""

from __future__ import annotations

from sessions_app.aap.keep_alive import Quiet

PERIOD = 1000.0


async def test_a_stream_is_woken_when_it_is_due_and_quiet_again_when_it_has_sent_something() -> None:
    woken: list[bool] = []
    with Quiet(PERIOD) as stream:
        stream.wake(lambda: woken.append(stream.is_due))
        assert (stream.is_due, woken) == (False, [])
        stream.due()
        assert woken == [True]
        stream.sent()
        assert not stream.is_due


async def test_a_stream_that_became_due_before_it_could_be_woken_is_woken_at_once() -> None:
    woken: list[bool] = []
    with Quiet(PERIOD) as stream:
        stream.due()
        stream.wake(lambda: woken.append(True))
        assert woken == [True]
