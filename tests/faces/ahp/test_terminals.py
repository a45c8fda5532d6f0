"""Terminals over AHP: real shells in real sandboxes, with a terminal service in the test's process."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models import F

from agents_app.fair.rates import Rates
from agents_app.outbound.policy import Policy
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database, journal_keys
from sessions_app.core.base.maintenance import Round
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers
from sessions_app.core.tenancy import keys
from sessions_app.core.terminals import checkpoints, services, state
from sessions_app.core.terminals.service import Service
from sessions_app.models import ApiKey, Event, Tenant, Terminal, TerminalScreen
from sessions_app.workspace import pty, sandbox, watchdog
from tests.e2e.ahp_steps import rejection_reason
from tests.e2e.ahp_terminals import create_terminal, has_exited, listed, screen_of, shows, type_into
from tests.e2e.ahp_watcher import Watcher
from tests.network.agents_app.outbound.site import answer, running
from tests.sample_tenants import SampleTenants

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

URI = "term:/one"


@pytest.fixture
async def client(host: str, service: Service, sample: SampleTenants) -> AsyncIterator[Watcher]:
    client = Watcher(host, sample.alice.key, "me")
    await client.open()
    await client.initialize(ROOT)
    yield client
    await client.close()


async def opened(host: str, key: str, client_id: str, *subscriptions: str) -> Watcher:
    client = Watcher(host, key, client_id)
    await client.open()
    await client.initialize(*subscriptions)
    return client


async def runs(service: Service, count: int) -> None:
    """Wait until the service runs this number of shells."""
    async with asyncio.timeout(20):
        while len(service._live) != count:  # noqa: ASYNC110  # the service has a loop of its own
            await asyncio.sleep(0.01)


@pytest.mark.rule("R300", "R302", "R303", "R308", "R71")
async def test_a_shell_takes_input_and_exits_with_a_code(client: Watcher) -> None:
    await create_terminal(client, URI, name="build", cols=100, rows=30)
    assert client.state(URI)["cols"] == 100
    await type_into(client, URI, "echo $((40 + 2)); stty size\n")
    await shows(client, URI, "42\r\n30 100")
    await type_into(client, URI, "exit 3\n")
    assert await client.until(lambda: listed(client)[URI].get("exitCode")) == 3
    await client.check(URI)
    await client.check(ROOT)


def fetch(url: str) -> str:
    """A line for bash that reads an address through the proxy, as curl would."""
    return f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET {url} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3\n"


async def test_a_clients_terminal_has_network_only_if_the_operator_gives_it_to_all(
    client: Watcher, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running() as site:
        site.pages["/secret-path"] = answer("the page")
        settings.AGENTHOST_SANDBOX_NETWORK_POLICY = Policy.of([f"127.0.0.1:{site.port}"], [80])
        settings.AGENTHOST_SANDBOX_NETWORK = "agents"
        await create_terminal(client, URI)
        await type_into(client, URI, fetch(site.url("/secret-path")))
        await shows(client, URI, "Connection refused")
        settings.AGENTHOST_SANDBOX_NETWORK = "all"
        await create_terminal(client, "term:/two")
        await type_into(client, "term:/two", fetch(site.url("/secret-path")))
        await shows(client, "term:/two", "the page")
        await type_into(client, "term:/two", fetch("http://169.254.169.254/latest/"))
        await shows(client, "term:/two", "403 Forbidden: the host is unknown, or has an address that is not public")
        settings.AGENTHOST_SANDBOX_NETWORK_HOSTS = Policy.of(["packages.example"], []).allowances
        await create_terminal(client, "term:/three")
        await type_into(client, "term:/three", fetch(site.url("/secret-path")))
        await shows(
            client, "term:/three", "not in the list of hosts that this sandbox may reach (AGENTHOST_SANDBOX_NETWORK_HOSTS)"
        )
    async with asyncio.timeout(20):
        while "sandbox_network_refused" not in caplog.text:  # noqa: ASYNC110  # the service has a loop of its own
            await asyncio.sleep(0.01)
    assert f"host=127.0.0.1 port={site.port} sent=" in caplog.text
    assert "secret-path" not in caplog.text


@pytest.mark.rule("R308")
async def test_a_program_that_fills_the_workspace_in_one_write_is_ended_and_its_files_can_be_removed(
    client: Watcher, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "BUSY_SECONDS", 0.05)
    settings.AGENTHOST_WORKSPACE_BYTES = 20 * 1024**2
    await create_terminal(client, URI)
    await type_into(client, URI, "echo kept > kept; cat /dev/zero > full\n")
    await shows(client, URI, "[disk: the workspace takes ")
    await shows(client, URI, "the limit is 20.0 MiB]")
    await client.until(lambda: has_exited(client, URI))
    # It was ended in the middle: what it had written is there, and so is what was there before.
    assert (await client.request("resourceRead", {"uri": "file:///workspace/kept"}))["data"] == "kept\n"
    await client.request("resourceDelete", {"uri": "file:///workspace/full"})
    await create_terminal(client, "term:/two")
    await type_into(client, "term:/two", "cat kept; echo $((6*7))\n")
    await shows(client, "term:/two", "kept\r\n42")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run sandboxes as several users")
async def test_each_tenants_programs_and_files_are_a_users_of_its_own_and_stay_usable_when_that_changes(
    client: Watcher, sample: SampleTenants, settings: Any
) -> None:
    async def types(terminal: str, text: str, shown: str) -> None:
        await type_into(client, terminal, text)
        await shows(client, terminal, shown)

    def owners() -> set[int]:
        (tree,) = settings.AGENTHOST_WORKSPACES_DIR.glob(f"{tenant}/*/tree")
        return {path.lstat().st_uid for path in (tree, *tree.rglob("*"))}

    tenant = sample.alice.tenant.pk
    await client.request("resourceWrite", {"uri": "file:///workspace/a", "data": "before\n", "encoding": "utf-8"})
    await create_terminal(client, URI)
    await types(URI, "umask 077; echo mine > b; cat a\n", "before")
    assert owners() == {settings.AGENTHOST_SANDBOX_UID}
    settings.AGENTHOST_SANDBOX_UID, settings.AGENTHOST_SANDBOX_UIDS = 2_000_000_000, 1000
    await create_terminal(client, "term:/two")
    await types("term:/two", "cat b; echo more >> a; echo $((6*7))\n", "42")
    assert owners() == {2_000_000_000 + tenant % 1000}
    await client.request("resourceWrite", {"uri": "file:///workspace/c", "data": "late\n", "encoding": "utf-8"})
    assert (await client.request("resourceRead", {"uri": "file:///workspace/b"}))["data"] == "mine\n"
    await types("term:/two", "cat a c; rm b; echo $((6*8))\n", "48")
    assert owners() == {2_000_000_000 + tenant % 1000}


@pytest.mark.rule("R304", "R90")
async def test_the_program_sees_a_new_size(client: Watcher) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "trap 'stty size' WINCH; echo ready$((1))\n")
    await shows(client, URI, "ready1")
    await client.dispatch({"type": "terminal/resized", "terminal": URI, "cols": 132, "rows": 43})
    await shows(client, URI, "43 132")
    state = client.state(URI)
    assert (state["cols"], state["rows"]) == (132, 43)
    for cols, rows in ((0, 24), (80, 1001)):
        reason = await rejection_reason(client, {"type": "terminal/resized", "terminal": URI, "cols": cols, "rows": rows})
        assert "from 1 to 1000" in reason
    await client.check(URI)


@pytest.mark.rule("R300", "R301", "R60", "R62")
async def test_terminals_that_cannot_be_created(client: Watcher, settings: Any) -> None:
    await create_terminal(client, URI)
    await client.request("createSession", {"session": "echo:/s", "provider": "echo"})
    mine = {"kind": "client", "clientId": "me"}
    refused: list[tuple[dict[str, Any], int]] = [
        ({"terminal": URI, "claim": mine}, -32010),
        ({"terminal": "echo:/s", "claim": mine}, -32010),
        ({"terminal": "nothing", "claim": mine}, -32602),
        ({"terminal": ROOT, "claim": mine}, -32602),
        ({"terminal": "term:/2", "claim": {"kind": "client", "clientId": "another"}}, -32602),
        ({"terminal": "term:/2", "claim": {"kind": "session", "session": "echo:/none"}}, -32001),
        ({"terminal": "term:/2", "claim": mine, "cwd": "file:///etc"}, -32009),
        ({"terminal": "term:/2", "claim": mine, "cwd": "file:///workspace/none"}, -32008),
        ({"terminal": "term:/2", "claim": mine, "cwd": "https://example.org/"}, -32602),
        ({"terminal": "term:/2", "claim": mine, "cols": 0}, -32602),
        ({"terminal": "term:/2", "claim": mine, "name": "n" * 501}, -32602),
    ]
    for params, code in refused:
        with pytest.raises(RPCError) as failed:
            await client.request("createTerminal", params)
        assert failed.value.code == code, (params, failed.value)
    with pytest.raises(RPCError) as failed:
        await client.request("createSession", {"session": URI, "provider": "echo"})
    assert failed.value.code == -32003
    with pytest.raises(RPCError) as failed:
        await client.request("subscribe", {"resource": "term:/2"})
    assert failed.value.code == -32008
    settings.AGENTHOST_TENANT_TERMINALS = 1
    with pytest.raises(RPCError, match="AGENTHOST_TENANT_TERMINALS"):
        await client.request("createTerminal", {"terminal": "term:/2", "claim": mine})
    assert [each["resource"] for each in client.state(ROOT)["terminals"]] == [URI]


@pytest.mark.rule("R300")
async def test_the_reason_why_there_are_no_terminals_is_named(
    host: str, terminals_on: None, sample: SampleTenants, settings: Any
) -> None:
    client = await opened(host, sample.alice.key, "me")
    params = {"terminal": URI, "claim": {"kind": "client", "clientId": "me"}}
    with pytest.raises(RPCError, match="no terminal service is running"):
        await client.request("createTerminal", params)
    await database.run(services.renew, "broken", "bubblewrap is not installed")
    with pytest.raises(RPCError, match="bubblewrap is not installed"):
        await client.request("createTerminal", params)
    settings.AGENTHOST_TERMINALS = False
    with pytest.raises(RPCError, match="AGENTHOST_TERMINALS"):
        await client.request("createTerminal", params)
    await client.close()


@pytest.mark.rule("R305", "R306", "R68", "R71")
async def test_a_claim_goes_to_whom_its_holder_gives_it(client: Watcher, host: str, sample: SampleTenants) -> None:
    await create_terminal(client, URI)
    other = await opened(host, sample.alice.key, "other", ROOT, URI)
    await client.request("createSession", {"session": "echo:/s", "provider": "echo"})

    def claimed(**claim: Any) -> dict[str, Any]:
        return {"type": "terminal/claimed", "terminal": URI, "claim": claim}

    assert "another client has" in await rejection_reason(other, claimed(kind="client", clientId="other"))
    assert "no session" in await rejection_reason(client, claimed(kind="session", session="echo:/none"))
    for claim in (claimed(kind="client", clientId="me"), claimed(kind="client", clientId="other")):
        assert "rejectionReason" not in await client.echo(await client.dispatch(claim))
    assert "another client has" in await rejection_reason(client, claimed(kind="client", clientId="me"))
    for_call = claimed(kind="session", session="echo:/s", turnId="t", toolCallId="c")
    assert "rejectionReason" not in await other.echo(await other.dispatch(for_call))
    assert "a session has" in await rejection_reason(other, claimed(kind="client", clientId="other"))
    released = claimed(kind="session", session="echo:/s")
    assert "rejectionReason" not in await client.echo(await client.dispatch(released))
    assert "a session has" in await rejection_reason(client, released)
    await other.until(lambda: other.state(ROOT)["terminals"][0]["claim"] == released["claim"])
    for each in (client, other):
        await each.check(URI)
        await each.check(ROOT)
    await other.close()


@pytest.mark.rule("R306")
async def test_of_two_claims_at_once_the_first_wins(client: Watcher, host: str, sample: SampleTenants) -> None:
    await client.request("createSession", {"session": "echo:/s", "provider": "echo"})
    of_session = {"kind": "session", "session": "echo:/s"}
    await create_terminal(client, URI, claim={**of_session, "turnId": "t", "toolCallId": "c"})
    other = await opened(host, sample.alice.key, "other", URI)
    said = {"type": "terminal/claimed", "terminal": URI, "claim": of_session}
    numbers = await client.dispatch(said), await other.dispatch(said)
    echoes = await asyncio.gather(client.echo(numbers[0]), other.echo(numbers[1]))
    assert sorted("rejectionReason" in echo for echo in echoes) == [False, True]
    await other.close()


@pytest.mark.rule("R310", "R81", "R82")
async def test_titles_and_clearing(client: Watcher) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "echo before$((1))\n")
    await shows(client, URI, "before1")
    await client.echo(await client.dispatch({"type": "terminal/cleared", "terminal": URI}))
    assert "before1" not in screen_of(client, URI)
    await client.echo(await client.dispatch({"type": "terminal/titleChanged", "terminal": URI, "title": "mine"}))
    await client.until(lambda: client.state(ROOT)["terminals"][0]["title"] == "mine")
    await client.check(URI)
    assert "only the host" in await rejection_reason(client, {"type": "terminal/data", "terminal": URI, "data": "x"})
    assert await rejection_reason(client, {"type": "terminal/input", "terminal": URI})
    # Of an unknown terminal: ignored without an echo, so the next answer comes first.
    unknown = await client.dispatch({"type": "terminal/cleared", "terminal": "term:/none"})
    await client.echo(await client.dispatch({"type": "terminal/cleared", "terminal": URI}))
    assert client._echo_of(unknown) is None


@pytest.mark.rule("R308", "R90")
async def test_a_dead_shell_takes_no_input_and_stays_readable(client: Watcher) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "echo last$((1)); kill -9 $$\n")
    await client.until(lambda: has_exited(client, URI))
    exited = next(each["action"] for each in client.seen if each["action"]["type"] == "terminal/exited")
    assert "exitCode" not in exited
    assert "last1" in screen_of(client, URI)
    assert "has exited" in await rejection_reason(client, {"type": "terminal/input", "terminal": URI, "data": "x"})
    assert "exitCode" not in client.state(ROOT)["terminals"][0]
    await client.check(URI)


@pytest.mark.rule("R309", "R72", "R307")
async def test_disposing_ends_the_program_and_the_subscription(client: Watcher, service: Service) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "sleep 1000\n")
    await shows(client, URI, "sleep 1000\r\n")
    assert await client.request("disposeTerminal", {"terminal": URI}) is None
    await client.until(lambda: client.state(ROOT)["terminals"] == [])
    await runs(service, 0)
    with pytest.raises(RPCError) as failed:
        await client.request("disposeTerminal", {"terminal": URI})
    assert failed.value.code == -32008
    # The URI is free again.
    del client.mirrors[URI]
    await create_terminal(client, URI)
    await shows(client, URI, "$ ")


@pytest.mark.rule("R307")
async def test_a_session_takes_its_terminals_with_it(client: Watcher, service: Service) -> None:
    await client.request("createSession", {"session": "echo:/s", "provider": "echo"})
    held = {"terminal": "term:/held", "claim": {"kind": "session", "session": "echo:/s"}}
    await client.request("createTerminal", held)
    await create_terminal(client, URI)
    await client.request("disposeSession", {"session": "echo:/s"})
    await client.until(lambda: [each["resource"] for each in client.state(ROOT)["terminals"]] == [URI])
    await runs(service, 1)
    await type_into(client, URI, "echo alive$((1))\n")
    await shows(client, URI, "alive1")


@pytest.mark.rule("R311", "R385")
async def test_two_viewers_of_much_output_stay_equal_and_a_snapshot_is_a_suffix(
    client: Watcher, host: str, sample: SampleTenants, settings: Any
) -> None:
    settings.AGENTHOST_TERMINAL_SCROLLBACK = 20_000
    await create_terminal(client, URI)
    other = await opened(host, sample.alice.key, "other", URI)
    await type_into(client, URI, "for i in $(seq 1 20000); do echo line $i; done; echo done$((1))\n")
    await shows(client, URI, "done1")
    await other.until(lambda: "done1" in screen_of(other, URI), 20)
    assert screen_of(client, URI).count("line ") >= 20_000
    assert re.findall(r"line (\d+)\r\n", screen_of(client, URI)) == [str(number) for number in range(1, 20_001)]
    assert screen_of(other, URI) in screen_of(client, URI)
    late = await opened(host, sample.alice.key, "late", URI)
    stored = screen_of(late, URI)
    assert 15_000 < len(stored) <= 20_100
    assert screen_of(client, URI).endswith(stored)
    for each in (other, late):
        await each.close()


@pytest.mark.rule("R65", "R280", "R283")
async def test_reconnecting_replays_output_and_gets_a_snapshot_where_it_is_gone(client: Watcher, service: Service) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "echo one$((1))\n")
    await shows(client, URI, "one1")
    client.cut()
    assert await client.reconnect() == "replay"
    await type_into(client, URI, "echo two$((2))\n")
    await shows(client, URI, "two2")
    await client.check(URI)
    client.cut()
    row = await database.run(Terminal.objects.get)
    seq = await database.run(checkpoints.store, row.pk)
    await database.run(
        lambda: journal.prune_covered(journal_keys.of_terminal(row.pk), seq, datetime.now(UTC) + timedelta(1), 10_000)
    )
    client.last_seq = 1
    assert await client.reconnect() == "snapshot"
    assert "one1" in screen_of(client, URI)
    assert "two2" in screen_of(client, URI)
    await client.check(URI)


@pytest.mark.rule("R380", "R381", "R382")
async def test_tenants_have_terminals_of_their_own(client: Watcher, host: str, sample: SampleTenants) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "echo secret$((1)); pwd\n")
    await shows(client, URI, "secret1")
    bob = await opened(host, sample.bob.key, "me", ROOT)
    assert bob.state(ROOT)["terminals"] == []
    for method, params in (("subscribe", {"resource": URI}), ("disposeTerminal", {"terminal": URI})):
        with pytest.raises(RPCError) as failed:
            await bob.request(method, params)
        assert failed.value.code == -32008
    await create_terminal(bob, URI)
    await type_into(bob, URI, "echo mine$((2))\n")
    await shows(bob, URI, "mine2")
    assert "secret" not in screen_of(bob, URI)
    assert "mine" not in screen_of(client, URI)
    await bob.request("disposeTerminal", {"terminal": URI})
    await type_into(client, URI, "echo still$((3))\n")
    await shows(client, URI, "still3")
    await bob.close()


@pytest.mark.rule("R9", "R381")
async def test_limited_keys_see_their_sessions_and_their_own_terminals(client: Watcher, host: str, sample: SampleTenants) -> None:
    issued = await database.run(
        lambda: keys.issue(
            sample.alice.tenant, name="n", scopes=["*"], expires_at=None, allowed_agents=["echo"], actor="the tests", address=""
        )
    )
    await create_terminal(client, URI)
    for agent in ("echo", "pilot"):
        await client.request("createSession", {"session": f"{agent}:/s", "provider": agent})
    limited = await opened(host, issued.raw, "limited", ROOT)
    assert limited.state(ROOT)["terminals"] == []

    async def refused(method: str, params: dict[str, Any]) -> int:
        with pytest.raises(RPCError) as failed:
            await limited.request(method, params)
        return failed.value.code

    assert await refused("subscribe", {"resource": URI}) == -32008
    assert await refused("disposeTerminal", {"terminal": URI}) == -32008
    to_session = {"type": "terminal/claimed", "terminal": URI, "claim": {"kind": "client", "clientId": "me"}}
    for_call = {"kind": "session", "session": "echo:/s", "turnId": "t", "toolCallId": "c"}
    await client.request("createTerminal", {"terminal": "term:/call", "claim": for_call})
    await limited.until(lambda: [each["resource"] for each in limited.state(ROOT)["terminals"]] == ["term:/call"])
    await limited.subscribe("term:/call")
    given = {**to_session, "claim": {"kind": "session", "session": "echo:/s"}}
    await client.echo(await client.dispatch(given))
    await limited.until(lambda: len(limited.state(ROOT)["terminals"]) == 2)
    await limited.check(ROOT)
    await limited.close()


@pytest.mark.rule("R9")
async def test_reading_keys_watch_and_do_not_type(client: Watcher, host: str, sample: SampleTenants) -> None:
    await create_terminal(client, URI)
    reader = await opened(host, sample.alice.reading_key, "reader", ROOT, URI)
    assert "may only read" in await rejection_reason(reader, {"type": "terminal/input", "terminal": URI, "data": "x\n"})
    with pytest.raises(RPCError) as failed:
        await reader.request("createTerminal", {"terminal": "term:/2", "claim": {"kind": "client", "clientId": "reader"}})
    assert failed.value.code == -32009
    await type_into(client, URI, "echo seen$((1))\n")
    await reader.until(lambda: "seen1" in screen_of(reader, URI), 20)
    await reader.close()


@pytest.mark.rule("R308", "R384")
async def test_the_terminals_of_a_dead_service_end_without_a_code(client: Watcher, service: Service) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "echo alive$((1))\n")
    await shows(client, URI, "alive1")

    def die() -> None:
        """As if the service had been killed and its lease had run out. With another fence, because this one still runs, and may
        find out and report the end of the shell before it is the dead one's."""
        Terminal.objects.update(service="dead", fence=F("fence") + 1)
        services.sweep(live_workers.database_clock() + timedelta(seconds=60))

    await database.run(die)
    await shows(client, URI, "has ended")
    await client.until(lambda: has_exited(client, URI))
    # The service finds out, kills the shell, and can append nothing more.
    await runs(service, 0)
    assert screen_of(client, URI).endswith(services.NO_SERVICE_LEFT)
    await client.check(URI)
    await client.check(ROOT)


