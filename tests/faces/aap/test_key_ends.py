"""Streams end with their key, and a key has a limit of open streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from pytest_django import Settings

from sessions_app.core import turns
from sessions_app.core.base.caller import Caller
from sessions_app.core.tenancy import keys
from sessions_app.models import ApiKey, Tenant, Turn
from tests.faces.aap.conftest import HELLO, WAIT, Person, key_of, problem, whole
from tests.faces.aap.test_sse import chunks, read_until

KEY_ENDED = b": this key is no longer valid\n"


def _row(person: Person) -> ApiKey:
    return ApiKey.objects.select_related("tenant").get(digest=keys.digest_of(person.key or ""))


def _revoke(person: Person) -> None:
    turns.revoke_key(_row(person), actor="the tests")


def _expire(person: Person) -> None:
    keys.expire(_row(person), actor="the tests")


def _end_by_rotation(person: Person) -> None:
    keys.rotate(_row(person), timedelta(0), actor="the tests")


def _suspend(person: Person) -> None:
    turns.suspend_tenant(_row(person).tenant, actor="the tests")


async def _rest(body: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(WAIT):
        return b"".join([chunk async for chunk in body])


async def _joined(person: Person, session: str, query: str = "stream=delta&follow=true") -> AsyncIterator[bytes]:
    return chunks(await asyncio.to_thread(person.get, f"/sessions/{session}/events/stream?{query}"))


@pytest.mark.rule("A2")
@pytest.mark.parametrize("end", [_revoke, _expire, _end_by_rotation, _suspend])
async def test_all_streams_of_a_key_end_with_it_without_a_turn_stop(alice: Person, end: Callable[[Person], None]) -> None:
    session = await asyncio.to_thread(alice.create)
    turn = chunks(await asyncio.to_thread(alice.turn, session))
    following = await _joined(alice, session)
    of_run = await _joined(alice, session, "stream=message")
    other = await asyncio.to_thread(alice.create)
    document = chunks(await asyncio.to_thread(alice.turn, other, stream="none"))
    for body in (turn, of_run):
        assert b"turn_start" in await anext(body)
    for body in (following, document):
        await anext(body)
    await asyncio.to_thread(end, alice)
    for body in (turn, following, of_run):
        said = await _rest(body)
        assert said.endswith(KEY_ENDED)
        assert b"turn_stop" not in said
    assert (await _rest(document)).strip() == b""


@pytest.mark.rule("A2")
async def test_streams_of_other_keys_continue_to_the_end_of_the_turn(alice: Person) -> None:
    other = Person(await asyncio.to_thread(key_of, "alice"))
    session = await asyncio.to_thread(alice.create)
    turn = chunks(await asyncio.to_thread(alice.turn, session))
    await anext(turn)
    watching = await _joined(other, session)
    await asyncio.to_thread(_revoke, alice)
    said = await read_until(watching, b"turn_stop")
    assert b'"error"' in said
    await _rest(turn)
    await asyncio.to_thread(other.turn, session)
    await read_until(watching, b"turn_start")
    await watching.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator


@pytest.mark.rule("A2")
@pytest.mark.parametrize("end", [_expire, _end_by_rotation])
async def test_a_turn_continues_after_its_key_has_expired(alice: Person, end: Callable[[Person], None]) -> None:
    session = await asyncio.to_thread(alice.create)
    turn = chunks(await asyncio.to_thread(alice.turn, session))
    await asyncio.to_thread(end, alice)
    assert (await _rest(turn)).endswith(KEY_ENDED)
    assert (await Turn.objects.aget()).state == "queued"


@pytest.mark.rule("A2")
async def test_the_overlap_of_a_rotation_ends_no_stream(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = _counted_looks(monkeypatch)
    session = await asyncio.to_thread(alice.create)
    following = await _joined(alice, session)
    await anext(following)
    await asyncio.to_thread(lambda: keys.rotate(_row(alice), timedelta(hours=1), actor="the tests"))
    begun = len(looks)
    async with asyncio.timeout(WAIT):
        while len(looks) < begun + 3:
            assert KEY_ENDED not in await anext(following)
    await following.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator


@pytest.mark.rule("A2")
async def test_streams_continue_while_their_keys_cannot_be_checked(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await asyncio.to_thread(alice.create)
    following = await _joined(alice, session)
    await anext(following)
    away: list[Any] = _counted_looks(monkeypatch, OperationalError("the database is away"))
    await asyncio.to_thread(lambda: ApiKey.objects.update(revoked_at=timezone.now()))
    async with asyncio.timeout(WAIT):
        while len(away) < 3:
            assert KEY_ENDED not in await anext(following)
    monkeypatch.undo()
    assert (await _rest(following)).endswith(KEY_ENDED)


def _counted_looks(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[Any]:
    looks: list[Any] = []
    look = keys.callers

    def counted(ids: Any) -> dict[int, Caller]:
        looks.append(ids)
        if error is not None:
            raise error
        return look(ids)

    monkeypatch.setattr(keys, "callers", counted)
    return looks


# --- how many ---


def _refused(response: Any, whose: str, limit: int) -> None:
    document = problem(response, 429)
    assert document["detail"] == f"This {whose} has reached its limit of {limit} open streams."
    assert int(response["Retry-After"]) > 0
    assert 'qu="concurrent-requests"' in response["RateLimit-Policy"]


async def test_a_keys_limit_of_open_streams_refuses_a_turn_before_it_starts(alice: Person, settings: Settings) -> None:
    settings.AGENTHOST_AAP_STREAMS_PER_KEY = 2
    other, bob = [Person(await asyncio.to_thread(key_of, slug)) for slug in ("alice", "bob")]
    first, second, third = [await asyncio.to_thread(alice.create) for _ in range(3)]
    streams = [chunks(await asyncio.to_thread(alice.turn, first)), await _joined(alice, second)]
    for body in streams:
        await anext(body)
    for mode in ("delta", "message", "none"):
        _refused(await asyncio.to_thread(alice.turn, third, stream=mode), "key", 2)
    _refused(await asyncio.to_thread(alice.get, f"/sessions/{first}/events/stream?stream=delta"), "key", 2)
    older = Person(alice.key, "/aap/v2")
    opening = {"agent": {"name": "pilot"}, "messages": [HELLO], "stream": "delta"}
    _refused(await asyncio.to_thread(older.request, "PUT", "/session", opening), "key", 2)
    assert await Turn.objects.acount() == 1
    assert len((await asyncio.to_thread(alice.get, "/sessions")).json()["sessions"]) == 3
    assert (await asyncio.to_thread(alice.get, f"/sessions/{first}")).status_code == 200
    assert b"turn_start" in await anext(chunks(await asyncio.to_thread(other.turn, third)))
    theirs = await asyncio.to_thread(bob.create)
    assert b"turn_start" in await anext(chunks(await asyncio.to_thread(bob.turn, theirs)))
    await asyncio.to_thread(alice.cancel, first)
    await _rest(streams[0])
    assert (await asyncio.to_thread(alice.turn, first)).status_code == 200


async def test_a_tenants_limit_of_open_streams(alice: Person, settings: Settings) -> None:
    settings.AGENTHOST_AAP_STREAMS = 1
    other, bob = [Person(await asyncio.to_thread(key_of, slug)) for slug in ("alice", "bob")]
    session = await asyncio.to_thread(alice.create)
    following = await _joined(alice, session)
    await anext(following)
    _refused(await asyncio.to_thread(other.turn, session), "tenant", 1)
    assert (await asyncio.to_thread(bob.turn, await asyncio.to_thread(bob.create))).status_code == 200
    await following.aclose()  # type: ignore[attr-defined]  # it is an asynchronous generator


def test_requests_without_a_stream_and_ended_streams_take_no_slot(alice: Person, settings: Settings) -> None:
    settings.AGENTHOST_AAP_STREAMS = 1
    session = alice.create()
    for _ in range(3):
        assert alice.get(f"/sessions/{session}/events/stream?stream=delta").status_code == 204
        problem(alice.get(f"/sessions/{session}/events/stream?stream=delta&follow=maybe"), 400)
        problem(alice.turn(session, {"role": "tool", "toolCallId": "no", "content": ""}), 422)
        assert alice.request("HEAD", f"/sessions/{session}/events/stream?stream=delta&follow=true").status_code == 200
    json_form = alice.turn(session, stream="none")
    alice.cancel(session)
    assert json.loads(whole(json_form))["stopReason"] == "end_turn"
    assert alice.turn(session).status_code == 200
    assert Tenant.objects.count() == 1
