"""AHP 0.1: the upgrade, frames, errors, the handshake."""

from __future__ import annotations

import asyncio
import json
import secrets
from functools import partial
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_watcher import Watcher, url_of, watching
from tests.e2e.server import Server

# --- the upgrade ---


async def _refusal(server: Server, query: str = "", **options: Any) -> int:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url_of(server) + query, proxy=None, **options):
            pass
    return refused.value.response.status_code


@pytest.mark.rule("R3")
async def test_without_a_good_key_the_upgrade_is_401_and_without_the_scope_403(server: Server) -> None:
    assert await _refusal(server) == 401
    assert await _refusal(server, additional_headers={"Authorization": "Bearer ah_" + "x" * 43}) == 401
    assert await _refusal(server, additional_headers={"Authorization": f"Basic {server.keys.alice}"}) == 401
    assert await _refusal(server, additional_headers={"Authorization": f"Bearer {server.keys.meta_only}"}) == 403


@pytest.mark.rule("R1")
async def test_no_other_path_speaks_websocket(server: Server) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url_of(server) + "/more", proxy=None):
            pass
    assert refused.value.response.status_code == 404


@pytest.mark.rule("R4")
async def test_a_browser_brings_its_key_as_a_subprotocol_and_gets_ahp(server: Server) -> None:
    key = server.keys.alice
    async with connect(url_of(server), subprotocols=["ahp", f"bearer.{key}"], proxy=None) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "ahp"
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(url_of(server), subprotocols=["ahp"], additional_headers=headers, proxy=None) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "ahp"
    async with connect(url_of(server), additional_headers=headers, proxy=None) as socket:
        assert socket.subprotocol is None


@pytest.mark.rule("R4")
@pytest.mark.parametrize("parameter", ["token", "tkn"])
async def test_an_editor_brings_its_key_in_the_query_and_no_log_has_it(server: Server, parameter: str) -> None:
    key = server.make_keys("alice/editor/sessions:read/")[0]
    async with connect(f"{url_of(server)}?{parameter}={key}", proxy=None) as socket:
        await socket.send('{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert json.loads(await socket.recv()) == {"jsonrpc": "2.0", "id": 1, "result": None}
    bad = "ah_" + secrets.token_urlsafe(40)[:43]
    assert await _refusal(server, f"?{parameter}={bad}") == 401
    for secret in (key[4:], bad[4:]):
        assert secret[12:] not in server.log_text()


# --- frames ---


async def _answers(client: Client, *frames: str) -> list[dict[str, Any]]:
    """Responses to invalid frames, and a check that the host still answers."""
    said: list[dict[str, Any]] = []
    client._on_frame = lambda frame: said.append(json.loads(frame))
    for frame in frames:
        await client.send(frame)
    # Unlike a ping this is answered behind everything that was sent before it.
    await client.request("listSessions", {})
    return said[:-1]


@pytest.mark.rule("R23", "R24", "R27", "R28", "R29")
@pytest.mark.parametrize(
    ("frame", "code", "id_"),
    [
        ("{", -32700, None),
        ("NaN", -32700, None),
        ("[]", -32600, None),
        ("[1]", -32600, None),
        ('"ping"', -32600, None),
        ("17", -32600, None),
        ("null", -32600, None),
        ('{"id":7,"method":"ping"}', -32600, 7),
        ('{"jsonrpc":"1.0","id":"seven","method":"ping"}', -32600, "seven"),
        ('{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7),
        ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"subscribe"}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"subscribe","params":{}}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"subscribe","params":{"resource":5}}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"dance","params":{}}', -32601, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"dispatchAction","params":{"clientSeq":1,"action":{"type":"x"}}}', -32601, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"unsubscribe","params":{"resource":"agenthost:/root"}}', -32601, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"resourceWatch","params":{"uri":"file:///x"}}', -32601, 7),
    ],
)
async def test_a_wrong_frame_gets_its_error_and_the_connection_goes_on(
    server: Server, frame: str, code: int, id_: object
) -> None:
    client = Client(url_of(server), server.keys.alice, "wrong")
    await client.open()
    await client.initialize()
    said = await _answers(client, frame)
    assert [(each["error"]["code"], each["id"]) for each in said] == [(code, id_)]
    assert all(each["error"]["message"] for each in said)
    await client.close()