async def test_a_tenant_leaves_terminals_to_others(
    client: Watcher, host: str, service: Service, sample: SampleTenants, settings: Any
) -> None:
    settings.AGENTHOST_TERMINAL_CONCURRENCY = 8
    for number in range(8):
        await create_terminal(client, f"term:/{number}")
    await runs(service, 7)
    other = await opened(host, sample.bob.key, "other")
    await create_terminal(other, URI)
    await type_into(other, URI, "echo one$((1))\n")
    await shows(other, URI, "one1")
    assert await database.run(lambda: services.claim("one-more", 1, reserved=1)) != []
    await other.close()


async def test_one_of_two_services_starts_a_terminal(client: Watcher, service: Service) -> None:
    second = Service()
    await asyncio.to_thread(second.start)
    for number in range(4):
        await create_terminal(client, f"term:/{number}")
    for number in range(4):
        await type_into(client, f"term:/{number}", "echo one$((1))\n")
        await shows(client, f"term:/{number}", "one1")
        assert screen_of(client, f"term:/{number}").count("one1") == 1
    assert len(service._live) + len(second._live) == 4
    await asyncio.to_thread(second.stop)
    left = len(service._live)

    def stopped() -> int:
        return sum("was stopped" in screen_of(client, f"term:/{number}") for number in range(4))

    await client.until(lambda: stopped() == 4 - left, 20)


