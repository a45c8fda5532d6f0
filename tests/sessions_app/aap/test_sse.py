"""What a stream does while time goes by."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.http import StreamingHttpResponse

from tests.sessions_app.aap.conftest import HELLO, WAIT, Person, events


def chunks(response: Any) -> AsyncIterator[bytes]:
    assert isinstance(response, StreamingHttpResponse)
    return aiter(response)


async def read_until(body: AsyncIterator[bytes], mark: bytes, times: int = 1) -> bytes:
    said = b""
    async with asyncio.timeout(WAIT):
        while said.count(mark) < times:
            said += await anext(body)
    return said


@pytest.mark.rule("A53", "A54")
async def test_the_first_event_goes_out_at_once_and_comments_in_quiet_times(alice: Person) -> None:
    session = await asyncio.to_thread(alice.create)
    body = chunks(await asyncio.to_thread(alice.turn, session))
    first = await anext(body)
    assert events(first) == [("turn_start", {})]
    quiet = await read_until(body, b":", 3)
    assert quiet == b": keep-alive\n" * 3
    await asyncio.to_thread(alice.cancel, session)
    rest = await read_until(body, b"turn_stop")
    assert events(rest.replace(b": keep-alive\n", b"")) == [("turn_stop", {"stopReason": "end_turn"})]
    with pytest.raises(StopAsyncIteration):
        await anext(body)


@pytest.mark.rule("A61")
async def test_a_waiting_json_answer_sends_white_space(alice: Person) -> None:
    session = await asyncio.to_thread(alice.create)
    answer = await asyncio.to_thread(alice.post, f"/sessions/{session}/turns", {"messages": [HELLO]})
    body = chunks(answer)
    blank = await read_until(body, b"\n", 3)
    assert blank.strip() == b""
    await asyncio.to_thread(alice.cancel, session)
    rest = await read_until(body, b"}")
    assert json.loads(rest) == {"stopReason": "end_turn", "messages": []}


@pytest.mark.rule("A120")
async def test_a_stream_that_follows_stays_for_later_turns(alice: Person) -> None:
    session = await asyncio.to_thread(alice.create)
    joined = await asyncio.to_thread(alice.get, f"/sessions/{session}/events/stream?stream=delta&follow=true")
    body = chunks(joined)
    assert joined.status_code == 200
    said = b""
    for _ in range(2):
        await asyncio.to_thread(alice.turn, session)
        await asyncio.to_thread(alice.cancel, session)
        said += await read_until(body, b"turn_stop")
    assert [name for name, _ in events(said.replace(b": keep-alive\n", b""))] == ["turn_start", "turn_stop"] * 2
    await body.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator
    assert joined.streaming


async def test_a_stream_that_follows_ends_with_its_run_when_the_server_goes_away(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await asyncio.to_thread(alice.create)
    body = chunks(await asyncio.to_thread(alice.get, f"/sessions/{session}/events/stream?stream=delta&follow=true"))
    await asyncio.to_thread(alice.turn, session)
    await read_until(body, b"turn_start")
    monkeypatch.setattr("sessions_app.core.draining.begun", lambda: True)
    # A run is in progress: the stream goes on to its turn_stop, and no further.
    await read_until(body, b": keep-alive", 2)
    await asyncio.to_thread(alice.cancel, session)
    assert b"turn_stop" in await read_until(body, b"turn_stop")
    with pytest.raises(StopAsyncIteration):
        async with asyncio.timeout(WAIT):
            await anext(body)