@pytest.mark.rule("R22", "R25", "R80")
async def test_notifications_and_responses_are_never_answered(server: Server) -> None:
    client = Client(url_of(server), server.keys.alice, "quiet")
    await client.open()
    await client.initialize()
    frames = [
        '{"jsonrpc":"2.0","method":"dance"}',
        '{"jsonrpc":"2.0","method":"createSession","params":{"session":"echo:/x"}}',
        '{"jsonrpc":"2.0","method":"unsubscribe"}',
        '{"jsonrpc":"2.0","method":"dispatchAction","params":{"clientSeq":"one","action":{}}}',
        '{"jsonrpc":"2.0","method":"dispatchAction","params":{"clientSeq":1,"action":{}}}',
        '{"jsonrpc":"2.0","id":99,"result":null}',
        '{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"no"}}',
    ]
    assert await _answers(client, *frames) == []
    await client.close()


@pytest.mark.rule("R31")
async def test_thousands_of_malformed_frames_disturb_no_other_connection(server: Server) -> None:
    async with watching(server, server.keys.alice, "steady") as steady:
        client = Client(url_of(server), server.keys.alice, "wild")
        await client.open()
        await client.initialize()
        frames = ["{", "[" * 5000, '{"jsonrpc":"2.0","id":1}', "null", '"' + "x" * 40_000 + '"']
        said = await _answers(client, *(frames * 400))
        assert len(said) == 2000
        await client.close()
        await steady.request("ping")


@pytest.mark.rule("R2")
async def test_a_binary_frame_closes_its_connection_with_1003_and_no_other(server: Server) -> None:
    async with watching(server, server.keys.alice, "other") as other:
        client = Client(url_of(server), server.keys.alice, "binary")
        await client.open()
        await client.send(b"\x00")
        assert await client.ended() == 1003
        await other.request("ping")


@pytest.mark.rule("R7")
async def test_a_frame_over_the_limit_closes_with_1009(server: Server) -> None:
    client = Client(url_of(server), server.keys.alice, "huge")
    await client.open()
    # Its head is enough. What the server had not read would reset the connection, and its answer could be lost.
    assert client._socket is not None
    client._socket.transport.write(b"\x81\xff" + (17 * 1024 * 1024).to_bytes(8, "big") + bytes(4))
    assert await client.ended() == 1009


# --- handshake ---


@pytest.mark.rule("R40", "R47", "R52")
async def test_before_the_handshake_there_is_ping_alone_and_after_it_no_second_one(server: Server) -> None:
    client = Watcher(url_of(server), server.keys.alice, "early")
    await client.open()
    assert await client.request("ping") is None
    assert await client.request("ping", {}) is None
    for method in ("listSessions", "subscribe", "dance"):
        with pytest.raises(RPCError) as early:
            await client.request(method, {"resource": ROOT})
        assert early.value.code == -32600
    with pytest.raises(RPCError) as wrong:
        await client.request("initialize", {"protocolVersions": ["0.1.0"], "clientId": ""})
    assert wrong.value.code == -32602
    await client.initialize(ROOT)
    for method, params in (
        ("initialize", {"protocolVersions": ["0.1.0"], "clientId": "early"}),
        ("reconnect", {"clientId": "early", "lastSeenServerSeq": 0, "subscriptions": []}),
    ):
        with pytest.raises(RPCError) as second:
            await client.request(method, params)
        assert second.value.code == -32600
    await client.close()


@pytest.mark.rule("R42", "R43", "R45")
async def test_initialize_answers_with_the_version_as_offered_and_a_snapshot_of_each_uri_that_exists(server: Server) -> None:
    client = Watcher(url_of(server), server.keys.alice, "first")
    await client.open()
    params = {
        "protocolVersions": ["7.0.0", "0.1.9-beta", "0.1.7", "0.1.0"],
        "clientId": "first",
        "initialSubscriptions": [ROOT, "echo:/nothing", ROOT],
        "unknown": True,
    }
    result = await client.request("initialize", params)
    assert result["protocolVersion"] == "0.1.7"
    assert [each["resource"] for each in result["snapshots"]] == [ROOT]
    assert result["snapshots"][0]["fromSeq"] == result["serverSeq"]
    await client.close()


@pytest.mark.rule("R44", "R33")
@pytest.mark.parametrize("offered", [[], ["2.0.0"], ["0.0.1"], ["0.2.0", "0.10.0"]])
async def test_without_a_common_version_the_connection_is_closed_after_an_error(server: Server, offered: list[str]) -> None:
    client = Watcher(url_of(server), server.keys.alice, "old")
    await client.open()
    with pytest.raises(RPCError) as none:
        await client.request("initialize", {"protocolVersions": offered, "clientId": "old"})
    assert none.value.code == -32005
    assert none.value.data is not None
    assert "0.1.0" in none.value.data["supportedVersions"]
    await client.ended()
    with pytest.raises((Disconnected, Exception)):
        await client.request("ping")