@pytest.mark.rule("R310", "R302")
async def test_the_program_sets_title_and_directory(client: Watcher) -> None:
    await create_terminal(client, URI)
    assert client.state(URI)["cwd"] == "file:///workspace"
    await type_into(client, URI, "mkdir 'a b' && cd 'a b' && printf '\\033]2;from the program\\007'\n")
    await client.until(lambda: client.state(URI).get("cwd") == "file:///workspace/a%20b", 20)
    await client.until(lambda: listed(client)[URI]["title"] == "from the program", 20)
    await client.check(URI)
    await create_terminal(client, "term:/2", cwd="file:///workspace/a%20b")
    await type_into(client, "term:/2", "pwd\n")
    await shows(client, "term:/2", "/workspace/a b\r\n")


@pytest.mark.rule("R312", "R313")
async def test_commands_are_detected_and_their_marks_are_not_output(client: Watcher) -> None:
    await create_terminal(client, URI)
    await client.until(lambda: client.state(URI).get("supportsCommandDetection"), 20)
    marks = "printf '\\033]633;'; sleep 0.05; printf 'C\\007mar'; printf '\\033]133;A\\033'; sleep 0.05; printf '\\\\ked\\n'"
    await type_into(client, URI, f"{marks}; (exit 7)\n")

    def finished() -> dict[str, Any] | None:
        return next((part for part in client.state(URI)["content"] if part["type"] == "command" and part["isComplete"]), None)

    command = await client.until(finished, 20)
    assert command["exitCode"] == 7
    assert command["durationMs"] >= 50
    assert "(exit 7)" in command["commandLine"]
    assert "marked\r\n" in command["output"]
    assert "\x1b]633" not in screen_of(client, URI)
    assert "\x1b]133" not in screen_of(client, URI)
    await client.check(URI)


