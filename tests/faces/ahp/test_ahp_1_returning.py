"""AHP 0.9 and 1.0: what a client that comes back gets, and the dialect that it is spoken to in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessions_app.ahp.versions.v0_9 import addresses
from sessions_app.core.base import database
from sessions_app.core.base.events import Kind
from sessions_app.core.log import journal
from sessions_app.models import Event, Tenant
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, chat_uri, mirroring
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenant, SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)

EDITOR: dict[str, Any] = {"clientInfo": {"name": "vscode-editor-window", "version": "1"}}
FLAG: dict[str, Any] = {"_meta": {"vscode.ahpSessionUris": True}}


def marks(tenant: SampleTenant) -> list[int]:
    return list(
        Event.objects.filter(tenant_id=tenant.caller.tenant, kind=Kind.NEW_FAMILIES_FROM)
        .order_by("seq")
        .values_list("seq", flat=True)
    )


@pytest.mark.rule("V302")
async def test_events_from_before_the_mark_are_not_replayed(host: str, sample: SampleTenants) -> None:
    old = Watcher(host, sample.alice.key, "both")
    await old.open()
    await old.initialize()
    await old.request("createSession", {"session": "echo:/before", "provider": "echo"})
    await old.subscribe("echo:/before")
    assert await database.run(marks, sample.alice) == []
    seen = old.last_seq
    await old.echo(await old.dispatch({"type": "session/titleChanged", "session": "echo:/before", "title": "Before"}))
    for version in (V0_9, V1_0):
        client = Mirror(host, sample.alice.key, "both", version)
        await client.open()
        await client.initialize(ROOT)
        (mark,) = await database.run(marks, sample.alice)
        assert mark == await database.run(lambda: Tenant.objects.get(pk=sample.alice.caller.tenant).new_families_from)
        assert client.last_seq >= mark
        # A number that the client has from 0.1, and the last one before the mark.
        for last, kind in ((seen, "snapshot"), (mark - 1, "snapshot"), (mark, "replay"), (client.last_seq, "replay")):
            await client.close()
            client.last_seq = last
            assert await client.reconnect() == kind, last
        await client.close()
    # In 0.1 nothing has changed.
    old.cut()
    await old.ended()
    again = Watcher(host, sample.alice.key, "only-old")
    await again.open()
    await again.initialize("echo:/before")
    await again.close()
    again.last_seq = seen
    assert await again.reconnect() == "replay"
    assert [each["action"]["type"] for each in again.seen] == ["session/titleChanged"]
    await again.close()
    await old.close()


@pytest.mark.rule("V302")
async def test_a_tenant_has_one_mark_however_many_clients_come_first(host: str, sample: SampleTenants) -> None:
    async def come(number: int) -> None:
        async with mirroring(host, sample.alice.key, f"client-{number}"):
            pass

    await asyncio.gather(*map(come, range(8)))
    assert len(await database.run(marks, sample.alice)) == 1
    assert await database.run(marks, sample.bob) == []
    counter, _ = await database.run(journal.counter_and_sessions, sample.bob.caller.tenant)
    async with mirroring(host, sample.bob.key, "bob"):
        assert await database.run(marks, sample.bob) == [counter + 1]


@pytest.mark.rule("V310", "V313")
async def test_the_flag_of_each_handshake_decides_how_an_editor_is_spoken_to(host: str, sample: SampleTenants) -> None:
    async with mirroring(host, sample.alice.key, "one") as one:
        uri, _ = await one.create()
        client = Mirror(host, sample.alice.key, "editor", hello=EDITOR)
        await client.open()
        await client.initialize(ROOT)

        async def listed() -> str:
            return str((await client.request("listSessions", {"channel": ROOT}))["items"][0]["resource"])

        named = await listed()
        assert named.startswith("echo:/sess_")
        await client.subscribe(named)
        # Updated, restarted, set back: it comes back under its old id, with the flag or without.
        # Its states have other URIs then, so it gets snapshots.
        unset = {"_meta": {"vscode.ahpSessionUris": 1}}
        for hello, expected, kind in (
            (FLAG, uri, "snapshot"),
            (FLAG, uri, "replay"),
            ({}, named, "snapshot"),
            (unset, named, "replay"),
        ):
            client.hello = hello
            client.cut()
            await client.ended()
            await one.act(uri, "session/titleChanged", title=f"While {expected} was away")
            assert await client.reconnect() == kind
            assert await listed() == expected
            # Its subscription keeps its spelling (V46); what is inside follows the dialect.
            assert client.state(named)["title"] == f"While {expected} was away"
            assert (await client.check(named))["defaultChat"] == chat_uri(expected)
        await client.close()
        # Other clients may send the flag, too: nothing follows.
        other = Mirror(host, sample.alice.key, "other", hello=FLAG)
        await other.open()
        assert "_meta" not in await other.initialize(ROOT)
        other.cut()
        await other.ended()
        assert await other.reconnect() == "replay"
        assert await other.refused(chat_uri(uri), "session/titleChanged", title="Refused")
        await other.close()


@pytest.mark.rule("V207", "V315")
@pytest.mark.parametrize("hello", [EDITOR, {**EDITOR, **FLAG}], ids=["by-provider", "flagged"])
async def test_an_editor_renames_the_session_through_its_chat(host: str, sample: SampleTenants, hello: dict[str, Any]) -> None:
    async with (
        mirroring(host, sample.alice.key, "one") as one,
        mirroring(host, sample.alice.key, "editor", hello=hello) as editor,
    ):
        uri, chat = await one.create()
        listed = (await editor.request("listSessions", {"channel": ROOT}))["items"][0]
        named = listed["resource"]
        # It is subscribed to neither: the echo names the session as its lists do, whatever the chat was called.
        public_id = await database.run(lambda: public_id_of(sample.alice, uri))
        for number, spelled in enumerate((chat_uri(named), chat, f"ahp-chat:/{public_id}")):
            seq = await editor.dispatch({"type": "session/titleChanged", "title": f"Title {number}"}, spelled)
            echo = await editor.echo(seq)
            assert "rejectionReason" not in echo
            assert echo["channel"] == named
        await one.until(lambda: one.state(uri)["title"] == "Title 2")
        # A subscriber gets it once, as its subscription is spelled.
        await editor.subscribe(uri)
        await editor.act(chat, "session/titleChanged", title="Seen")
        echoes = [each["channel"] for each in editor.seen if each["action"].get("title") == "Seen"]
        assert echoes == [uri]
        assert await one.refused(chat, "session/titleChanged", title="Refused")
        assert await editor.refused(chat, "session/isReadChanged", isRead=True)
        await one.check(uri)


def public_id_of(tenant: SampleTenant, uri: str) -> str:
    found = addresses.find(tenant.caller, uri)
    assert found is not None
    return found.session.public_id


@pytest.mark.rule("V49", "V321")
async def test_channels_that_do_not_exist_are_not_found(host: str, sample: SampleTenants) -> None:
    async with mirroring(host, sample.alice.key, "one") as one:
        uri, _ = await one.create()
        codes = {
            f"{uri}/annotations": -32008,
            "echo:/nobody/annotations": -32008,
            "ahp-session:/nobody": -32001,
            "echo:/nobody": -32001,
            "nobodys:/agent": -32008,
            **dict.fromkeys(("ahp-changeset:/a", "ahp-automations://", "ahp-automation-run:/a", "ahp-canvas:/a"), -32008),
            **dict.fromkeys(("ahp-otlp:/traces", "ahp-resource-watch:/a", "ahp-chat:/a", "mcp:/a"), -32008),
        }
        for channel, code in codes.items():
            assert await one.code_of("subscribe", channel=channel) == code, channel
            # Dispatches there are ignored without a word.
            await one.dispatch({"type": "annotations/removed", "id": "a"}, channel)
        await one.act(uri, "session/titleChanged", title="Last")
        assert [each for each in one.seen if "rejectionReason" in each] == []
