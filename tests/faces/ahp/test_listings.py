"""Changes of agents by a restart, another server or an operator: clients get them in the root and in sessions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agents_app import registry
from agents_app.spec import AgentSpec, OptionSpec
from sessions_app.ahp.tenant import presence
from sessions_app.ahp.tenant.switchboard import Switchboard
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database
from sessions_app.core.base.events import Kind
from sessions_app.core.log import feed, journal
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import agent_listings, keys, tenants
from sessions_app.models import AgentListing, ShownListing
from tests.core.conftest import locked
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenant, SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_RENEWALS", 300)


_one_process = threading.RLock()
"""Held while ``Process`` replaces this process's agents, so that the host's own renewals see either the old or the new ones."""


@pytest.fixture(autouse=True)
def _hosts_looks_wait_for_other_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "host" not in request.fixturenames:
        return

    def alone(look: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(*arguments: Any) -> Any:
            with _one_process:
                return look(*arguments)

        return waiting

    for name in ("outdated", "renew", "show"):
        monkeypatch.setattr(agent_listings, name, alone(getattr(agent_listings, name)))


class Process:
    """A server with agents of its own, in this process's stead within the block."""

    def __init__(self, specs: Sequence[AgentSpec]) -> None:
        self._specs = list(specs)
        self._process = agent_listings._Process()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before, agent_listings._process = agent_listings._process, self._process
        try:
            with registry.use(self._specs):
                if self._process.published is not None:
                    # The same start of the same process.
                    self._process.published = registry.agents()
                yield
        finally:
            agent_listings._process = before

    def show(self, *members: SampleTenant) -> None:
        with _one_process, self():
            for tenant in agent_listings.outdated([member.tenant.pk for member in members]):
                agent_listings.show(tenant)

    def start_again(self, member: SampleTenant) -> None:
        """As another start of the same server: it publishes its agents, as each start does."""
        with _one_process, self():
            self._process.published = None
            agent_listings.show(member.tenant.pk)


def _now() -> list[AgentSpec]:
    return list(registry.agents().values())


def _other(name: str = "extra") -> AgentSpec:
    return replace(_now()[0], name=name, title="Another")


def _with_other_options() -> list[AgentSpec]:
    """``pilot`` has another setting."""
    echo, pilot = _now()
    return [echo, replace(pilot, options=(*pilot.options, OptionSpec("text", "ship", default="Argo")))]


def _names(client: Watcher) -> list[str]:
    return [each["provider"] for each in client.state(ROOT)["agents"]]


async def _opened(host: str, key: str, *subscriptions: str, client_id: str = "watcher") -> Watcher:
    client = Watcher(host, key, client_id)
    await client.open()
    await client.initialize(*(subscriptions or (ROOT,)))
    return client


async def _gone(client: Watcher) -> None:
    """Cut the connection, and wait until the server follows no tenant."""
    client.cut()
    await client.ended()
    await asyncio.to_thread(_nobody_follows)


def _nobody_follows() -> None:
    until = time.monotonic() + 30
    while feed.streams_open():
        assert time.monotonic() < until
        time.sleep(0.01)


def _events(member: SampleTenant) -> list[Any]:
    found = journal.read_tenant(member.tenant.pk, 0).events
    return [event for event in found if event.kind == Kind.AGENTS_CHANGED]


@pytest.mark.rule("R71", "R281", "R282")
async def test_a_client_that_reconnects_after_a_restart_with_other_agents_gets_them(host: str, sample: SampleTenants) -> None:
    client = await _opened(host, sample.alice.key)
    assert _names(client) == ["echo", "pilot"]
    await _gone(client)
    with registry.use([*_now(), _other()]):
        assert await client.reconnect() == "replay"
        assert _names(client) == ["echo", "pilot", "extra"]
        assert [each["action"]["type"] for each in client.seen] == ["root/agentsChanged"]
        await client.check(ROOT)
        await client.close()