@pytest.mark.rule("R303")
async def test_bytes_of_input_and_output_arrive_as_they_are(client: Watcher) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "stty raw -echo; echo ready$((1)); head -c 9 | od -An -tx1; stty sane\n")
    await shows(client, URI, "ready1")
    await type_into(client, URI, "\0\x1b\x7f€\r\n\t")
    await shows(client, URI, "00 1b 7f e2 82 ac 0d 0a 09")
    await type_into(client, URI, "printf '\\342'; sleep 0.05; printf '\\202\\254 and \\377\\n'\n")
    await shows(client, URI, "€ and \ufffd")
    await client.check(URI)


async def test_input_is_limited(client: Watcher) -> None:
    await create_terminal(client, URI)
    long = {"type": "terminal/input", "terminal": URI, "data": "x" * 65_537}
    assert "65,536" in await rejection_reason(client, long)
    await type_into(client, URI, "stty -icanon -echo; echo quiet$((1)); sleep 1000\n")
    await shows(client, URI, "quiet1")
    flood = {**long, "data": "x" * 65_536}
    reasons = [(await client.echo(await client.dispatch(flood))).get("rejectionReason") for _ in range(40)]
    assert reasons[0] is None
    assert any("per second" in reason for reason in reasons if reason is not None)
    # The program reads nothing, and can still be ended.
    await client.request("disposeTerminal", {"terminal": URI})


