"""Streams while time passes: first event, keep-alive comments, ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.http import StreamingHttpResponse

from sessions_app.aap import json_form
from sessions_app.core.base import byte_budget
from sessions_app.core.tenancy import usage_entries
from sessions_app.models import Session
from tests.faces.aap.conftest import HELLO, WAIT, Person, events


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
    monkeypatch.setattr("sessions_app.core.base.draining.is_draining", lambda: True)
    # A run is in progress: the stream goes on to its turn_stop, and no further.
    await read_until(body, b": keep-alive", 2)
    await asyncio.to_thread(alice.cancel, session)
    assert b"turn_stop" in await read_until(body, b"turn_stop")
    with pytest.raises(StopAsyncIteration):
        async with asyncio.timeout(WAIT):
            await anext(body)


@contextmanager
def unread_answers(tenant: int) -> Iterator[None]:
    """Other answers to the tenant take all the room there is."""
    most = byte_budget.ANSWERS._most()
    assert byte_budget.ANSWERS.take(tenant, most, alone=True)
    try:
        yield
    finally:
        byte_budget.ANSWERS.give_back(tenant, most)


@pytest.mark.rule("A120")
async def test_a_stream_ends_without_turn_stop_when_the_tenants_unread_answers_leave_no_room(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await asyncio.to_thread(alice.create)
    tenant = (await Session.objects.aget(public_id=session)).tenant_id
    monkeypatch.setattr(byte_budget, "SMALL_PIECE", 40)
    with byte_budget.answering(tenant):
        body = chunks(await asyncio.to_thread(alice.turn, session))
        assert events(await anext(body)) == [("turn_start", {})]
        with unread_answers(tenant):
            await asyncio.to_thread(alice.cancel, session)
            said = [chunk async for chunk in body]
        assert set(said) <= {b": keep-alive\n"}
    assert byte_budget.ANSWERS.held == 0


@pytest.mark.rule("A61")
async def test_a_json_answer_waits_while_the_tenants_unread_answers_leave_no_room(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await asyncio.to_thread(alice.create)
    tenant = (await Session.objects.aget(public_id=session)).tenant_id
    monkeypatch.setattr(json_form, "_ROOM_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(usage_entries, "bytes_of_run", lambda _turn, _run: 2_000_000)
    has_room, looks = json_form._has_room, list[bool]()

    def looked(size: int) -> bool:
        looks.append(has_room(size))
        return looks[-1]

    monkeypatch.setattr(json_form, "_has_room", looked)
    with byte_budget.answering(tenant):
        body = chunks(await asyncio.to_thread(alice.post, f"/sessions/{session}/turns", {"messages": [HELLO]}))
        await asyncio.to_thread(alice.cancel, session)
        with unread_answers(tenant):
            async with asyncio.timeout(WAIT):
                while len(looks) < 3:
                    assert await anext(body) == b"\n"
        assert json.loads(await read_until(body, b"}")) == {"stopReason": "end_turn", "messages": []}
        assert (looks[0], looks[-1]) == (False, True)
        assert byte_budget.ANSWERS.held == 2_000_000
    assert byte_budget.ANSWERS.held == 0