@pytest.mark.rule("R71")
async def test_a_restart_with_the_same_agents_sends_nothing(host: str, sample: SampleTenants) -> None:
    client = await _opened(host, sample.alice.key)
    await _gone(client)
    with registry.use([replace(spec, instructions="Other words, which no client sees.") for spec in _now()]):
        assert await client.reconnect() == "replay"
        await client.check(ROOT)
        assert not client.seen
        await client.close()


@pytest.mark.rule("R9", "R71")
async def test_a_limited_key_gets_no_changes_of_agents_that_it_may_not_use(host: str, sample: SampleTenants) -> None:
    issued = await database.run(
        lambda: keys.issue(
            sample.alice.tenant, name="limited", scopes=["*"], expires_at=None, allowed_agents=["echo"], actor="the tests"
        )
    )
    whole, limited = await _opened(host, sample.alice.key), await _opened(host, issued.raw)
    echo, pilot = _now()
    for specs, titles, heard in (
        ([echo, replace(pilot, title="Helm")], ["echo", "Helm"], 0),
        ([echo, pilot, _other()], ["echo", "pilot", "Another"], 0),
        ([replace(echo, title="Reply"), pilot], ["Reply", "pilot"], 1),
    ):
        await database.run(Process(specs).show, sample.alice)
        await whole.until(lambda titles=titles: [each["displayName"] for each in whole.state(ROOT)["agents"]] == titles)  # type: ignore[misc]
        # The snapshot comes after the change in the tenant's order.
        await limited.check(ROOT)
        assert len(limited.seen) == heard
    assert [each["displayName"] for each in limited.state(ROOT)["agents"]] == ["Reply"]
    for client in (whole, limited):
        await client.check(ROOT)
        await client.close()


@pytest.mark.rule("R71", "R384")
async def test_agents_of_the_server_that_started_last_are_sent_once_by_every_server(host: str, sample: SampleTenants) -> None:
    client = await _opened(host, sample.alice.key)
    later = Process([*_now(), _other()])
    await database.run(later.show)
    await client.until(lambda: _names(client) == ["echo", "pilot", "extra"])
    # The older one goes on beside it, and neither takes it back from the other.
    for _ in range(3):
        await database.run(agent_listings.show, sample.alice.tenant.pk)
        await database.run(later.show, sample.alice)
    await client.check(ROOT)
    assert _names(client) == ["echo", "pilot", "extra"]
    assert len(await database.run(_events, sample.alice)) == 1
    await client.close()


@pytest.mark.rule("R71", "R384")
async def test_agents_that_no_server_has_any_more_are_replaced(host: str, sample: SampleTenants) -> None:
    client = await _opened(host, sample.alice.key)
    gone = Process([*_now(), _other()])
    await database.run(gone.show, sample.alice)
    await client.until(lambda: "extra" in _names(client))
    for _ in range(2):
        patience = agent_listings._process.abandoned_after
        long_ago = Now() - patience - timedelta(seconds=1)
        await database.run(lambda moment=long_ago: AgentListing.objects.update(seen_at=moment))  # type: ignore[misc]
        await client.until(lambda: "extra" not in _names(client))
        assert agent_listings._process.abandoned_after == 2 * patience
        await database.run(gone.start_again, sample.alice)
        await client.until(lambda: "extra" in _names(client))
    await client.check(ROOT)
    await client.close()


@pytest.mark.rule("R71", "R380")
async def test_granting_and_removing_agents_of_a_tenant_changes_its_root_only(host: str, sample: SampleTenants) -> None:
    client, other = await _opened(host, sample.alice.key), await _opened(host, sample.bob.key)
    tenant = sample.alice.tenant
    await database.run(lambda: tenants.change(tenant, title="", allowed_agents=["echo"], actor="the tests"))
    await client.until(lambda: _names(client) == ["echo"])
    await client.check(ROOT)
    await database.run(lambda: tenants.change(tenant, title="", allowed_agents=None, actor="the tests"))
    await client.until(lambda: _names(client) == ["echo", "pilot"])
    await client.check(ROOT)
    await other.check(ROOT)
    assert not other.seen
    await client.close()
    await other.close()


