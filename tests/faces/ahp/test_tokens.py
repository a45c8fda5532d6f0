"""Short-lived tokens over AHP: one session, one origin, and the end with the key."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sessions_app.ahp.client.client import Client
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import credentials, keys, tokens
from sessions_app.core.terminals.types import Claim
from sessions_app.models import ApiKey, Session, Terminal, TerminalScreen, Turn
from tests.e2e.ahp_steps import create_session, rejection_reason, start_action
from tests.faces.ahp.test_rights import opened
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

APP = "https://app.example.com"


async def minted(sample: SampleTenants, session: Session, **more: Any) -> str:
    return (await database.run(lambda: tokens.mint(sample.alice.caller, session, **more))).raw


async def two_sessions(sample: SampleTenants) -> tuple[Session, str, Session, str]:
    own, other = [await database.run(make_session, sample.alice.caller) for _ in range(2)]
    uris = [await database.run(addresses.of, each) for each in (own, other)]
    return own, uris[0], other, uris[1]


async def status_of_upgrade(host: str, token: str, **headers: str) -> int:
    try:
        async with connect(host, additional_headers={"Authorization": f"Bearer {token}", **headers}, proxy=None):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


async def test_a_token_finds_its_session_and_no_other_one(host: str, sample: SampleTenants) -> None:
    own, uri, _other, hidden = await two_sessions(sample)
    browser = await opened(host, await minted(sample, own), "browser", ROOT, uri)
    assert browser.state(ROOT)["activeSessions"] == 1
    assert [each["provider"] for each in browser.state(ROOT)["agents"]] == ["echo"]
    assert [each["resource"] for each in (await browser.request("listSessions", {}))["items"]] == [uri]
    for method, params in (
        ("subscribe", {"resource": hidden}),
        ("fetchTurns", {"session": hidden}),
        ("disposeSession", {"session": hidden}),
    ):
        with pytest.raises(RPCError) as failed:
            await browser.request(method, params)
        assert failed.value.code == -32001, method
    await browser.close()


async def test_a_token_creates_neither_sessions_nor_forks_nor_free_terminals(host: str, sample: SampleTenants) -> None:
    own, uri, _other, _hidden = await two_sessions(sample)
    browser = await opened(host, await minted(sample, own), "browser", uri)
    for method, params in (
        ("createSession", {"session": "echo:/new", "provider": "echo"}),
        ("createSession", {"session": "echo:/fork", "fork": {"session": uri, "turnId": "t"}}),
        ("createTerminal", {"terminal": "term:/1", "claim": {"kind": "client", "clientId": "browser"}}),
    ):
        with pytest.raises(RPCError) as failed:
            await browser.request(method, params)
        assert failed.value.code == -32009, (method, failed.value)
    assert await Session.objects.acount() == 2
    await browser.close()


async def test_a_token_hears_of_its_session_only(host: str, sample: SampleTenants) -> None:
    own, uri, other, hidden = await two_sessions(sample)
    writer = await opened(host, sample.alice.key, "writer", ROOT)
    browser = await opened(host, await minted(sample, own), "browser", ROOT)
    await create_session(writer)
    for each, title in ((hidden, "hidden"), (uri, "shown")):
        await writer.dispatch({"type": "session/titleChanged", "session": each, "title": title})
    await browser.until(lambda: len(browser.heard) > 0)
    await writer.until(lambda: len(writer.heard) >= 3)
    assert {str(each.get("session") or each.get("summary", {}).get("resource")) for each in browser.heard} == {uri}
    assert browser.state(ROOT)["activeSessions"] == 1
    assert hidden not in str(browser.seen)
    for client in (writer, browser):
        await client.close()
    _ = other


async def test_a_token_sees_the_terminals_of_its_session_only(host: str, sample: SampleTenants) -> None:
    own, uri, other, hidden = await two_sessions(sample)

    def make() -> None:
        claims = {"own": (Claim(session=uri), own), "other": (Claim(session=hidden), other), "free": (Claim(client="c"), None)}
        for name, (claim, session) in claims.items():
            row = Terminal.objects.create(
                tenant=sample.alice.tenant,
                public_id=f"term_{name}",
                uri=f"term:/{name}",
                claim=claim.text(),
                claim_session=None if session is None else session.pk,
                agent="" if session is None else "echo",
                line=sample.alice.caller.line,
                cols=80,
                rows=24,
                state="exited",
                requested_at=own.created_at,
            )
            TerminalScreen.objects.create(terminal=row)

    await database.run(make)
    browser = await opened(host, await minted(sample, own), "browser", ROOT)
    assert [each["resource"] for each in browser.state(ROOT)["terminals"]] == ["term:/own"]
    for uri_of_terminal in ("term:/other", "term:/free"):
        with pytest.raises(RPCError):
            await browser.request("subscribe", {"resource": uri_of_terminal})
    await browser.close()


async def test_a_token_gets_no_refusal_of_another_session(host: str, sample: SampleTenants) -> None:
    """Clients choose their ids, so a token could name the id of another client of the same key."""
    own, _uri, _other, hidden = await two_sessions(sample)
    victim = await opened(host, sample.alice.key, "victim", hidden)
    reason = await rejection_reason(victim, {"type": "session/turnCancelled", "session": hidden, "turnId": "secret-turn"})
    assert reason
    await victim.close()
    spy = Client(host, await minted(sample, own), "victim")
    await spy.open()
    answer = await spy.request("reconnect", {"clientId": "victim", "lastSeenServerSeq": 0, "subscriptions": [ROOT]})
    assert answer["type"] == "replay"
    assert "secret-turn" not in str(answer)
    await spy.close()
    same = Client(host, sample.alice.key, "victim")
    await same.open()
    answer = await same.request("reconnect", {"clientId": "victim", "lastSeenServerSeq": 0, "subscriptions": [ROOT]})
    assert "secret-turn" in str(answer)
    await same.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Origin": APP}, 101), ({"Origin": "https://evil.example.com"}, 403), ({"Origin": "null"}, 403), ({}, 403)],
)
async def test_an_upgrade_with_a_token_comes_from_its_origin(
    host: str, sample: SampleTenants, headers: dict[str, str], status: int
) -> None:
    own = await database.run(make_session, sample.alice.caller)
    assert await status_of_upgrade(host, await minted(sample, own, origin=APP), **headers) == status


async def test_a_connection_ends_with_its_token_and_with_its_key_and_neither_connects_again(
    host: str, sample: SampleTenants
) -> None:
    own = await database.run(make_session, sample.alice.caller)
    first, second = await minted(sample, own), await minted(sample, own)
    clients = [Client(host, token, name) for token, name in ((first, "a"), (second, "b"))]
    for client in clients:
        await client.open()
        await client.initialize()
    caller = await database.run(credentials.authenticate, first)
    await database.run(tokens.revoke, caller, (await database.run(tokens.live, sample.alice.caller, 9))[1].public_id)
    assert await clients[0].ended() == 1008
    await clients[1].request("ping")
    key = await ApiKey.objects.select_related("tenant").aget(pk=sample.alice.caller.key)
    await database.run(keys.mark_revoked, key, actor="the tests")
    assert await clients[1].ended() == 1008
    for token in (first, second):
        assert await status_of_upgrade(host, token) == 401


async def test_a_token_runs_turns_in_its_session_alone(host: str, sample: SampleTenants) -> None:
    own, uri, other, hidden = await two_sessions(sample)
    browser = await opened(host, await minted(sample, own), "browser", uri)
    for each in (hidden, uri):
        await browser.dispatch(start_action(each, "hello"))
    await browser.until(lambda: any(each["action"]["type"] == "session/turnStarted" for each in browser.seen))
    assert [turn.session_id async for turn in Turn.objects.all()] == [own.pk]
    assert other.pk != own.pk
    await browser.close()