@pytest.mark.rule("R71", "R74", "R388")
async def test_the_root_shows_the_agents_with_their_models(server: Server) -> None:
    async with watching(server, server.keys.alice, "root") as client:
        agents = {agent["provider"]: agent for agent in client.state(ROOT)["agents"]}
        assert agents["pilot"]["displayName"] == "Harbour Pilot"
        assert agents["echo"]["description"] == "Says what the script says."
        assert [model["id"] for model in agents["echo"]["models"]] == ["openai-chat:gpt-test"]
    async with watching(server, server.keys.echo_only, "one agent") as client:
        assert [agent["provider"] for agent in client.state(ROOT)["agents"]] == ["echo"]


@pytest.mark.rule("R20")
async def test_ids_come_back_as_they_were_sent(server: Server) -> None:
    async with connect(url_of(server), additional_headers={"Authorization": f"Bearer {server.keys.alice}"}, proxy=None) as socket:
        for id_ in ("1", '"one"', "-7", "1.5", "12345678901234567890"):
            await socket.send(f'{{"jsonrpc":"2.0","id":{id_},"method":"ping"}}')
            assert await socket.recv() == f'{{"jsonrpc":"2.0","id":{id_},"result":null}}'


@pytest.mark.rule("R8")
async def test_a_revoked_key_closes_its_connections_with_1008_and_no_others(server: Server) -> None:
    key = server.make_keys("alice/short/sessions:read/")[0]
    async with watching(server, server.keys.alice, "stays") as stays:
        client = Client(url_of(server), key, "goes")
        await client.open()
        await client.initialize()
        await asyncio.to_thread(server.manage, "revoke_key", key[:11])
        assert await client.ended() == 1008
        await stays.request("ping")


# --- sessions ---


def _count(client: Client, heard: int) -> bool:
    return len(client.heard) >= heard


def _has_sessions(client: Client, count: int) -> bool:
    return bool(client.state(ROOT)["activeSessions"] == count)


@pytest.mark.rule("R110", "R112", "R113", "R117", "R118", "R261", "R263", "R71")
async def test_sessions_are_made_listed_announced_and_disposed_of(server: Server) -> None:
    key = server.make_keys(f"t{secrets.token_hex(4)}/all/*/")[0]
    async with watching(server, key, "maker") as maker, watching(server, key, "onlooker") as onlooker:
        assert maker.state(ROOT)["activeSessions"] == 0
        assert await maker.request("createSession", {"session": "echo:/one"}) is None
        with pytest.raises(RPCError) as taken:
            await maker.request("createSession", {"session": "echo:/one"})
        assert taken.value.code == -32003
        for client in (maker, onlooker):
            await client.until(partial(_count, client, 1))
            assert client.heard[0]["type"] == "notify/sessionAdded"
            assert client.heard[0]["summary"]["resource"] == "echo:/one"
            await client.until(partial(_has_sessions, client, 1))
            await client.check(ROOT)
        items = (await onlooker.request("listSessions", {"filter": {"any": 1}}))["items"]
        assert items == [maker.heard[0]["summary"]]
        assert (items[0]["provider"], items[0]["status"]) == ("echo", 1)
        assert await onlooker.request("disposeSession", {"session": "echo:/one"}) is None
        for client in (maker, onlooker):
            await client.until(partial(_count, client, 2))
            assert client.heard[-1] == {"type": "notify/sessionRemoved", "session": "echo:/one"}
            await client.until(partial(_has_sessions, client, 0))
        with pytest.raises(RPCError) as gone:
            await maker.request("disposeSession", {"session": "echo:/one"})
        assert gone.value.code == -32001
        await maker.request("createSession", {"session": "echo:/one"})
        with pytest.raises(RPCError) as unknown:
            await maker.request("createSession", {"session": "nobody:/one"})
        assert unknown.value.code == -32002


@pytest.mark.rule("R60", "R110")
@pytest.mark.parametrize("uri", ["agenthost:/root", "echo", "echo:", "", "echo:/with space", "/echo", "echo:/é"])
async def test_a_session_needs_a_uri_of_its_own(server: Server, uri: str) -> None:
    async with watching(server, server.keys.alice, "uris") as client:
        with pytest.raises(RPCError) as bad:
            await client.request("createSession", {"session": uri, "provider": "echo"})
        assert bad.value.code == -32602


@pytest.mark.rule("R62")
async def test_unknown_uris_cannot_be_subscribed_to(server: Server) -> None:
    async with watching(server, server.keys.alice, "nothing") as client:
        for uri, code in (("echo:/nothing", -32001), ("file:/x", -32008), ("shell:/1", -32008)):
            with pytest.raises(RPCError) as missing:
                await client.request("subscribe", {"resource": uri})
            assert missing.value.code == code