@pytest.mark.rule("R71", "R381")
async def test_a_tenant_gets_no_changes_of_agents_that_it_may_not_use(host: str, sample: SampleTenants) -> None:
    tenant = sample.alice.tenant
    await database.run(lambda: tenants.change(tenant, title="", allowed_agents=["echo"], actor="the tests"))
    client = await _opened(host, sample.alice.key)
    later = Process(_with_other_options())
    await database.run(later.show, sample.alice)
    before = client.last_seq
    await client.check(ROOT)
    assert (client.seen, client.last_seq) == ([], before)
    assert not await database.run(_events, sample.alice)
    await client.close()


@pytest.mark.rule("R71")
async def test_a_limited_key_gets_its_agents_only(host: str, sample: SampleTenants) -> None:
    def issue() -> str:
        return keys.issue(
            sample.alice.tenant, name="some", scopes=["*"], expires_at=None, allowed_agents=["pilot", "extra"], actor="the tests"
        ).raw

    client = await _opened(host, await database.run(issue))
    whole = await _opened(host, sample.alice.key)
    assert _names(client) == ["pilot"]
    await database.run(Process([*_now(), _other(), _other("secret")]).show, sample.alice)
    await client.until(lambda: _names(client) == ["pilot", "extra"])
    await whole.until(lambda: _names(whole) == ["echo", "pilot", "extra", "secret"])
    for each in (client, whole):
        await each.check(ROOT)
        each.cut()
        await each.ended()
        each.last_seq = 0
        await each.reconnect()
    assert _names(client) == ["pilot", "extra"]
    assert _names(whole) == ["echo", "pilot", "extra", "secret"]
    await client.close()
    await whole.close()


@pytest.mark.rule("R70", "R283")
async def test_subscribers_of_sessions_whose_agent_changed_reconnect_and_get_snapshots(host: str, sample: SampleTenants) -> None:
    caller = sample.alice.caller
    changed, same = await database.run(make_session, caller, "pilot"), await database.run(make_session, caller)
    uri, uri_of_same = f"pilot:/{changed.public_id}", f"echo:/{same.public_id}"
    client = await _opened(host, sample.alice.key, ROOT, uri, uri_of_same)
    bystander = await _opened(host, sample.alice.key, ROOT, uri_of_same, client_id="bystander")
    later = Process(_with_other_options())
    await database.run(later.show, sample.alice)
    # No action changes a session's schema (R233), so the connection is closed before the event.
    assert await client.ended() == 1012
    assert not client.seen
    assert await client.reconnect() == "snapshot"
    assert "ship" in client.state(uri)["config"]["schema"]["properties"]
    for each in (uri, uri_of_same, ROOT):
        await client.check(each)
    await bystander.until(lambda: [each["action"]["type"] for each in bystander.seen] == ["root/agentsChanged"])
    await bystander.check(uri_of_same)
    bystander.cut()
    await bystander.ended()
    assert await bystander.reconnect() == "replay"
    await client.close()
    await bystander.close()


@pytest.mark.rule("R70", "R283")
async def test_a_client_that_was_disconnected_while_its_sessions_agent_changed_gets_snapshots(
    host: str, sample: SampleTenants
) -> None:
    session = await database.run(make_session, sample.alice.caller, "pilot")
    uri = f"pilot:/{session.public_id}"
    client = await _opened(host, sample.alice.key, uri)
    await _gone(client)
    with registry.use(_with_other_options()):
        assert await client.reconnect() == "snapshot"
        assert "ship" in client.state(uri)["config"]["schema"]["properties"]
        await client.check(uri)
        await client.close()


@pytest.mark.rule("R70", "R384")
async def test_a_session_looks_the_same_at_servers_that_have_loaded_different_agents(host: str, sample: SampleTenants) -> None:
    session = await database.run(make_session, sample.alice.caller, "pilot")
    uri = f"pilot:/{session.public_id}"
    client = await _opened(host, sample.alice.key, ROOT)
    await database.run(Process(_with_other_options()).show, sample.alice)
    await client.until(lambda: bool(client.seen))
    # This server has loaded the older ones.
    state = await client.subscribe(uri)
    assert "ship" in state["config"]["schema"]["properties"]
    await client.close()


