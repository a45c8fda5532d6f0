"""Rights of keys over AHP: scopes and allowed agents."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1 import commands
from sessions_app.ahp.versions.v0_1.wire import envelopes
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database
from sessions_app.core.tenancy import keys
from sessions_app.management.commands import ahp_tail
from sessions_app.models import ClientPresence, SessionClient
from tests.e2e.ahp_steps import create_session, rejection_reason, start_action
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGE = {"text": "hello"}
CHANGING = {
    "createTerminal",
    "disposeTerminal",
    "createSession",
    "disposeSession",
    "resourceWrite",
    "resourceCopy",
    "resourceMove",
    "resourceDelete",
}
WATCHING = {
    "initialize",
    "reconnect",
    "ping",
    "subscribe",
    "listSessions",
    "fetchTurns",
    "authenticate",
    "resolveSessionConfig",
    "sessionConfigCompletions",
    "completions",
    "resourceRead",
    "resourceList",
    "resourceRequest",
}
"""Every command that is served is in one of the two."""
ABOUT_SESSIONS = sorted(word for word in {*envelopes.TYPES, *envelopes.FROM_CLIENTS} if word.startswith("session/"))


async def opened(host: str, key: str, client_id: str, *subscriptions: str) -> Watcher:
    client = Watcher(host, key, client_id)
    await client.open()
    await client.initialize(*subscriptions)
    return client


@pytest.mark.rule("R3", "R9")
@pytest.mark.parametrize("scope", ["meta:read", "sessions:write"])
async def test_a_key_that_may_not_read_sessions_does_not_connect(host: str, sample: SampleTenants, scope: str) -> None:
    issued = await database.run(
        lambda: keys.issue(sample.alice.tenant, name="n", scopes=[scope], expires_at=None, allowed_agents=None, actor="the tests")
    )
    with pytest.raises(InvalidStatus) as failed:
        async with connect(host, additional_headers={"Authorization": f"Bearer {issued.raw}"}, proxy=None):
            pass
    assert failed.value.response.status_code == 403


@pytest.mark.rule("R3")
@pytest.mark.parametrize(
    ("given", "refusal"), [("wrong", "401: The key is not valid."), ("", "401: The key is not valid.")], ids=["wrong", "none"]
)
async def test_ahp_tail_shows_the_hosts_reason_for_a_refused_connection(
    host: str, sample: SampleTenants, given: str, refusal: str
) -> None:
    with pytest.raises(CommandError) as shown:
        await ahp_tail.Command().tail(host, given, f"echo:/{sample.alice.tenant.slug}", once=True)
    assert str(shown.value) == f"the host refused the connection: {refusal}"


@pytest.mark.rule("R29")
async def test_an_error_names_the_session_the_agent_or_the_method_that_does_not_exist(host: str, sample: SampleTenants) -> None:
    client = await opened(host, sample.alice.key, "one", ROOT)
    for method, params, message in (
        ("fetchTurns", {"session": "echo:/gone"}, 'There is no such session: "echo:/gone".'),
        ("createSession", {"session": "ecko:/new", "provider": "ecko"}, 'There is no such agent provider: "ecko".'),
        ("subscribe", {"resource": "nothing:/here"}, 'There is no resource with this URI: "nothing:/here".'),
        ("fly", {}, 'There is no such method: "fly".'),
    ):
        with pytest.raises(RPCError) as refused:
            await client.request(method, params)
        assert refused.value.message == message
    await client.close()


@pytest.mark.rule("R9")
async def test_a_reading_key_watches_and_its_commands_change_nothing(host: str, sample: SampleTenants) -> None:
    writer = await opened(host, sample.alice.key, "writer", ROOT)
    uri = await create_session(writer)
    reader = await opened(host, sample.alice.reading_key, "reader", ROOT, uri)
    for method, params in (
        ("createSession", {"session": "echo:/new", "provider": "echo"}),
        ("createSession", {"session": uri, "provider": "echo"}),
        ("createSession", {"session": "echo:/fork", "fork": {"session": uri, "turnId": "t"}}),
        ("disposeSession", {"session": uri}),
        ("disposeSession", {"session": "echo:/nothing"}),
    ):
        with pytest.raises(RPCError) as failed:
            await reader.request(method, params)
        assert (failed.value.code, failed.value.data) == (-32009, None), method
    assert [each["resource"] for each in (await reader.request("listSessions", {}))["items"]] == [uri]
    assert (await reader.request("fetchTurns", {"session": uri}))["turns"] == []
    await writer.request("createSession", {"session": "echo:/second", "provider": "echo"})
    await reader.until(lambda: [each["summary"]["resource"] for each in reader.heard] == ["echo:/second"])
    await reader.until(lambda: reader.state(ROOT)["activeSessions"] == 2)
    for client in (writer, reader):
        await client.check(ROOT)
        await client.close()


@pytest.mark.rule("R9", "R83")
async def test_every_action_of_a_reading_key_is_rejected_and_nothing_of_it_happens(host: str, sample: SampleTenants) -> None:
    writer = await opened(host, sample.alice.key, "writer")
    uri = await create_session(writer)
    reader = await opened(host, sample.alice.reading_key, "reader", uri)
    before = await reader.check(uri)
    actions: list[dict[str, Any]] = [
        start_action(uri, "hello"),
        {"type": "session/titleChanged", "session": uri, "title": "mine"},
        {"type": "session/isReadChanged", "session": uri, "isRead": True},
        {"type": "session/isArchivedChanged", "session": uri, "isArchived": True},
        {"type": "session/modelChanged", "session": uri, "model": {"id": "gpt-test"}},
        {"type": "session/configChanged", "session": uri, "config": {"approval": "auto"}},
        {"type": "session/pendingMessageSet", "session": uri, "kind": "queued", "id": "q", "userMessage": MESSAGE},
        {"type": "session/activeClientChanged", "session": uri, "activeClient": {"clientId": "reader", "tools": []}},
        {"type": "session/turnCancelled", "session": uri, "turnId": "t"},
        {"type": "session/truncated", "session": uri},
        {"type": "session/never-heard-of", "session": uri},
        {"type": "root/configChanged", "config": {}},
    ]
    for action in actions:
        assert await rejection_reason(reader, action) == "this key may only read", action["type"]
    assert await reader.check(uri) == before
    assert writer.seen == []
    for client in (writer, reader):
        await client.close()


@pytest.mark.rule("R9")
async def test_only_commands_that_change_something_need_the_write_scope(host: str, sample: SampleTenants) -> None:
    assert set(commands.COMMANDS) == CHANGING | WATCHING
    reader = await opened(host, sample.alice.reading_key, "reader")
    for method in sorted(CHANGING | WATCHING):
        code = None
        try:
            await reader.request(method, {})
        except RPCError as error:
            code = error.code
        assert (code == -32009) is (method in CHANGING), method
    await reader.close()


@pytest.mark.rule("R9", "R83")
async def test_there_is_no_type_of_action_that_a_reading_key_may_dispatch(host: str, sample: SampleTenants) -> None:
    writer = await opened(host, sample.alice.key, "writer")
    uri = await create_session(writer)
    reader = await opened(host, sample.alice.reading_key, "reader", uri)
    for word in ABOUT_SESSIONS:
        assert await rejection_reason(reader, {"type": word, "session": uri}) == "this key may only read", word
    for word in (each for each in {*envelopes.TYPES, *envelopes.FROM_CLIENTS} if each.startswith("root/")):
        assert await rejection_reason(reader, {"type": word}) == "this key may only read", word
    assert writer.seen == []
    for client in (writer, reader):
        await client.close()


@pytest.mark.rule("R9", "R188")
async def test_a_reading_key_has_no_presence(host: str, sample: SampleTenants) -> None:
    writer = await opened(host, sample.alice.key, "me")
    await create_session(writer, activeClient={"clientId": "me", "tools": []})
    reader = await opened(host, sample.alice.reading_key, "me")
    assert await ClientPresence.objects.acount() == 1
    await reader.close()
    # Its end is stored before the next connection of the same client id is.
    another = await opened(host, sample.alice.reading_key, "me")
    await another.request("ping")
    assert await SessionClient.objects.filter(left_at=None).acount() == 1
    await another.close()
    await writer.close()


# --- keys limited to some agents ---


async def _limited_key(sample: SampleTenants, *agents: str, scopes: tuple[str, ...] = ("*",)) -> str:
    issued = await database.run(
        lambda: keys.issue(
            sample.alice.tenant, name="limited", scopes=scopes, expires_at=None, allowed_agents=list(agents), actor="the tests"
        )
    )
    return issued.raw


@pytest.mark.rule("R9", "R61", "R62")
async def test_sessions_of_agents_that_a_key_may_not_use_are_not_found(host: str, sample: SampleTenants) -> None:
    whole = await opened(host, sample.alice.key, "whole")
    chosen = await create_session(whole, "pilot")
    default = f"pilot:/{(await database.run(make_session, sample.alice.caller, 'pilot')).public_id}"
    limited = await opened(host, await _limited_key(sample, "echo"), "limited")
    own = await create_session(limited)
    answers: dict[str, list[Any]] = {}
    for uri in (chosen, default, "pilot:/nothing"):
        for method, params in (
            ("subscribe", {"resource": uri}),
            ("fetchTurns", {"session": uri}),
            ("completions", {"session": uri, "text": "", "offset": 0, "kind": "userMessage"}),
            ("disposeSession", {"session": uri}),
            ("createSession", {"session": "echo:/fork", "fork": {"session": uri, "turnId": "t"}}),
        ):
            with pytest.raises(RPCError) as failed:
                await limited.request(method, params)
            message = failed.value.message.replace(uri, "URI")
            answers.setdefault(method, []).append((failed.value.code, message, failed.value.data))
    assert {method: len(set(said)) for method, said in answers.items()} == dict.fromkeys(answers, 1)
    for uri in (chosen, default):
        await limited.notify("dispatchAction", {"clientSeq": 1, "action": start_action(uri, "hello")})
        for word in (*ABOUT_SESSIONS, "session/never-heard-of", "never/heard-of"):
            await limited.notify("dispatchAction", {"clientSeq": 2, "action": {"type": word, "session": uri}})
    # Whatever they led to would have come before this.
    await limited.echo(await limited.dispatch(_titled(own)))
    assert {each["action"]["session"] for each in limited.seen} == {own}
    assert {each["resource"] for each in (await whole.request("listSessions", {}))["items"]} == {chosen, default, own}
    await whole.subscribe(chosen)
    assert "activeTurn" not in whole.state(chosen)
    for client in (whole, limited):
        await client.close()


@pytest.mark.rule("R9", "R71", "R113", "R117", "R260")
async def test_lists_counts_and_notifications_of_a_limited_key_have_its_agents_only(host: str, sample: SampleTenants) -> None:
    key = await _limited_key(sample, "echo", scopes=("sessions:read",))
    whole = await opened(host, sample.alice.key, "whole", ROOT)
    first, hidden = await create_session(whole, "echo"), await create_session(whole, "pilot")
    limited = await opened(host, key, "limited", ROOT)
    late = await opened(host, key, "late")
    assert limited.state(ROOT)["activeSessions"] == 1
    assert [each["resource"] for each in (await limited.request("listSessions", {}))["items"]] == [first]
    await create_session(whole, "pilot")
    await whole.request("disposeSession", {"session": hidden})
    await whole.notify("dispatchAction", {"clientSeq": 900, "action": _titled(hidden)})
    second = await create_session(whole, "echo")
    await whole.request("disposeSession", {"session": first})
    await whole.until(lambda: whole.state(ROOT)["activeSessions"] == 2)
    for client in (limited, late):
        await client.until(lambda client=client: len(client.heard) >= 2)  # type: ignore[misc]
        heard = [each.get("session") or each["summary"]["resource"] for each in client.heard]
        assert heard == [second, first]
    await limited.until(lambda: len(limited.seen) == 2)
    assert [each["action"]["activeSessions"] for each in limited.seen] == [2, 1]
    await late.subscribe(ROOT)
    assert late.state(ROOT)["activeSessions"] == 1
    for client in (whole, limited, late):
        await client.check(ROOT)
        await client.close()


@pytest.mark.rule("R9", "R281", "R287")
async def test_the_replay_of_a_limited_key_has_its_agents_only(host: str, sample: SampleTenants) -> None:
    key = await _limited_key(sample, "echo")
    whole = await opened(host, sample.alice.key, "me", ROOT)
    uri, hidden = await create_session(whole, "echo"), await create_session(whole, "pilot")
    limited = await opened(host, key, "me", ROOT, uri)
    limited.cut()
    await limited.ended()
    # Another client that calls itself the same, and what it may not do is none of the limited one's business.
    assert await rejection_reason(whole, {"type": "session/turnCancelled", "session": hidden, "turnId": "t"})
    await create_session(whole, "echo")
    await create_session(whole, "pilot")
    await whole.request("disposeSession", {"session": hidden})
    await whole.until(lambda: whole.state(ROOT)["activeSessions"] == 3)
    limited.mirrors[hidden] = limited.mirrors[uri]
    assert await limited.reconnect() == "replay"
    assert hidden not in limited.mirrors
    assert [each["action"]["type"] for each in limited.seen] == ["root/activeSessionsChanged"]
    assert limited.state(ROOT)["activeSessions"] == 2
    for client in (whole, limited):
        await client.check(ROOT)
        await client.close()


@pytest.mark.rule("R9", "R110")
async def test_a_limited_key_does_not_take_over_the_address_of_a_session_it_cannot_see(host: str, sample: SampleTenants) -> None:
    whole = await opened(host, sample.alice.key, "whole")
    default = f"pilot:/{(await database.run(make_session, sample.alice.caller, 'pilot')).public_id}"
    limited = await opened(host, await _limited_key(sample, "echo"), "limited")
    with pytest.raises(RPCError) as failed:
        await limited.request("createSession", {"session": default, "provider": "echo"})
    assert failed.value.code == -32003
    assert (await whole.subscribe(default))["summary"]["provider"] == "pilot"
    for client in (whole, limited):
        await client.close()


def _titled(uri: str) -> dict[str, Any]:
    return {"type": "session/titleChanged", "session": uri, "title": "hidden"}
