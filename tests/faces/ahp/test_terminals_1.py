"""Terminals over AHP 0.9 and 1.0: real shells in real sandboxes, beside clients of 0.1."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database
from sessions_app.core.tenancy import keys, tokens
from sessions_app.core.terminals import services
from sessions_app.core.terminals.service import Service
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, chat_uri, mirroring
from tests.e2e.ahp_terminals import claim_of, create_terminal, has_exited, listed, screen_of, send, shows, told, type_into
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants, make_session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

URI = "ahp-terminal:/one"
both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])
OLDER_EDITOR = {"clientInfo": {"name": "vscode-editor-window"}}


@pytest.fixture
async def client(host: str, service: Service, sample: SampleTenants) -> AsyncIterator[Mirror]:
    async with mirroring(host, sample.alice.key, "me") as client:
        yield client


async def three(stack: AsyncExitStack, host: str, key: str) -> tuple[Watcher, Mirror, Mirror]:
    """A client of each version, subscribed to the root."""
    old = Watcher(host, key, "old")
    await old.open()
    stack.push_async_callback(old.close)
    await old.initialize(old.version.root)
    middle = await stack.enter_async_context(mirroring(host, key, "middle", version=V0_9))
    return old, middle, await stack.enter_async_context(mirroring(host, key, "new"))


def is_listed_as_exited(client: Client) -> bool:
    info = listed(client)[URI]
    return info["lifecycle"]["status"] == "exited" if client.version.has_channels else "exitCode" in info


@pytest.mark.rule("V230", "V231", "V232", "V47", "V52", "V60")
@both
async def test_a_shell_takes_input_and_exits_with_a_code(
    host: str, service: Service, sample: SampleTenants, version: ClientVersion
) -> None:
    async with (
        mirroring(host, sample.alice.key, "me", version=version) as client,
        mirroring(host, sample.alice.key, "root", version=version) as other,
    ):
        await create_terminal(client, URI, name="build", cols=100, rows=30)
        state = client.state(URI)
        claim = {"kind": "client", "clientId": "me"}
        assert (state["title"], state["claim"], state["isPty"]) == ("build", claim, True)
        assert (state["lifecycle"], state["cols"], state["rows"]) == ({"status": "running"}, 100, 30)
        await other.until(lambda: URI in listed(other))
        info = {"resource": URI, "title": "build", "claim": claim, "lifecycle": {"status": "running"}}
        assert listed(other)[URI] == info
        await type_into(client, URI, "trap 'stty size' WINCH; echo ready$((1))\n")
        await shows(client, URI, "ready1")
        resized = await told(client, URI, "resized", cols=132, rows=43)
        assert resized["action"] == {"type": "terminal/resized", "cols": 132, "rows": 43}
        await shows(client, URI, "43 132")
        await told(client, URI, "cleared")
        assert "ready1" not in screen_of(client, URI)
        await told(client, URI, "titleChanged", title="mine")
        await other.until(lambda: listed(other)[URI]["title"] == "mine")
        await type_into(client, URI, "mkdir 'a b' && cd 'a b' && (exit 7)\n")
        await client.until(lambda: client.state(URI).get("cwd") == "file:///workspace/a%20b")
        await client.until(lambda: any(part.get("exitCode") == 7 for part in client.state(URI)["content"]))
        assert client.state(URI)["supportsCommandDetection"] is True
        await type_into(client, URI, "exit 3\n")
        ended = {"status": "exited", "exitCode": 3}
        await client.until(lambda: client.state(URI)["lifecycle"] == ended)
        await other.until(lambda: listed(other)[URI]["lifecycle"] == ended)
        assert "has exited" in (await told(client, URI, "input", data="x"))["rejectionReason"]
        await client.check(URI)
        for each in (client, other):
            await each.check(ROOT)
        # Nothing of a terminal comes without a subscription to it.
        assert other.types(URI) == []
        assert await client.request("disposeTerminal", {"channel": URI}) is None
        await other.until(lambda: listed(other) == {})
        assert await client.code_of("disposeTerminal", channel=URI) == -32008
        assert await client.code_of("subscribe", channel=URI) == -32008


@pytest.mark.rule("V230", "V232", "V36", "V42", "V132")
@both
async def test_terminals_that_cannot_be_created(
    host: str, service: Service, sample: SampleTenants, settings: Any, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "me", version=version) as client:
        await create_terminal(client, URI)
        session, chat = await client.create("echo", "echo:/s")
        other, _ = await client.create()
        mine = claim_of(client)
        of_session = {"kind": "session", "session": session}
        refused: list[tuple[dict[str, Any], int]] = [
            ({"channel": URI, "claim": mine}, -32010),
            ({"channel": session, "claim": mine}, -32010),
            ({"channel": "plain", "claim": mine}, -32602),
            ({"channel": "ahp-terminal:/ü", "claim": mine}, -32602),
            ({"channel": "a:/" + "x" * 1000, "claim": mine}, -32602),
            *(({"channel": taken, "claim": mine}, -32602) for taken in (ROOT, chat, "ahp-session:/x", "agenthost:/root")),
            ({"claim": mine}, -32602),
            ({"channel": "t:/2"}, -32602),
            ({"channel": "t:/2", "claim": {"kind": "client", "clientId": "another"}}, -32602),
            ({"channel": "t:/2", "claim": {"kind": "nobody"}}, -32602),
            ({"channel": "t:/2", "claim": of_session}, -32602),
            ({"channel": "t:/2", "claim": {**of_session, "chat": chat_uri(other)}}, -32602),
            ({"channel": "t:/2", "claim": {**of_session, "chat": session}}, -32602),
            ({"channel": "t:/2", "claim": {**of_session, "session": "echo:/none", "chat": chat}}, -32001),
            ({"channel": "t:/2", "claim": {**of_session, "session": chat, "chat": chat}}, -32001),
            ({"channel": "t:/2", "claim": mine, "cwd": "file:///etc"}, -32009),
            ({"channel": "t:/2", "claim": mine, "cwd": "file:///workspace/none"}, -32008),
            ({"channel": "t:/2", "claim": mine, "cols": 0}, -32602),
            ({"channel": "t:/2", "claim": mine, "name": "n" * 501}, -32602),
            ({"channel": "t:/2", "claim": mine, "name": "\ud800"}, -32602),
        ]
        for params, code in refused:
            assert await client.code_of("createTerminal", **params) == code, params
        # A terminal's URI is no session's and no chat's.
        third, _ = await client.create()
        await create_terminal(client, "t:/mine")
        assert await client.code_of("createSession", channel="t:/mine", provider="echo") == -32003
        assert await client.code_of("createChat", channel=third, chat="t:/mine") == -32602
        assert await client.request("createChat", {"channel": third, "chat": "t:/chat"}) is None
        assert await client.code_of("createTerminal", channel="t:/chat", claim=mine) == -32010
        settings.AGENTHOST_TENANT_TERMINALS = 2
        with pytest.raises(RPCError, match="AGENTHOST_TENANT_TERMINALS"):
            await client.request("createTerminal", {"channel": "t:/2", "claim": mine})
        assert set(listed(client)) == {URI, "t:/mine"}


@pytest.mark.rule("V320", "V321")
@both
async def test_an_installation_without_terminals_does_not_know_their_methods(
    host: str, terminals_on: None, sample: SampleTenants, settings: Any, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "me", version=version) as client:
        params = {"channel": URI, "claim": claim_of(client)}
        # There are terminals, but at the moment none can be started.
        with pytest.raises(RPCError, match="no terminal service is running") as failed:
            await client.request("createTerminal", params)
        assert failed.value.code == -32600
        await database.run(services.renew, "broken", "bubblewrap is not installed")
        with pytest.raises(RPCError, match="bubblewrap is not installed"):
            await client.request("createTerminal", params)
        settings.AGENTHOST_TERMINALS = False
        for method in ("createTerminal", "disposeTerminal"):
            wrong: list[dict[str, Any]] = [params, {"channel": ROOT}, {}]
            for given in wrong:
                assert await client.code_of(method, **given) == -32601
        assert await client.code_of("subscribe", channel=URI) == -32008
        await send(client, URI, "input", data="x")
        # It was ignored without a word: the next answer comes first.
        await client.request("ping")
        assert client.seen == []
        assert client.state(ROOT)["terminals"] == []


@pytest.mark.rule("V91", "V92", "V94", "V230")
@both
async def test_actions_that_do_not_fit_are_rejected(
    host: str, service: Service, sample: SampleTenants, version: ClientVersion
) -> None:
    async with (
        mirroring(host, sample.alice.key, "me", version=version) as client,
        mirroring(host, sample.alice.reading_key, "reader", version=version) as reader,
    ):
        await create_terminal(client, URI)
        session, chat = await client.create()
        await reader.subscribe(URI)
        assert "may only read" in await reader.refused(URI, "terminal/input", data="x\n")
        assert await reader.code_of("createTerminal", channel="t:/2", claim=claim_of(reader)) == -32009
        assert await reader.code_of("disposeTerminal", channel=URI) == -32009
        of_host: list[tuple[str, dict[str, Any]]] = [
            ("data", {"data": "x"}),
            ("exited", {"exitCode": 0}),
            ("cwdChanged", {"cwd": "file:///"}),
            ("commandDetectionAvailable", {}),
            ("commandExecuted", {"commandId": "c", "commandLine": "l", "timestamp": 1}),
            ("commandFinished", {"commandId": "c"}),
        ]
        for name, members in of_host:
            assert "only the host" in await client.refused(URI, f"terminal/{name}", **members)
        assert "unknown type" in await client.refused(URI, "terminal/nothing")
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("input", {}),
            ("input", {"data": 7}),
            ("input", {"data": "x" * 65_537}),
            ("resized", {"cols": 0, "rows": 5}),
            ("resized", {"cols": 80}),
            ("titleChanged", {"title": "t" * 501}),
            ("titleChanged", {"title": "\0"}),
            ("claimed", {"claim": {"kind": "session", "session": session}}),
            ("claimed", {"claim": {"kind": "session", "session": "echo:/none", "chat": chat}}),
            ("claimed", {"claim": {"kind": "session", "session": session, "chat": session}}),
            ("claimed", {"claim": {"kind": "client", "clientId": ""}}),
        ]
        for name, members in wrong:
            assert await client.refused(URI, f"terminal/{name}", **members), (name, members)
        # A terminal takes no actions of a chat, and a chat none of a terminal.
        assert "terminal" in await client.refused(URI, "chat/draftChanged")
        assert "chat" in await client.refused(chat, "terminal/cleared")
        assert "root" in await client.refused(ROOT, "terminal/cleared")
        state = await client.check(URI)
        assert (state["lifecycle"], state["claim"]) == ({"status": "running"}, claim_of(client))


@pytest.mark.rule("V1", "V46", "V207", "V232", "V310", "V313", "V402")
async def test_each_client_reads_claims_in_its_own_spelling(host: str, service: Service, sample: SampleTenants) -> None:
    born = await database.run(make_session, sample.alice.caller)
    provider, canonical = f"echo:/{born.public_id}", f"ahp-session:/{born.public_id}"
    async with AsyncExitStack() as stack:
        old, middle, new = await three(stack, host, sample.alice.key)
        editor = await stack.enter_async_context(mirroring(host, sample.alice.key, "editor", hello=OLDER_EDITOR))
        everyone: list[Any] = [old, middle, new, editor]
        for_call = {"kind": "session", "session": provider, "chat": chat_uri(canonical), "turnId": "t", "toolCallId": "c"}
        await create_terminal(middle, URI, claim=for_call)
        for each in everyone:
            await each.subscribe(URI)

        def expected(each: Any, **call: str) -> dict[str, Any]:
            if each is old:
                return {"kind": "session", "session": provider, **call}
            session = provider if each is editor else canonical
            return {"kind": "session", "session": session, "chat": chat_uri(session), **call}

        for each in everyone:
            assert each.state(URI)["claim"] == expected(each, turnId="t", toolCallId="c")
            await each.until(lambda each=each: URI in listed(each))
            assert listed(each)[URI]["claim"] == expected(each, turnId="t", toolCallId="c")
        # Any spelling of the session and its chat; the echo has the client's own.
        released = {"kind": "session", "session": canonical, "chat": f"ahp-chat:/{born.public_id}"}
        echo = await told(editor, URI, "claimed", claim=released)
        assert (echo["action"]["claim"], "rejectionReason" in echo) == (expected(editor), False)
        for each in everyone:
            await each.until(lambda each=each: listed(each)[URI]["claim"] == expected(each))
            assert each.state(URI)["claim"] == expected(each)
            await each.check(URI)
            await each.check(each.version.root)
        assert "a session has" in (await told(new, URI, "claimed", claim=released))["rejectionReason"]
        # A client that is not subscribed gets the echo of its claim too.
        await create_terminal(new, "t:/given")
        await new.unsubscribe("t:/given")
        given = {"kind": "session", "session": provider, "chat": chat_uri(provider)}
        assert (await told(new, "t:/given", "claimed", claim=given))["action"]["claim"] == expected(new)


@pytest.mark.rule("V230")
async def test_tenants_and_limited_keys_see_what_is_theirs(client: Mirror, host: str, sample: SampleTenants) -> None:
    issued = await database.run(
        lambda: keys.issue(
            sample.alice.tenant, name="n", scopes=["*"], expires_at=None, allowed_agents=["echo"], actor="the tests", address=""
        )
    )
    seen, chat = await client.create("echo")
    hidden, hidden_chat = await client.create("pilot")
    of_seen = {"kind": "session", "session": seen, "chat": chat}
    of_hidden = {"kind": "session", "session": hidden, "chat": hidden_chat}
    await create_terminal(client, URI)
    async with (
        mirroring(host, sample.bob.key, "me") as bob,
        mirroring(host, issued.raw, "limited", version=V0_9) as limited,
    ):
        for stranger in (bob, limited):
            assert stranger.state(ROOT)["terminals"] == []
            assert await stranger.code_of("subscribe", channel=URI) == -32008
            assert await stranger.code_of("disposeTerminal", channel=URI) == -32008
        await create_terminal(bob, URI)
        await type_into(bob, URI, "echo mine$((1))\n")
        await shows(bob, URI, "mine1")
        assert await limited.code_of("createTerminal", channel="t:/2", claim=of_hidden) == -32001
        await create_terminal(client, "t:/call", claim={**of_seen, "turnId": "t", "toolCallId": "c"})
        await limited.until(lambda: set(listed(limited)) == {"t:/call"})
        await limited.subscribe("t:/call")
        assert limited.state("t:/call")["claim"]["chat"] == chat
        assert "no session" in await limited.refused("t:/call", "terminal/claimed", claim=of_hidden)
        await told(client, URI, "claimed", claim=of_seen)
        await limited.until(lambda: set(listed(limited)) == {"t:/call", URI})
        await limited.check(ROOT)
        assert "mine1" not in screen_of(client, URI)
    session = await database.run(make_session, sample.alice.caller)
    token = await database.run(lambda: tokens.mint(sample.alice.caller, session))
    async with mirroring(host, token.raw, "browser") as browser:
        assert browser.state(ROOT)["terminals"] == []
        assert await browser.code_of("createTerminal", channel="t:/3", claim=claim_of(browser)) == -32009
        assert await browser.code_of("subscribe", channel="t:/call") == -32008
        own = f"ahp-session:/{session.public_id}"
        await create_terminal(browser, "t:/3", claim={"kind": "session", "session": own, "chat": chat_uri(own)})
        assert set(listed(browser)) == {"t:/3"}


@pytest.mark.rule("V230", "V231")
async def test_everyone_hears_of_an_end_and_of_a_dead_service(host: str, service: Service, sample: SampleTenants) -> None:
    async with AsyncExitStack() as stack:
        clients: list[Client] = [*await three(stack, host, sample.alice.key)]
        await create_terminal(clients[1], URI)
        await clients[0].subscribe(URI)
        await clients[2].subscribe(URI)
        await type_into(clients[2], URI, "kill -9 $$\n")
        for each in clients:
            await each.until(partial(has_exited, each, URI))
        # Of a signal there is no code.
        assert "exitCode" not in clients[0].state(URI)
        for each in clients[1:]:
            assert each.state(URI)["lifecycle"] == {"status": "exited"}
            await each.until(partial(is_listed_as_exited, each))
            await each.check(URI)  # type: ignore[attr-defined]
            await each.check(ROOT)  # type: ignore[attr-defined]


@pytest.mark.rule("V1", "V46", "V54", "V56", "V230", "V300", "V301", "V305", "V402")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
async def test_clients_of_three_versions_share_a_terminal_and_are_cut_off_at_any_point(
    host: str, service: Service, sample: SampleTenants, seed: int
) -> None:
    chosen = random.Random(seed)
    async with AsyncExitStack() as stack:
        clients = await three(stack, host, sample.alice.key)
        await create_terminal(clients[chosen.randrange(3)], URI)
        for each in clients:
            await each.subscribe(URI)
        for number in range(12):
            each = chosen.choice(clients)
            await told(each, URI, "input", data=f"seq {number}000 {number}099; echo end-$(({number} + 100))\n")
            if chosen.random() < 0.5:
                await told(each, URI, "resized", cols=80 + number, rows=24)
            if chosen.random() < 0.3:
                await told(each, URI, "titleChanged", title=f"title {number}")
            victim = chosen.choice(clients)
            victim.cut()
            with pytest.raises(Disconnected):
                await victim.until(lambda: False)
            assert await victim.reconnect() == "replay"
            await victim.check(URI)
            await victim.check(victim.version.root)
        for each in clients:
            await shows(each, URI, "end-111")
        await type_into(clients[0], URI, "exit 4\n")
        for each in clients:
            await each.until(partial(has_exited, each, URI))
            await each.until(partial(is_listed_as_exited, each))
            await each.check(URI)
            await each.check(each.version.root)
        # Everyone has the same output, and each number at most once.
        assert len({screen_of(each, URI) for each in clients}) == 1
        assert screen_of(clients[0], URI).count("end-") >= 24
        for each in clients:
            numbers = [found["serverSeq"] for found in each.seen if each.version.channel_of(found) == URI]
            assert len(numbers) == len(set(numbers))
        codes = [clients[0].state(URI)["exitCode"], *(each.state(URI)["lifecycle"]["exitCode"] for each in clients[1:])]
        assert codes == [4, 4, 4]
