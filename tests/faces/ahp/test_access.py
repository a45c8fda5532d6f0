"""The operator's rules of access for clients: refusals, requests for access, and how far a grant goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents_app import registry
from agents_app.access_rules import AccessRule, Subject
from sessions_app.ahp.transport.jsonrpc import RPCError
from tests.e2e.ahp_mirror import mirroring
from tests.e2e.ahp_steps import create_session, start_action
from tests.e2e.ahp_watcher import Watcher
from tests.faces.ahp.test_workspaces import ROOT, get, names, opened, put, tree
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)

BOTH: tuple[Subject, ...] = ("agent", "client")
RULES = (
    AccessRule(("**/.env", "/secret"), "deny", ("read", "write"), BOTH),
    AccessRule(("/asked",), "ask", ("read", "write"), ("client",)),
    AccessRule(("/kept",), "ask", ("write",), ("client",)),
)
Rules = Callable[..., None]


@pytest.fixture
def rules(host: str) -> Iterator[Rules]:
    """Set the rules of the server, and of single agents by name."""
    with ExitStack() as stack:

        def use(*of_server: AccessRule, **of_agents: tuple[AccessRule, ...]) -> None:
            specs = [replace(spec, access=(*of_agents.get(spec.name, ()), *of_server)) for spec in registry.described().values()]
            stack.enter_context(registry.use(specs, of_server))

        yield use


@pytest.fixture
async def alice(host: str, workspaces: Path, rules: Rules, sample: SampleTenants) -> AsyncIterator[Watcher]:
    """A client, and files that were there before the rules."""
    client = await opened(host, sample.alice.key, "alice")
    await put(client, f"{ROOT}/plain", "plain")
    folder = await tree(workspaces, ROOT)
    for name in (".env", "secret/key", "asked/a", "asked/deep/b", "kept/c", "more/.env"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    rules(*RULES)
    yield client
    await client.close()


async def refused(client: Watcher, method: str, **params: Any) -> RPCError:
    with pytest.raises(RPCError) as failed:
        await client.request(method, params)
    assert failed.value.code == -32009, failed.value
    return failed.value


def of(uri: str, *, write: bool = False, read: bool = False) -> dict[str, Any]:
    wanted = {"uri": uri, "read": read, "write": write}
    return {"request": {name: value for name, value in wanted.items() if value}}


@pytest.mark.rule("R335", "R336")
async def test_what_a_rule_denies_is_refused_whether_or_not_it_exists(alice: Watcher, workspaces: Path) -> None:
    folder = await tree(workspaces, ROOT)
    (folder / "link").symlink_to("secret")
    (folder / "key").symlink_to("secret/key")
    texts = set()
    for uri in (
        "secret/key",
        "secret/none",
        "Secret/KEY",
        "secret/../secret/./key",
        "%73ecret/key",
        "plain/../secret//key",
        "none/.env",
        ".ENV",
        "link/key",
        "key",
    ):
        for method in ("resourceRead", "resourceDelete"):
            if (uri, method) == ("key", "resourceDelete"):
                # The link itself is no secret.
                continue
            error = await refused(alice, method, uri=f"{ROOT}/{uri}")
            assert error.data is None
            texts.add(error.message)
        if uri != "key":
            await refused(alice, "resourceWrite", uri=f"{ROOT}/{uri}", data="x", encoding="utf-8")
    assert texts == {"The host's rules of access do not permit this."}
    await refused(alice, "resourceList", uri=f"{ROOT}/secret")
    await refused(alice, "resourceWrite", uri=f"{ROOT}/key", data="x", encoding="utf-8")
    for source, destination in (("secret/key", "stolen"), ("key", "stolen"), ("plain", "secret/new"), ("plain", "link/new")):
        for method in ("resourceCopy", "resourceMove"):
            if (source, method) == ("key", "resourceMove"):
                continue
            await refused(alice, method, source=f"{ROOT}/{source}", destination=f"{ROOT}/{destination}")
    for source in ("more", "secret"):
        await refused(alice, "resourceMove", source=f"{ROOT}/{source}", destination=f"{ROOT}/moved")
        await refused(alice, "resourceDelete", uri=f"{ROOT}/{source}", recursive=True)
    assert (folder / "secret/key").read_text() == "secret/key"
    assert not (folder / "stolen").exists()


@pytest.mark.rule("R332")
async def test_lists_leave_out_what_a_rule_denies_and_show_what_can_be_asked_for(alice: Watcher) -> None:
    assert await names(alice, ROOT) == {"plain": "file", "asked": "directory", "kept": "directory", "more": "directory"}
    assert await names(alice, f"{ROOT}/more") == {}
    assert (await refused(alice, "resourceList", uri=f"{ROOT}/asked")).data == of(f"{ROOT}/asked", read=True)


@pytest.mark.rule("R32", "R33", "R335", "R337")
async def test_the_refusal_says_what_to_ask_for_and_asking_for_it_helps(alice: Watcher) -> None:
    error = await refused(alice, "resourceRead", uri=f"{ROOT}/asked/a")
    assert error.data == of(f"{ROOT}/asked/a", read=True)
    assert await alice.request("resourceRequest", error.data["request"]) == {}
    assert await get(alice, f"{ROOT}/asked/a") == "asked/a"
    # Reading was granted, of this file.
    error = await refused(alice, "resourceWrite", uri=f"{ROOT}/asked/a", data="new", encoding="utf-8")
    assert error.data == of(f"{ROOT}/asked/a", write=True)
    await refused(alice, "resourceRead", uri=f"{ROOT}/asked/deep/b")
    moved = {"source": f"{ROOT}/asked/deep/b", "destination": f"{ROOT}/b"}
    error = await refused(alice, "resourceMove", **moved)
    assert error.data == of(f"{ROOT}/asked/deep/b", read=True, write=True)
    # A directory's grant is for all below it.
    assert await alice.request("resourceRequest", {"uri": f"{ROOT}/asked", "read": True, "write": True}) == {}
    assert await names(alice, f"{ROOT}/asked") == {"a": "file", "deep": "directory"}
    await put(alice, f"{ROOT}/asked/a", "new")
    assert await alice.request("resourceMove", moved) == {}
    # Neither flag is reading, and what is permitted anyway is granted.
    assert await alice.request("resourceRequest", {"uri": f"{ROOT}/kept/c"}) == {}
    await refused(alice, "resourceWrite", uri=f"{ROOT}/kept/c", data="new", encoding="utf-8")
    for denied in ("secret", "secret/none", "more/.env"):
        assert (await refused(alice, "resourceRequest", uri=f"{ROOT}/{denied}", read=True)).data is None
    # A grant of the whole workspace opens nothing that a rule denies.
    assert await alice.request("resourceRequest", {"uri": ROOT, "read": True, "write": True}) == {}
    await refused(alice, "resourceRead", uri=f"{ROOT}/secret/key")


@pytest.mark.rule("R336", "R337")
async def test_a_link_to_what_has_to_be_asked_for_names_the_real_place(alice: Watcher, workspaces: Path) -> None:
    ((await tree(workspaces, ROOT)) / "link").symlink_to("asked/a")
    error = await refused(alice, "resourceRead", uri=f"{ROOT}/link")
    assert error.data == of(f"{ROOT}/asked/a", read=True)
    # A grant of the link's own name is none of its target.
    await alice.request("resourceRequest", {"uri": f"{ROOT}/link", "read": True})
    await refused(alice, "resourceRead", uri=f"{ROOT}/link")
    await alice.request("resourceRequest", error.data["request"])
    assert await get(alice, f"{ROOT}/link") == "asked/a"


@pytest.mark.rule("R337", "R380")
async def test_a_grant_is_of_one_connection_and_ends_with_it(alice: Watcher, host: str, sample: SampleTenants) -> None:
    await alice.request("resourceRequest", {"uri": f"{ROOT}/asked", "read": True})
    assert await get(alice, f"{ROOT}/asked/a") == "asked/a"
    # Neither another client of the tenant has it, nor one that calls itself the same.
    for client_id in ("other", "alice"):
        other = await opened(host, sample.alice.key, client_id)
        await refused(other, "resourceRead", uri=f"{ROOT}/asked/a")
        await other.close()
    again = await opened(host, sample.alice.key, "alice")
    await refused(again, "resourceRead", uri=f"{ROOT}/asked/a")
    await again.close()
    bob = await opened(host, sample.bob.key, "alice")
    assert (await refused(bob, "resourceRead", uri=f"{ROOT}/asked/a")).data == of(f"{ROOT}/asked/a", read=True)
    await bob.close()


@pytest.mark.rule("R9", "R337")
async def test_a_key_that_may_only_read_is_granted_no_writing(alice: Watcher, host: str, sample: SampleTenants) -> None:
    reader = await opened(host, sample.alice.reading_key, "reader")
    await refused(reader, "resourceRequest", uri=f"{ROOT}/asked", read=True, write=True)
    await refused(reader, "resourceRead", uri=f"{ROOT}/asked/a")
    await reader.request("resourceRequest", {"uri": f"{ROOT}/asked"})
    assert await get(reader, f"{ROOT}/asked/a") == "asked/a"
    await reader.close()


@pytest.mark.rule("R337")
async def test_a_grant_ends_when_the_operator_changes_the_rules(alice: Watcher, rules: Rules) -> None:
    await alice.request("resourceRequest", {"uri": f"{ROOT}/asked", "read": True})
    rules(AccessRule(("/asked",), "deny", ("read", "write"), ("client",)))
    assert (await refused(alice, "resourceRead", uri=f"{ROOT}/asked/a")).data is None


async def test_the_oldest_of_very_many_grants_are_forgotten(alice: Watcher) -> None:
    for number in range(1_001):
        await alice.request("resourceRequest", {"uri": f"{ROOT}/asked/{number}"})
    assert await client_code(alice, f"{ROOT}/asked/0") == -32009
    assert await client_code(alice, f"{ROOT}/asked/1000") == -32008


async def client_code(client: Watcher, uri: str) -> int:
    with pytest.raises(RPCError) as failed:
        await client.request("resourceRead", {"uri": uri})
    return failed.value.code


async def test_the_strictest_of_the_rules_of_a_workspaces_agents_counts(alice: Watcher, rules: Rules) -> None:
    rules(
        echo=(AccessRule(("/a",), "deny", ("read", "write"), ("client",)),), pilot=(AccessRule(("/b",), "ask", ("read",), BOTH),)
    )
    root = "file:///shared"
    await create_session(alice, "pilot", workingDirectory=root)
    for name in ("a", "b", "c"):
        await put(alice, f"{root}/{name}", name)
    assert await get(alice, f"{root}/a") == "a"
    await refused(alice, "resourceRead", uri=f"{root}/b")
    uri = await create_session(alice, "echo", workingDirectory=root)
    await refused(alice, "resourceRead", uri=f"{root}/a")
    await refused(alice, "resourceRead", uri=f"{root}/b")
    assert await get(alice, f"{root}/c") == "c"
    await alice.request("disposeSession", {"session": uri})
    assert await get(alice, f"{root}/a") == "a"
    # No session works in the default workspace, and the server has no rules.
    assert await get(alice, f"{ROOT}/secret/key") == "secret/key"


@pytest.mark.rule("R154")
async def test_an_attachment_is_read_under_the_same_rules(alice: Watcher, model: Any) -> None:
    uri = await create_session(alice)
    paths = (("plain", False), ("secret/key", False), ("asked/a", False))
    for name, granted in (*paths, ("asked/a", True)):
        if granted:
            await alice.request("resourceRequest", {"uri": f"{ROOT}/asked"})
        action = start_action(uri, "look")
        action["userMessage"]["attachments"] = [{"type": "resource", "label": "it", "uri": f"{ROOT}/{name}"}]
        await alice.echo(await alice.dispatch(action))
        turn = await alice.until(lambda: alice.state(uri).get("activeTurn"))
        content = await last_message()
        assert (name in content.replace(f"{ROOT}/{name}", "")) is (name == "plain" or granted), (name, content)
        await alice.echo(await alice.dispatch({"type": "session/turnCancelled", "session": uri, "turnId": turn["id"]}))


async def last_message() -> str:
    from sessions_app.models import Message

    found = await Message.objects.filter(role="user").order_by("-pk").afirst()
    assert found is not None
    return found.content


@pytest.mark.rule("R300")
async def test_clients_start_no_shell_where_a_rule_restricts_their_files(
    alice: Watcher, rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell can open every file of its workspace, whatever the rules say."""
    from sessions_app.core.terminals import availability

    monkeypatch.setattr(availability, "require", lambda: None)
    claim = {"kind": "client", "clientId": "alice"}
    await refused(alice, "createTerminal", terminal="term:/1", claim=claim)
    rules(*RULES, AccessRule(("**",), "allow", ("run",), ("client",)))
    assert await alice.request("createTerminal", {"terminal": "term:/1", "claim": claim}) is None


@pytest.mark.rule("V240", "V245", "R335")
async def test_a_watch_reports_what_its_client_may_read(
    alice: Watcher, host: str, workspaces: Path, sample: SampleTenants
) -> None:
    folder = await tree(workspaces, ROOT)
    async with mirroring(host, sample.alice.key, "new") as client:
        with pytest.raises(RPCError) as failed:
            await client.watch(f"{ROOT}/secret")
        assert (failed.value.code, failed.value.data) == (-32009, None)
        with pytest.raises(RPCError) as failed:
            await client.watch(f"{ROOT}/asked")
        wanted = {"channel": "ahp-root://", "uri": f"{ROOT}/asked", "read": True}
        assert (failed.value.code, failed.value.data) == (-32009, {"request": wanted})
        await client.request("resourceRequest", wanted)
        asked, all_ = await client.watch(f"{ROOT}/asked"), await client.watch(ROOT, recursive=True)
        for name in ("secret/new", "more/.env", ".env", "asked/new"):
            (folder / name).write_text("new")
        await client.until(lambda: client.news(all_) and client.news(asked))
        assert client.news(all_) == client.news(asked) == [(f"{ROOT}/asked/new", "added")]