@pytest.mark.rule("R262")
async def test_notifications_name_the_new_default_model_of_sessions(host: str, sample: SampleTenants) -> None:
    session = await database.run(make_session, sample.alice.caller)
    client = await _opened(host, sample.alice.key)
    echo, pilot = _now()
    await database.run(Process([replace(echo, model="openai-chat:gpt-next"), pilot]).show, sample.alice)
    uri = f"echo:/{session.public_id}"
    told = {"type": "notify/sessionSummaryChanged", "session": uri, "changes": {"model": {"id": "openai-chat:gpt-next"}}}
    await client.until(lambda: told in client.heard)
    items = (await client.request("listSessions", {}))["items"]
    assert [each["model"]["id"] for each in items] == ["openai-chat:gpt-next"]
    await client.close()


@pytest.mark.rule("R235")
async def test_no_secret_of_an_agent_is_in_what_is_published(host: str, sample: SampleTenants) -> None:
    client = await _opened(host, sample.alice.key)
    (document,) = await database.run(lambda: list(AgentListing.objects.values_list("document", flat=True)))
    for secret in ("sk-echo", "sk-default", "api_key", "base_url"):
        assert secret not in document
    await client.close()


def _watch_of(*tenants: int) -> presence._Watch:
    watch = presence._Watch()
    for tenant in tenants:
        watch._boards[Switchboard(tenant)] = 1
    return watch


async def _shown_all_but(tenant: int, *tenants: int) -> None:
    async with asyncio.timeout(60):
        while await database.run(agent_listings.outdated, tenants) != [tenant]:  # noqa: ASYNC110 - polls a row
            await asyncio.sleep(0.02)


async def test_a_tenant_whose_listing_is_locked_does_not_delay_others(sample: SampleTenants, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer")
    alice, bob = sample.alice.tenant.pk, sample.bob.tenant.pk
    await database.run(Process(_now()).show, sample.alice, sample.bob)
    with Process([*_now(), _other()])():
        outdated = await database.run(agent_listings.outdated, [alice, bob])
        assert set(outdated) == {alice, bob}
        with locked(lambda: ShownListing.objects.select_for_update().get(pk=alice)):
            watch = _watch_of(alice, bob)
            await watch._update_listings()
            await _shown_all_but(alice, alice, bob)
            # And other agents again, while the first are still being shown to the tenant whose row is locked.
            with Process([*_now(), _other("more")])():
                await watch._update_listings()
                await _shown_all_but(alice, alice, bob)
                showing = list(watch._showing.values())
        await asyncio.gather(*showing)


async def test_concurrent_updates_of_the_agents_make_one_event(host: str, sample: SampleTenants) -> None:
    client = await _opened(host, sample.alice.key)
    with registry.use([*_now(), _other()]):
        await asyncio.gather(*(database.run(agent_listings.show, sample.alice.tenant.pk) for _ in range(8)))
        await client.until(lambda: "extra" in _names(client))
    assert len(await database.run(_events, sample.alice)) == 1
    await client.close()


@pytest.mark.parametrize("broken", ["presence", "listings"])
async def test_presence_and_listings_are_renewed_though_the_other_fails(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    caplog.set_level("INFO")
    renewed, renew = threading.Semaphore(0), connections.renew

    def fails(*_arguments: object) -> None:
        raise ValueError

    def renews(present: list[str]) -> set[str]:
        lost = renew(present)
        renewed.release()
        return lost

    monkeypatch.setattr(connections, "renew", fails if broken == "presence" else renews)
    monkeypatch.setattr(presence, "_RETRY_SECONDS", 0.05)
    client = await _opened(host, sample.alice.key)
    if broken == "listings":
        monkeypatch.setattr(agent_listings, "outdated", fails)
    async with asyncio.timeout(60):
        while f"periodic_task_failing task='{broken}'" not in caplog.text:  # noqa: ASYNC110 - polls the log
            await asyncio.sleep(0.02)
    if broken == "presence":
        with registry.use([*_now(), _other()]):
            await client.until(lambda: "extra" in _names(client))
    else:
        for _ in range(3):
            assert await asyncio.to_thread(renewed.acquire, timeout=60)
    await client.close()