async def test_an_idle_terminal_is_closed(client: Watcher, service: Service, settings: Any) -> None:
    await create_terminal(client, URI)
    await shows(client, URI, "$ ")
    settings.AGENTHOST_TERMINAL_IDLE_SECONDS = 0.3
    await shows(client, URI, "neither input nor output")
    await client.until(lambda: has_exited(client, URI))
    await runs(service, 0)


async def test_exited_terminals_go_and_leave_nothing(client: Watcher, settings: Any) -> None:
    await create_terminal(client, URI)
    await type_into(client, URI, "exit\n")
    await client.until(lambda: has_exited(client, URI))
    settings.AGENTHOST_TERMINAL_EXITED_SECONDS = -3600.0
    await database.run(lambda: services.keep_house(Round(20)))
    await client.until(lambda: listed(client) == {})

    def remove() -> tuple[int, int, int]:
        Terminal.with_disposed.update(disposed_at=datetime.now(UTC) - timedelta(hours=1))
        assert services.keep_house(Round(20)) == 1
        keys = Event.objects.filter(session_id__gte=journal_keys.of_terminal(0)).count()
        return keys, Terminal.with_disposed.count(), TerminalScreen.objects.count()

    assert await database.run(remove) == (0, 0, 0)


async def test_a_terminal_that_no_service_takes_ends(
    host: str, terminals_on: None, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await opened(host, sample.alice.key, "me", ROOT)
    # A service that is full.
    await database.run(services.renew, "full", "")
    await create_terminal(client, URI)
    monkeypatch.setattr(services, "START_SECONDS", -3600.0)
    await database.run(lambda: services.sweep(live_workers.database_clock()))
    await shows(client, URI, "could not be started")
    await client.until(lambda: has_exited(client, URI))
    await client.check(URI)
    await client.close()


def _shows_only(client: Watcher, uri: str, text: str) -> bool:
    return screen_of(client, uri) == text


async def test_why_a_shell_does_not_start_names_no_directory_of_the_server(
    client: Watcher, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = sandbox.failure(b"bwrap: Can't find source path /srv/agenthost/1/ws_1/tree: No such file or directory\n")
    closed = sandbox.failure(b"bwrap: Can't chdir to /workspace/plan-of-the-merger: Permission denied\n")
    for number, (error, shown) in enumerate(
        [
            (broken, "[The terminal could not be started; the server's log has the reason.]"),
            (closed, "[The terminal could not be started: its directory was removed or may not be entered]"),
        ]
    ):

        async def start(*_given: Any, error: Exception = error, **_more: Any) -> None:
            raise error

        monkeypatch.setattr(pty, "start", start)
        uri = f"term:/broken-{number}"
        await create_terminal(client, uri)
        # It may have ended before the client has subscribed: then no action says so.
        await client.until(partial(_shows_only, client, uri, shown + "\r\n"))
    assert "Can't find source path /srv/agenthost" in caplog.text
    assert "merger" not in caplog.text


@pytest.mark.rule("R385")
async def test_a_fast_program_waits_and_nothing_is_lost(client: Watcher, service: Service) -> None:
    service._rates = Rates(100_000)
    await create_terminal(client, URI)
    began = time.monotonic()
    await type_into(client, URI, "seq 1 60000; echo done$((1))\n")
    await shows(client, URI, "done1")
    # 400 KB at 100 KB a second, of which a second's worth may come at once.
    assert time.monotonic() - began > 2
    assert re.findall(r"(?<![a-z])(\d+)\r\n", screen_of(client, URI)) == [str(number) for number in range(1, 60_001)]


@pytest.mark.parametrize(
    ("how", "line"), [("suspended", services.SUSPENDED), ("revoked", services.REVOKED)], ids=["tenant", "key"]
)
async def test_terminals_end_with_their_tenant_and_their_key(
    client: Watcher, service: Service, sample: SampleTenants, how: str, line: str
) -> None:
    await create_terminal(client, URI)
    await shows(client, URI, "$ ")

    def refuse() -> None:
        if how == "suspended":
            Tenant.objects.filter(pk=sample.alice.tenant.pk).update(suspended_at=datetime.now(UTC))
        else:
            ApiKey.objects.filter(pk=sample.alice.caller.line).update(revoked_at=datetime.now(UTC))
        services.end_refused()

    await database.run(refuse)
    await runs(service, 0)
    row = await database.run(Terminal.objects.get)
    assert row.exit_code is None
    view = await database.run(state.read, sample.alice.caller, row)
    assert view.screen.parts[-1].text.endswith(line)
