"""Terminals of agents' commands that are gone, over AHP: what the results of old calls name can be subscribed to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from sessions_app.ahp.client.client import Disconnected
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.core import workspaces
from sessions_app.core.base import database
from sessions_app.core.base.maintenance import Round
from sessions_app.core.tenancy import keys
from sessions_app.core.terminals import creating, disposing, services
from sessions_app.core.terminals.creating import ForCall
from sessions_app.core.terminals.service import Service
from sessions_app.models import Session, Terminal, Turn
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, mirroring
from tests.e2e.ahp_terminals import create_terminal, has_exited, listed, screen_of, send
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])


async def run_command(client: Mirror, line: str) -> tuple[str, str, int]:
    """As an agent's call does, in a session of the client; returns the URIs of the session and the terminal, and the row."""
    uri, chat = await client.create()
    await client.start(chat, "wait")

    def create() -> Terminal:
        session = Session.objects.get()
        turn = Turn.objects.get(session=session)
        return creating.create_for_call(ForCall(session.pk, turn.pk, "c", line, workspaces.of_session(session).uri))

    row = await database.run(create)
    return uri, row.uri, row.pk


def clear_away() -> int:
    Terminal.with_disposed.filter(disposed_at__isnull=False).update(disposed_at=datetime.now(UTC) - timedelta(hours=1))
    return services.keep_house(Round(20))


@pytest.mark.rule("V233", "V92", "V94")
@both
async def test_a_terminal_of_an_old_result_can_be_read_and_does_nothing(
    host: str, service: Service, sample: SampleTenants, version: ClientVersion
) -> None:
    old = Watcher(host, sample.alice.key, "old")
    await old.open()
    await old.initialize(old.version.root)
    async with mirroring(host, sample.alice.key, "me", version=version) as client:
        session, uri, pk = await run_command(client, "echo all is well; exit 3")
        await client.subscribe(uri)
        await old.subscribe(uri)
        await client.until(partial(has_exited, client, uri))
        before = await client.check(uri)
        assert (before["claim"]["session"], before["claim"]["toolCallId"]) == (session, "c")
        assert before["lifecycle"] == {"status": "exited", "exitCode": 3}
        # A client is away while it is disposed of, as the result of the call is stored: it gets what a new client gets.
        client.cut()
        with pytest.raises(Disconnected):
            await client.until(lambda: False)
        assert await database.run(disposing.dispose_for_call, pk)
        assert await client.reconnect() == "snapshot"
        assert client.state(uri) == before
        assert listed(client) == {}
        for cleared in (False, True):
            if cleared:
                assert await database.run(clear_away) == 1
            assert await client.check(uri) == before
            assert "all is well" in screen_of(client, uri)
            assert "is kept" in await client.refused(uri, "terminal/input", data="x")
            assert "only the host" in await client.refused(uri, "terminal/data", data="x")
            assert await client.code_of("disposeTerminal", channel=uri) == -32008
        # Once it is cleared away, a client that was there before gets snapshots, and one that came after it a replay.
        client.cut()
        with pytest.raises(Disconnected):
            await client.until(lambda: False)
        assert await client.reconnect() == "replay"
        client.cut()
        with pytest.raises(Disconnected):
            await client.until(lambda: False)
        client.last_seq = before_disposal = 1
        assert before_disposal < client.mirrors[uri].from_seq
        assert await client.reconnect() == "snapshot"
        assert client.state(uri) == before
        # In 0.1 it is gone, and so it is in all versions when its session is.
        assert await old.request("ping") is None
        await send(old, uri, "input", data="x")
        with pytest.raises(Exception, match="-32008"):
            await old.request("subscribe", {"resource": uri})
        await client.request("disposeSession", {"channel": session})
        assert await client.code_of("subscribe", channel=uri) == -32008
        assert await database.run(clear_away) == 1
    await old.close()


@pytest.mark.rule("V233")
async def test_who_does_not_see_the_session_does_not_see_its_old_terminals(
    host: str, service: Service, sample: SampleTenants
) -> None:
    issued = await database.run(
        lambda: keys.issue(
            sample.alice.tenant, name="n", scopes=["*"], expires_at=None, allowed_agents=["pilot"], actor="the tests", address=""
        )
    )
    async with (
        mirroring(host, sample.alice.key, "me") as client,
        mirroring(host, sample.bob.key, "bob") as bob,
        mirroring(host, issued.raw, "limited") as limited,
    ):
        _, uri, pk = await run_command(client, "echo secret")
        await client.subscribe(uri)
        await client.until(partial(has_exited, client, uri))
        await database.run(disposing.dispose_for_call, pk)
        assert "secret" in screen_of(client, uri)
        wrong: list[Any] = [uri + "x", "agenthost-terminal:/", "agenthost-terminal:/term_\0", uri.replace(":/", "://")]
        for stranger in (bob, limited):
            for each in (uri, *wrong):
                assert await stranger.code_of("subscribe", channel=each) == -32008
        for each in wrong:
            assert await client.code_of("subscribe", channel=each) == -32008
        # A terminal of a client is not kept: nothing names it.
        await create_terminal(client, "ahp-terminal:/own")
        await client.request("disposeTerminal", {"channel": "ahp-terminal:/own"})
        assert await client.code_of("subscribe", channel="ahp-terminal:/own") == -32008
        await client.check(ROOT)
