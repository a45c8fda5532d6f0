"""AHP 0.1: replay after a reconnect, slow readers, isolation of tenants."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import struct
from typing import Any

import pytest

from sessions_app.ahp.client.client import Disconnected
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_steps import create_session, new_uri, rejection_reason, start_action, start_turn, text_of, wait_for_end
from tests.e2e.ahp_watcher import Watcher, url_of, watching, without_clock
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

# --- coming back ---


@pytest.mark.rule("R280", "R281", "R282", "R65", "R6")
@pytest.mark.parametrize("after", [1, 2, 3, 5, 8, 13])
async def test_a_client_cut_off_after_any_envelope_gets_a_replay(server: Server, model: ModelServer, after: int) -> None:
    prompt = model.script(
        [steps.thinking("a", "b"), steps.text(*"cdefgh"), steps.call("tide_table", {"harbour": "Bree"})], [steps.text(*"ijkl")]
    )
    async with (
        watching(server, server.keys.alice, "stays") as stays,
        watching(server, server.keys.alice, "breaks", ROOT) as breaks,
    ):
        uri = await create_session(stays, "pilot", config={"approval": "auto"})
        await breaks.subscribe(uri)
        before = len(breaks.seen)
        turn = await start_turn(stays, uri, prompt)
        await breaks.until(lambda: len(breaks.seen) >= before + after)
        breaks.cut()
        with pytest.raises(Disconnected):
            await breaks.until(lambda: False)
        assert await breaks.reconnect() == "replay"
        await wait_for_end(stays, uri, turn)
        await wait_for_end(breaks, uri, turn)
        await breaks.check(uri)
        await breaks.check(ROOT)
        numbers = [each["serverSeq"] for each in breaks.seen]
        assert numbers == sorted(set(numbers))
        assert without_clock(breaks.state(uri)) == without_clock(stays.state(uri))


@pytest.mark.rule("R281", "R283", "R284", "R285", "R288")
async def test_a_client_that_missed_too_much_gets_snapshots(server: Server, model: ModelServer) -> None:
    key = server.make_keys(f"t{secrets.token_hex(4)}/all/*/")[0]
    async with watching(server, key, "host") as host:
        kept, anew, gone = await create_session(host), await create_session(host), await create_session(host)
        seen = host.last_seq
        await host.request("disposeSession", {"session": gone})
        await host.request("disposeSession", {"session": anew})

        async def back(last: int, *uris: str, client: str = "unknown") -> dict[str, Any]:
            other = Watcher(url_of(server), key, client)
            await other.open()
            params = {"clientId": client, "lastSeenServerSeq": last, "subscriptions": list(uris)}
            result: dict[str, Any] = await other.request("reconnect", params)
            await other.request("listSessions", {})
            await other.close()
            return result

        result = await back(seen, kept, gone)
        assert (result["type"], result["actions"], result["missing"]) == ("replay", [], [gone])
        await host.request("createSession", {"session": anew, "provider": "echo"})
        result = await back(seen, kept, anew, gone)
        assert (result["type"], [each["resource"] for each in result["snapshots"]]) == ("snapshot", [kept, anew])
        assert (await back(10**12, kept))["type"] == "snapshot"
        assert (await back(0, ROOT, kept))["type"] == "snapshot"
        assert (await back(host.last_seq))["type"] == "replay"
        for wrong in ({"clientId": "x"}, {"clientId": "x", "lastSeenServerSeq": "1", "subscriptions": []}):
            client = Watcher(url_of(server), key, "x")
            await client.open()
            with pytest.raises(RPCError) as bad:
                await client.request("reconnect", wrong)
            assert bad.value.code == -32602
            await client.close()


@pytest.mark.rule("R84", "R286")
async def test_an_action_that_is_sent_again_after_a_reconnect_is_applied_once(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("once")])
    async with watching(server, server.keys.alice, "unsure") as client:
        uri = await create_session(client)
        action = start_action(uri, prompt)
        seq = await client.dispatch(action)
        await client.echo(seq)
        client.seen.clear()
        await client.reconnect()
        await client.notify("dispatchAction", {"clientSeq": seq, "action": action})
        await wait_for_end(client, uri, action["turnId"])
        # Whatever comes of it was stored before this.
        await client.echo(await client.dispatch({"type": "session/titleChanged", "session": uri, "title": "after"}))
        assert client._echo_of(seq) is None
        assert [turn["id"] for turn in client.state(uri)["turns"]] == [action["turnId"]]


# --- subscriptions ---


@pytest.mark.rule("R61", "R63", "R64", "R69")
async def test_subscriptions_begin_and_end_and_do_not_double(server: Server) -> None:
    async with watching(server, server.keys.alice, "fickle") as client, watching(server, server.keys.alice, "steady") as steady:
        uri = await create_session(steady)
        await client.subscribe(uri)
        await client.subscribe(uri)

        async def rename(title: str) -> None:
            await steady.echo(await steady.dispatch({"type": "session/titleChanged", "session": uri, "title": title}))

        await rename("one")
        await client.until(lambda: client.state(uri)["summary"]["title"] == "one")
        await client.unsubscribe(uri)
        await client.notify("unsubscribe", {"resource": "echo:/nothing"})
        await client.request("listSessions", {})
        await rename("two")
        await client.subscribe(uri)
        await rename("three")
        await client.until(lambda: client.state(uri)["summary"]["title"] == "three")
        titles = [each["action"]["title"] for each in client.seen if each["action"]["type"] == "session/titleChanged"]
        assert titles == ["one", "three"]


@pytest.mark.rule("R65", "R70", "R148")
async def test_many_sessions_stream_at_once_and_their_numbers_never_fall(server: Server, model: ModelServer) -> None:
    async with watching(server, server.keys.alice, "watcher") as client:
        uris = [await create_session(client) for _ in range(6)]
        prompts = [model.script([steps.text(*(f"{index}.{word} " for word in range(40)))]) for index in range(6)]
        turns = [await start_turn(client, uri, prompt) for uri, prompt in zip(uris, prompts, strict=True)]
        for uri, turn in zip(uris, turns, strict=True):
            # Checked during the turns: each snapshot must have its own sequence number.
            await client.check(uri)
            await wait_for_end(client, uri, turn)
        for index, uri in enumerate(uris):
            assert text_of((await client.check(uri))["turns"][0]) == "".join(f"{index}.{word} " for word in range(40))


# --- slow readers ---


@pytest.mark.rule("R6", "R385")
async def test_a_client_that_does_not_read_is_closed_and_delays_no_other(server: Server, model: ModelServer) -> None:
    async with watching(server, server.keys.alice, "quick") as quick:
        uri = await create_session(quick)
        deaf = _deaf(server, server.keys.alice)
        await asyncio.to_thread(
            _say, deaf, "initialize", {"protocolVersions": ["0.1.0"], "clientId": "deaf", "initialSubscriptions": [uri]}
        )
        # Each answer is within AGENTHOST_MESSAGE_BYTES; together they are more than any buffer on the way holds.
        chunk = "x" * 100_000
        for _ in range(3):
            turn = await start_turn(quick, uri, model.script([steps.text(*([chunk] * 40))]))
            assert len(text_of(await wait_for_end(quick, uri, turn))) == 40 * 100_000

        def closed() -> bool:
            """Whether the server has closed the connection and dropped what it could not send."""
            deaf.settimeout(60)
            received = 0
            try:
                while data := deaf.recv(1 << 20):
                    received += len(data)
            except ConnectionError:
                pass
            return received < 12_000_000

        assert await asyncio.to_thread(closed)
        deaf.close()


def _deaf(server: Server, key: str) -> socket.socket:
    """A client that shakes hands and then reads nothing, with a small buffer."""
    port = server.ports[0]
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", port))
    head = [
        "GET /ahp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: Bearer {key}",
    ]
    raw.sendall("\r\n".join([*head, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += raw.recv(1)
    assert b"101" in answer.split(b"\r\n")[0]
    return raw


def _say(raw: socket.socket, method: str, params: dict[str, Any]) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = bytes([0x81, 0x80 | 126]) + struct.pack(">H", len(text)) if len(text) > 125 else bytes([0x81, 0x80 | len(text)])
    raw.sendall(head + b"\0\0\0\0" + text)


# --- tenants ---


@pytest.mark.rule("R380", "R381", "R382", "R383")
async def test_two_tenants_with_the_same_names_are_isolated(server: Server, model: ModelServer) -> None:
    one, two = server.make_keys(f"t{secrets.token_hex(4)}/all/*/", f"t{secrets.token_hex(4)}/all/*/")
    async with watching(server, one, "same") as first, watching(server, two, "same") as second:
        assert await create_session(first, uri="echo:/same") == await create_session(second, uri="echo:/same")
        action = start_action("echo:/same", model.script([steps.text("mine")]), "turn")
        await first.echo(await first.dispatch(action))
        await wait_for_end(first, "echo:/same", "turn")
        other = new_uri()
        await create_session(first, uri=other)
        for method, params in (
            ("subscribe", {"resource": other}),
            ("disposeSession", {"session": other}),
            ("fetchTurns", {"session": other}),
        ):
            with pytest.raises(RPCError) as hidden:
                await second.request(method, params)
            assert hidden.value.code == -32001
        await second.dispatch({"type": "session/titleChanged", "session": other, "title": "stolen"})
        seq = await second.dispatch({"type": "session/titleChanged", "session": "echo:/same", "title": "second's"})
        await second.echo(seq)
        assert len(second.seen) == 2, "one for the session it made, one echo"
        assert [each["type"] for each in second.heard if each["type"] == "notify/sessionAdded"] == ["notify/sessionAdded"]
        assert second.state(ROOT)["activeSessions"] == 1
        assert (await second.check("echo:/same"))["turns"] == []
        assert first.state("echo:/same")["summary"]["title"] != "second's"
        await first.check(other)


# --- rates ---


@pytest.mark.rule("R84", "R31")
async def test_a_flood_of_actions_is_served_in_order_and_answered_all(server: Server) -> None:
    async with watching(server, server.keys.alice, "flood") as client:
        uri = await create_session(client)
        seqs = [await client.dispatch({"type": "session/dance", "session": uri}) for _ in range(500)]
        await client.request("ping")
        await client.echo(seqs[-1], 60)
        assert [each["origin"]["clientSeq"] for each in client.seen if "rejectionReason" in each] == seqs
        assert client.mirrors[uri].ahead == []


@pytest.mark.rule("R83")
async def test_a_rejection_goes_to_its_connection_alone_even_without_a_subscription(server: Server) -> None:
    async with watching(server, server.keys.alice, "same") as first, watching(server, server.keys.alice, "same") as second:
        uri = await create_session(first)
        await second.subscribe(uri)
        await first.unsubscribe(uri)
        assert await rejection_reason(first, {"type": "session/ready", "session": uri})
        await second.echo(await second.dispatch({"type": "session/titleChanged", "session": uri, "title": "x"}))
        assert not any("rejectionReason" in each for each in second.seen)
