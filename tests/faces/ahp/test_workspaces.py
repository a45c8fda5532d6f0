"""Files of workspaces over AHP: the resource commands, rights, tenants, quotas."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import Settings

from agents_app import exact_json
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database, user_messages
from sessions_app.core.base.user_messages import files_of
from sessions_app.core.records import history
from sessions_app.core.tenancy import keys, usage_entries
from sessions_app.core.workspaces import upkeep, volume
from sessions_app.models import Message, PendingMessage, Session, Workspace, WorkspaceTotal
from sessions_app.workspace.tree import Tree
from tests.e2e.ahp_steps import create_session, new_uri, start_action
from tests.e2e.ahp_watcher import Watcher
from tests.fakes.pictures import PIXEL
from tests.sample_tenants import SampleTenant, SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = "file:///workspace"


async def opened(host: str, key: str, client_id: str = "client") -> Watcher:
    client = Watcher(host, key, client_id)
    await client.open()
    await client.initialize()
    return client


@pytest.fixture
async def alice(host: str, workspaces: Path, sample: SampleTenants) -> AsyncIterator[Watcher]:
    client = await opened(host, sample.alice.key, "alice")
    yield client
    await client.close()


async def code_of(client: Watcher, method: str, **params: Any) -> int:
    with pytest.raises(RPCError) as failed:
        await client.request(method, params)
    return failed.value.code


async def put(client: Watcher, uri: str, text: str = "text", **params: Any) -> None:
    assert await client.request("resourceWrite", {"uri": uri, "data": text, "encoding": "utf-8", **params}) == {}


async def get(client: Watcher, uri: str, **params: Any) -> Any:
    return (await client.request("resourceRead", {"uri": uri, **params}))["data"]


async def names(client: Watcher, uri: str) -> dict[str, str]:
    return {each["name"]: each["type"] for each in (await client.request("resourceList", {"uri": uri}))["entries"]}


async def issue(tenant: SampleTenant, *agents: str) -> str:
    issued = await database.run(
        lambda: keys.issue(
            tenant.tenant, name="limited", scopes=["*"], expires_at=None, allowed_agents=list(agents), actor="the tests"
        )
    )
    return issued.raw


async def tree(volume: Path, root: str) -> Path:
    """The directory of the files, on the disk."""
    row = await Workspace.objects.aget(root=root)
    return volume / str(row.tenant_id) / row.public_id / "tree"


def entries_of(directory: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


async def make_folder(client: Watcher, uri: str) -> str:
    """A session's workspace with this root."""
    await create_session(client, workingDirectory=uri)
    return uri


@pytest.mark.rule("R330", "R331")
async def test_what_is_written_is_read_byte_for_byte(alice: Watcher) -> None:
    every_byte = bytes(range(256)) * 3
    text = 'line\r\n"quoted" \\ \u0000 \u2028 🚢' * 5000
    await put(alice, f"{ROOT}/a%20b.txt", text)
    read = await alice.request("resourceRead", {"uri": f"{ROOT}/a b.txt"})
    assert (read["data"], read["encoding"], read["contentType"]) == (text, "utf-8", "text/plain")
    assert base64.b64decode(await get(alice, f"{ROOT}/a%20b.txt", encoding="base64")) == text.encode()
    encoded = base64.b64encode(every_byte).decode()
    await alice.request("resourceWrite", {"uri": f"{ROOT}/b", "data": encoded, "encoding": "base64"})
    for wanted in ({}, {"encoding": "utf-8"}, {"encoding": "base64"}):
        read = await alice.request("resourceRead", {"uri": f"{ROOT}/b", **wanted})
        assert (read["data"], read["encoding"]) == (encoded, "base64")
    await put(alice, f"{ROOT}/b", "")
    assert await get(alice, f"{ROOT}/b") == ""
    assert await names(alice, ROOT) == {"a b.txt": "file", "b": "file"}


@pytest.mark.rule("R330", "R331", "R332", "R32")
async def test_refusals_of_reading_writing_and_listing(alice: Watcher) -> None:
    assert await names(alice, ROOT) == {}
    await put(alice, f"{ROOT}/file")
    assert await code_of(alice, "resourceRead", uri=ROOT) == -32602
    assert await code_of(alice, "resourceRead", uri=f"{ROOT}/none") == -32008
    assert await code_of(alice, "resourceRead", uri=f"{ROOT}/file/none") == -32008
    assert await code_of(alice, "resourceList", uri=f"{ROOT}/none") == -32008
    assert await code_of(alice, "resourceList", uri=f"{ROOT}/file") == -32602
    assert await code_of(alice, "resourceRead", uri=f"{ROOT}/file", encoding="latin-1") == -32602
    for uri, data, encoding, code in (
        (f"{ROOT}/none/new", "text", "utf-8", -32008),
        (f"{ROOT}/new", "no base64!", "base64", -32602),
        (f"{ROOT}/new", "\ud800", "utf-8", -32602),
        (f"{ROOT}/new", "text", "utf-16", -32602),
        (ROOT, "text", "utf-8", -32602),
    ):
        assert await code_of(alice, "resourceWrite", uri=uri, data=data, encoding=encoding) == code, uri
    assert await names(alice, ROOT) == {"file": "file"}


@pytest.mark.rule("R331")
async def test_of_two_create_only_writes_at_once_exactly_one_wins(alice: Watcher, host: str, sample: SampleTenants) -> None:
    other = await opened(host, sample.alice.key, "other")
    clients = [alice, other] * 4

    async def create(client: Watcher, text: str) -> int:
        try:
            await put(client, f"{ROOT}/new", text, createOnly=True)
        except RPCError as error:
            return error.code
        return 0

    answers = await asyncio.gather(*(create(client, str(number)) for number, client in enumerate(clients)))
    assert sorted(answers) == [-32010] * 7 + [0]
    assert await get(alice, f"{ROOT}/new") == str(answers.index(0))
    await other.close()


@pytest.mark.rule("R333")
async def test_copying_and_moving(alice: Watcher) -> None:
    folder = await make_folder(alice, "file:///harbour/logs")
    await put(alice, f"{ROOT}/one", "1")
    await put(alice, f"{ROOT}/two", "2")
    ends = {"source": f"{ROOT}/one", "destination": f"{ROOT}/two"}
    for method in ("resourceCopy", "resourceMove"):
        assert await code_of(alice, method, **ends, failIfExists=True) == -32010
        assert await code_of(alice, method, source=f"{ROOT}/none", destination=f"{ROOT}/three") == -32008
        assert await code_of(alice, method, source=f"{ROOT}/one", destination=f"{ROOT}/none/three") == -32008
        assert await code_of(alice, method, source=f"{ROOT}/one", destination=ROOT) == -32602
    assert await get(alice, f"{ROOT}/two") == "2"
    assert await alice.request("resourceCopy", ends) == {}
    assert await get(alice, f"{ROOT}/two") == "1"
    assert await code_of(alice, "resourceMove", source=ROOT, destination=f"{folder}/x") == -32602
    # Whole, and into another workspace.
    await alice.request("resourceCopy", {"source": ROOT, "destination": f"{folder}/copied"})
    assert await names(alice, f"{folder}/copied") == {"one": "file", "two": "file"}
    await alice.request("resourceMove", {"source": f"{folder}/copied", "destination": f"{ROOT}/moved"})
    assert await names(alice, f"{ROOT}/moved") == {"one": "file", "two": "file"}
    assert await names(alice, folder) == {}
    assert await code_of(alice, "resourceCopy", source=ROOT, destination=f"{ROOT}/moved/inside") == -32602


@pytest.mark.rule("R334")
async def test_deleting(alice: Watcher, workspaces: Path) -> None:
    folder = await make_folder(alice, "file:///harbour/logs")
    for name in ("a", "b"):
        await put(alice, f"{folder}/{name}")
    await alice.request("resourceCopy", {"source": folder, "destination": f"{ROOT}/full"})
    assert await code_of(alice, "resourceDelete", uri=f"{ROOT}/none") == -32008
    assert await code_of(alice, "resourceDelete", uri=f"{ROOT}/full") == -32602
    assert await code_of(alice, "resourceDelete", uri=ROOT, recursive=True) == -32602
    ((await tree(workspaces, ROOT)) / "link").symlink_to("full")
    await alice.request("resourceDelete", {"uri": f"{ROOT}/link", "recursive": True})
    assert await names(alice, ROOT) == {"full": "directory"}
    await alice.request("resourceDelete", {"uri": f"{ROOT}/full/a"})
    assert await names(alice, f"{ROOT}/full") == {"b": "file"}
    await alice.request("resourceDelete", {"uri": f"{ROOT}/full", "recursive": True})
    assert await names(alice, ROOT) == {}
    usage = await Workspace.objects.aget(root=ROOT)
    assert (usage.bytes, usage.files, usage.operations) == (0, 0, 0)


# --- what is outside ---

OUTSIDE = (
    "file:///etc/passwd",
    "file:///nothing/here",
    "file:///",
    f"{ROOT}/../etc/passwd",
    f"{ROOT}/%2e%2e/etc/passwd",
    f"{ROOT}//..//../../etc/passwd",
    "file:///workspaces/a",
    "file:///sessions",
    "file:///sessions/sess_000000000000000000000000/a",
)
BAD = (
    f"{ROOT}/..%2f..%2fetc%2fpasswd",
    f"{ROOT}/a%00b",
    f"{ROOT}/%ff",
    f"{ROOT}/%zz",
    f"{ROOT}/a?query",
    f"{ROOT}/a#fragment",
    "file://elsewhere/workspace/a",
    "file:workspace/a",
    f"{ROOT}/{'n' * 256}",
    ROOT + "/n" * 5000,
    "no URI",
    "",
)


@pytest.mark.rule("R335", "R336", "R337")
async def test_what_is_outside_is_refused_whether_it_exists_or_not(alice: Watcher, workspaces: Path) -> None:
    await put(alice, f"{ROOT}/file")
    for uri, codes in (*((uri, {-32009}) for uri in OUTSIDE), *((uri, {-32602}) for uri in BAD)):
        for method, params in (
            ("resourceRead", {"uri": uri}),
            ("resourceList", {"uri": uri}),
            ("resourceWrite", {"uri": uri, "data": "x", "encoding": "utf-8"}),
            ("resourceDelete", {"uri": uri, "recursive": True}),
            ("resourceCopy", {"source": uri, "destination": f"{ROOT}/copied"}),
            ("resourceCopy", {"source": f"{ROOT}/file", "destination": uri}),
            ("resourceMove", {"source": uri, "destination": f"{ROOT}/moved"}),
            ("resourceMove", {"source": f"{ROOT}/file", "destination": uri}),
            ("resourceRequest", {"uri": uri}),
            ("resourceRequest", {"uri": uri, "read": True, "write": True}),
        ):
            assert await code_of(alice, method, **params) in codes, (method, params)
    assert await code_of(alice, "resourceRead", uri="http://example.org/x") == -32008
    assert await names(alice, ROOT) == {"file": "file"}
    # Nothing was made for what was refused.
    assert entries_of(workspaces, "*/*") == [(await Workspace.objects.aget()).public_id]


@pytest.mark.rule("R336")
async def test_links_do_not_lead_out(alice: Watcher, workspaces: Path, tmp_path: Path) -> None:
    await put(alice, f"{ROOT}/file", "mine")
    there = await tree(workspaces, ROOT)
    (tmp_path / "secret").write_text("secret")
    (there / "out").symlink_to(tmp_path)
    (there / "file-out").symlink_to(tmp_path / "secret")
    (there / "in").symlink_to("file")
    for uri in (f"{ROOT}/out/secret", f"{ROOT}/file-out", f"{ROOT}/out/none"):
        assert await code_of(alice, "resourceRead", uri=uri) in (-32008, -32009)
        assert await code_of(alice, "resourceWrite", uri=uri, data="x", encoding="utf-8") in (-32008, -32009)
        assert await code_of(alice, "resourceCopy", source=uri, destination=f"{ROOT}/c") in (-32008, -32009)
    assert await code_of(alice, "resourceList", uri=f"{ROOT}/out") in (-32008, -32009)
    assert await get(alice, f"{ROOT}/in") == "mine"
    assert entries_of(tmp_path) == ["secret", "volume"]
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.rule("R337", "R9")
async def test_access_is_granted_to_what_is_permitted(alice: Watcher, host: str, sample: SampleTenants) -> None:
    await put(alice, f"{ROOT}/file")
    asked: list[dict[str, bool]] = [{}, {"read": True}, {"write": True}, {"read": True, "write": True}]
    for params in asked:
        assert await alice.request("resourceRequest", {"uri": f"{ROOT}/none", **params}) == {}
    reader = await opened(host, sample.alice.reading_key, "reader")
    assert await reader.request("resourceRequest", {"uri": ROOT}) == {}
    assert await code_of(reader, "resourceRequest", uri=ROOT, write=True) == -32009
    assert await get(reader, f"{ROOT}/file") == "text"
    for method, changing in (
        ("resourceWrite", {"uri": f"{ROOT}/file", "data": "x", "encoding": "utf-8"}),
        ("resourceDelete", {"uri": f"{ROOT}/file"}),
        ("resourceMove", {"source": f"{ROOT}/file", "destination": f"{ROOT}/b"}),
        ("resourceCopy", {"source": f"{ROOT}/file", "destination": f"{ROOT}/b"}),
    ):
        assert await code_of(reader, method, **changing) == -32009
    assert await names(alice, ROOT) == {"file": "file"}
    await reader.close()


@pytest.mark.rule("R382", "R381", "R335")
async def test_two_tenants_use_the_same_uris_for_files_of_their_own(alice: Watcher, host: str, sample: SampleTenants) -> None:
    bob = await opened(host, sample.bob.key, "alice")
    folder = await make_folder(alice, "file:///harbour")
    await put(alice, f"{folder}/a", "of alice")
    assert await code_of(bob, "resourceRead", uri=f"{folder}/a") == -32009
    await make_folder(bob, "file:///harbour")
    assert await names(bob, folder) == {}
    await put(bob, f"{folder}/a", "of bob")
    assert (await get(alice, f"{folder}/a"), await get(bob, f"{folder}/a")) == ("of alice", "of bob")
    private = (
        f"file:///sessions/{await Session.objects.filter(tenant=sample.alice.tenant).values_list('public_id', flat=True).aget()}"
    )
    assert await code_of(bob, "resourceList", uri=private) == -32009
    await bob.close()


@pytest.mark.rule("R9", "R335")
async def test_a_limited_key_uses_the_workspaces_of_its_agents_sessions(alice: Watcher, host: str, sample: SampleTenants) -> None:
    limited = await opened(host, await issue(sample.alice, "echo"), "limited")
    for name in ("pilots", "shared"):
        await create_session(alice, "pilot", workingDirectory=f"file:///{name}")
        await put(alice, f"file:///{name}/file")
    await create_session(alice, "echo", workingDirectory="file:///shared")
    assert await get(limited, "file:///shared/file") == "text"
    await put(alice, f"{ROOT}/file")
    for uri in ("file:///pilots/file", "file:///pilots", f"{ROOT}/file"):
        assert await code_of(limited, "resourceRead", uri=uri) == -32009
        assert await code_of(limited, "resourceWrite", uri=uri, data="x", encoding="utf-8") == -32009
        assert await code_of(limited, "resourceRequest", uri=uri) == -32009
    for directory in ("file:///pilots", "file:///pilots/inside"):
        params = {"session": new_uri(), "provider": "echo", "workingDirectory": directory}
        assert await code_of(limited, "createSession", **params) == -32009
    # Of its own, it makes one.
    await make_folder(limited, "file:///mine/logs")
    await put(limited, "file:///mine/logs/file")
    await limited.close()


# --- sessions ---


async def workspace_of(uri: str) -> Workspace | None:
    public_id = await Session.objects.filter(addresses__uri=uri).values_list("public_id", flat=True).aget()
    return (await Session.objects.select_related("workspace").aget(public_id=public_id)).workspace


@pytest.mark.rule("R110", "R330", "R331")
async def test_sessions_that_name_a_directory_share_its_workspace(alice: Watcher) -> None:
    first = await create_session(alice, workingDirectory="file:///harbour/logs")
    await put(alice, "file:///harbour/logs/a")
    again = await create_session(alice, workingDirectory="file:///harbour/logs/")
    assert await workspace_of(again) == await workspace_of(first)
    # An existing directory inside belongs to the workspace; what does not exist is a workspace of its own.
    await put(alice, f"{ROOT}/x")
    await alice.request("resourceCopy", {"source": ROOT, "destination": "file:///harbour/logs/inside"})
    inside = await create_session(alice, workingDirectory="file:///harbour/logs/inside")
    assert await workspace_of(inside) == await workspace_of(first)
    other = await create_session(alice, workingDirectory="file:///harbour/logs/other")
    assert getattr(await workspace_of(other), "root", None) == "file:///harbour/logs/other"
    # It covers that part of the workspace around it.
    await put(alice, "file:///harbour/logs/other/b")
    assert await names(alice, "file:///harbour/logs") == {"a": "file", "inside": "directory"}
    for shown in ("file:///etc", "file:///", "http://example.org/x", "file://host/x", "file:///sessions/none"):
        uri = await create_session(alice, workingDirectory=shown)
        assert alice.state(uri)["summary"]["workingDirectory"] == shown
        assert await workspace_of(uri) is None


@pytest.mark.rule("R330", "R331", "R116")
async def test_a_session_without_directory_has_files_of_its_own_until_it_is_disposed(
    alice: Watcher, workspaces: Path, sample: SampleTenants
) -> None:
    uri = await create_session(alice)
    session = await Session.objects.aget(addresses__uri=uri)
    own = f"file:///sessions/{session.public_id}"
    assert await names(alice, own) == {}
    assert await code_of(alice, "resourceRead", uri=f"{own}/a") == -32008
    assert await Workspace.objects.acount() == 0
    await put(alice, f"{own}/a")
    assert await get(alice, f"{own}/a") == "text"
    # A session that is started in it keeps it.
    guest = await create_session(alice, workingDirectory=own)
    await alice.request("disposeSession", {"session": uri})
    await age_workspaces()
    assert await get(alice, f"{own}/a") == "text"
    await alice.request("disposeSession", {"session": guest})
    await age_workspaces()
    assert await code_of(alice, "resourceRead", uri=f"{own}/a") == -32009
    assert await Workspace.objects.acount() == 0
    assert entries_of(workspaces, "*/*") == []
    total = await WorkspaceTotal.objects.aget(tenant=sample.alice.tenant)
    assert (total.bytes, total.workspaces) == (0, 0)


async def age_workspaces(days: int = 1) -> None:
    """Let housekeeping run after so many days without use."""

    def age() -> None:
        for row in Workspace.objects.filter(removed_at=None):
            Workspace.objects.filter(pk=row.pk).update(used_at=row.used_at - timedelta(days=days))
        upkeep.run(20)

    await database.run(age)


@pytest.mark.rule("R116")
async def test_shared_workspaces_are_removed_some_time_after_their_last_session(
    alice: Watcher, workspaces: Path, settings: Settings
) -> None:
    settings.AGENTHOST_WORKSPACE_DAYS = 10
    uri = await create_session(alice, workingDirectory="file:///harbour")
    await put(alice, "file:///harbour/a")
    await age_workspaces(11)
    assert await get(alice, "file:///harbour/a") == "text"
    await alice.request("disposeSession", {"session": uri})
    await age_workspaces(9)
    assert await get(alice, "file:///harbour/a") == "text"
    await age_workspaces(11)
    assert await code_of(alice, "resourceRead", uri="file:///harbour/a") == -32009
    assert entries_of(workspaces, "*/*") == []
    # The same name is free again, and empty.
    await make_folder(alice, "file:///harbour")
    assert await names(alice, "file:///harbour") == {}


@pytest.mark.rule("R221")
async def test_a_fork_shares_the_directory_of_its_source_but_not_its_own_files(alice: Watcher) -> None:
    for directory in ({"workingDirectory": "file:///harbour/logs"}, {}):
        uri = await create_session(alice, **directory)
        session = await Session.objects.aget(addresses__uri=uri)
        if not directory:
            await put(alice, f"file:///sessions/{session.public_id}/a")
        await database.run(add_seed, session)
        (turn,) = (await alice.request("fetchTurns", {"session": uri}))["turns"]
        fork = new_uri()
        await alice.request("createSession", {"session": fork, "fork": {"session": uri, "turnId": turn["id"]}})
        assert await workspace_of(fork) == (await workspace_of(uri) if directory else None)


def add_seed(session: Session) -> None:
    with transaction.atomic():
        history.add_seed(session, [{"role": "user", "content": "hello"}], set(), timezone.now())


@pytest.mark.rule("R154", "R381")
async def test_attached_files_are_read_for_the_model_as_the_key_may_read_them(
    alice: Watcher, host: str, sample: SampleTenants
) -> None:
    uri = await create_session(alice, workingDirectory="file:///harbour")
    await put(alice, "file:///harbour/a.txt", "one\ntwo\nthree")
    pixel = PIXEL.partition(",")[2]
    await alice.request("resourceWrite", {"uri": "file:///harbour/p.png", "data": pixel, "encoding": "base64"})
    bob = await opened(host, sample.bob.key, "bob")
    await make_folder(bob, "file:///pier")
    await put(bob, "file:///pier/secret", "of bob")
    second_line = {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 3}}}
    attachments: list[dict[str, Any]] = [
        {"type": "resource", "label": "a", "uri": "file:///harbour/a.txt", "selection": second_line},
        {"type": "resource", "label": "p", "uri": "file:///harbour/p.png"},
        {"type": "resource", "label": "mine", "uri": "file:///desk/notes"},
        {"type": "resource", "label": "other", "uri": "file:///pier/secret"},
    ]
    action = start_action(uri, "look", userMessage={"text": "look", "attachments": attachments})
    echo = await alice.echo(await alice.dispatch(action))
    assert echo["action"] == action
    message = await Message.objects.aget(role="user")
    assert exact_json.loads(message.content) == [
        {"type": "text", "text": "look"},
        {"type": "text", "text": "Attachment a (lines 2 to 2):\ntwo"},
        {"type": "image", "url": PIXEL},
        {"type": "text", "text": "[Attachment mine: file:///desk/notes]"},
        {"type": "text", "text": "[Attachment other: file:///pier/secret]"},
    ]
    await bob.close()


@pytest.mark.rule("R154", "R210", "R381")
@pytest.mark.parametrize("kind", ["queued", "steering"])
async def test_files_attached_to_a_pending_message_are_read_when_it_is_sent_and_count_until_it_is_gone(
    alice: Watcher, host: str, sample: SampleTenants, kind: str
) -> None:
    uri = await create_session(alice, workingDirectory="file:///harbour")
    await alice.dispatch(start_action(uri, "busy"))
    await put(alice, "file:///harbour/a.txt", "as it was\n")
    pixel = PIXEL.partition(",")[2]
    await alice.request("resourceWrite", {"uri": "file:///harbour/p.png", "data": pixel, "encoding": "base64"})
    bob = await opened(host, sample.bob.key, "bob")
    await make_folder(bob, "file:///pier")
    await put(bob, "file:///pier/secret", "of bob")
    session = await Session.objects.aget(addresses__uri=uri)
    before = await database.run(usage_entries.bytes_of_clients, session)
    attachments: list[dict[str, Any]] = [
        {"type": "resource", "label": "a", "uri": "file:///harbour/a.txt"},
        {"type": "resource", "label": "p", "uri": "file:///harbour/p.png"},
        {"type": "resource", "label": "other", "uri": "file:///pier/secret"},
    ]
    action: dict[str, Any] = {
        "type": "session/pendingMessageSet",
        "session": uri,
        "kind": kind,
        "id": "m",
        "userMessage": {"text": "look", "attachments": attachments},
    }
    echo = await alice.echo(await alice.dispatch(action))
    assert echo["action"] == action
    await alice.check(uri)
    await put(alice, "file:///harbour/a.txt", "changed later\n")
    row = await PendingMessage.objects.aget(session=session)
    assert user_messages.content_of(user_messages.UserMessage.of(action["userMessage"]), ["data"], files_of(row.files)) == [
        {"type": "text", "text": "look"},
        {"type": "text", "text": "Attachment a:\nas it was\n"},
        {"type": "image", "url": PIXEL},
        {"type": "text", "text": "[Attachment other: file:///pier/secret]"},
    ]
    assert await database.run(usage_entries.bytes_of_clients, session) - before == len(row.message) + len(row.files or "")
    # The same message without them takes their room away again.
    await alice.echo(await alice.dispatch({**action, "userMessage": {"text": "look"}}))
    assert (await PendingMessage.objects.aget(session=session)).files is None
    assert await database.run(usage_entries.bytes_of_clients, session) - before < 100
    await bob.close()


# --- limits ---


@pytest.mark.rule("R331", "R330", "R332")
async def test_limits_are_named_and_nothing_half_written_remains(
    alice: Watcher, settings: Settings, sample: SampleTenants, workspaces: Path
) -> None:
    settings.AGENTHOST_FILE_BYTES, settings.AGENTHOST_LIST_ENTRIES = 1000, 3
    settings.AGENTHOST_WORKSPACE_BYTES, settings.AGENTHOST_WORKSPACE_FILES = 2500, 4
    await put(alice, f"{ROOT}/a", "a" * 1000)
    await put(alice, f"{ROOT}/b", "b" * 1000)

    async def refused(method: str, **params: Any) -> str:
        with pytest.raises(RPCError) as failed:
            await alice.request(method, params)
        return failed.value.message

    big = {"uri": f"{ROOT}/a", "data": "x" * 1001, "encoding": "utf-8"}
    assert "AGENTHOST_FILE_BYTES" in await refused("resourceWrite", **big)
    assert "AGENTHOST_WORKSPACE_BYTES" in await refused("resourceWrite", **{**big, "uri": f"{ROOT}/c", "data": "x" * 600})
    assert "AGENTHOST_WORKSPACE_BYTES" in await refused("resourceCopy", source=f"{ROOT}/a", destination=f"{ROOT}/c")
    assert (await get(alice, f"{ROOT}/a"), await names(alice, ROOT)) == ("a" * 1000, {"a": "file", "b": "file"})
    used = await Workspace.objects.aget(root=ROOT)
    assert (used.bytes, used.files, used.operations) == (2000, 2, 0)
    foreign = await tree(workspaces, ROOT) / "foreign"
    foreign.write_bytes(b"s" * 1001)
    assert "AGENTHOST_FILE_BYTES" in await refused("resourceRead", uri=f"{ROOT}/foreign")
    foreign.unlink()
    await put(alice, f"{ROOT}/c", "")
    await put(alice, f"{ROOT}/d", "")
    assert "AGENTHOST_WORKSPACE_FILES" in await refused("resourceWrite", **{**big, "uri": f"{ROOT}/e", "data": ""})
    assert "AGENTHOST_LIST_ENTRIES" in await refused("resourceList", uri=ROOT)
    settings.AGENTHOST_TENANT_WORKSPACE_BYTES = 2200
    await make_folder(alice, "file:///other")
    other = {**big, "uri": "file:///other/a", "data": "x" * 300}
    assert "AGENTHOST_TENANT_WORKSPACE_BYTES" in await refused("resourceWrite", **other)
    await alice.request("resourceDelete", {"uri": f"{ROOT}/a"})
    await put(alice, "file:///other/a", "x" * 300)
    total = await WorkspaceTotal.objects.aget(tenant=sample.alice.tenant)
    assert (total.bytes, total.workspaces) == (1300, 2)
    settings.AGENTHOST_TENANT_WORKSPACES = 2
    params = {"session": new_uri(), "provider": "echo", "workingDirectory": "file:///third"}
    assert "AGENTHOST_TENANT_WORKSPACES" in await refused("createSession", **params)
    await make_folder(alice, "file:///other")


@pytest.mark.rule("R331")
async def test_a_copy_that_reaches_the_quota_leaves_nothing_behind(
    alice: Watcher, settings: Settings, sample: SampleTenants
) -> None:
    folder = await make_folder(alice, "file:///harbour")
    for number in range(10):
        await put(alice, f"{folder}/{number}", "x" * 100)
    settings.AGENTHOST_WORKSPACE_BYTES = 1550
    await alice.request("resourceCopy", {"source": folder, "destination": f"{ROOT}/all"})
    assert await code_of(alice, "resourceCopy", source=f"{ROOT}/all", destination=f"{folder}/all") == -32600
    assert len(await names(alice, folder)) == 10
    used = await Workspace.objects.aget(root=folder)
    assert (used.bytes, used.files, used.operations) == (1000, 10, 0)


@pytest.mark.rule("R331")
async def test_counts_are_corrected_after_programs_and_lost_operations(
    alice: Watcher, workspaces: Path, sample: SampleTenants
) -> None:
    await put(alice, f"{ROOT}/a", "x" * 100)
    (await tree(workspaces, ROOT) / "made by a program").write_bytes(b"x" * 5000)
    row = await Workspace.objects.aget()
    await Workspace.objects.filter(pk=row.pk).aupdate(operations=1, bytes=10**9)
    await database.run(upkeep.run, 20)
    assert (await Workspace.objects.aget()).bytes == 10**9, "an operation seems to run"
    await Workspace.objects.filter(pk=row.pk).aupdate(changed_at=row.changed_at - timedelta(hours=2))
    await database.run(upkeep.run, 20)
    row = await Workspace.objects.aget()
    assert (row.bytes, row.files, row.operations) == (5100, 2, 0)
    assert (await WorkspaceTotal.objects.aget(tenant=sample.alice.tenant)).bytes == 5100


# --- the server's side ---


@pytest.mark.rule("R335")
async def test_a_host_without_workspaces_says_so(host: str, sample: SampleTenants, settings: Settings) -> None:
    settings.AGENTHOST_WORKSPACES_DIR = None
    client = await opened(host, sample.alice.key)
    with pytest.raises(RPCError, match="no workspaces") as failed:
        await client.request("resourceList", {"uri": ROOT})
    assert failed.value.code == -32009
    uri = await create_session(client, workingDirectory="file:///harbour")
    assert client.state(uri)["summary"]["workingDirectory"] == "file:///harbour"
    await client.close()


async def test_files_of_another_installations_volume_are_not_touched(
    alice: Watcher, workspaces: Path, settings: Settings, tmp_path: Path
) -> None:
    await put(alice, f"{ROOT}/a")
    (tmp_path / "unmounted").mkdir()
    for directory, reason in ((tmp_path / "unmounted", "has no file"), (tmp_path / "foreign", "another database")):
        if directory.name == "foreign":
            directory.mkdir()
            (directory / volume.FILE).write_text("f" * 32)
        settings.AGENTHOST_WORKSPACES_DIR = directory
        assert await code_of(alice, "resourceRead", uri=f"{ROOT}/a") == -32603
        assert await code_of(alice, "resourceWrite", uri=f"{ROOT}/b", data="x", encoding="utf-8") == -32603
        assert reason in str(await database.run(volume.fault))
        await database.run(upkeep.run, 20)
    assert entries_of(tmp_path / "unmounted") == []
    await database.run(lambda: volume.accept(actor="the tests"))
    assert await code_of(alice, "resourceRead", uri=f"{ROOT}/a") == -32008
    settings.AGENTHOST_WORKSPACES_DIR = workspaces
    volume.forget()
    assert await code_of(alice, "resourceRead", uri=f"{ROOT}/a") == -32603


@pytest.mark.rule("R46")
async def test_the_default_directory_is_one_that_the_client_may_list(alice: Watcher, host: str, sample: SampleTenants) -> None:
    for key, directory in ((sample.alice.reading_key, ROOT), (await issue(sample.alice, "echo"), None)):
        client = Watcher(host, key, "client")
        await client.open()
        answer = await client.request("initialize", {"clientId": "client", "protocolVersions": ["0.1.0"]})
        assert answer.get("defaultDirectory") == directory
        if directory is not None:
            assert await names(client, directory) == {}
        await client.close()


@pytest.mark.rule("R339")
async def test_content_that_does_not_exist_is_not_found(alice: Watcher) -> None:
    uri = await create_session(alice)
    for content in (f"{uri}/content/1", "echo:/none/content/1"):
        assert await code_of(alice, "resourceRead", uri=content) == -32006


@pytest.mark.rule("R385")
async def test_a_disk_that_hangs_holds_up_neither_other_tenants_nor_connections(
    alice: Watcher, host: str, sample: SampleTenants, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(alice, f"{ROOT}/a")
    others = [await opened(host, sample.alice.key, f"other{number}") for number in range(8)]
    release, hanging = threading.Event(), threading.Semaphore(0)
    read = Tree.read

    def hang(tree: Tree, *args: Any, **kwargs: Any) -> bytes:
        if str(sample.alice.tenant.pk) in tree.directory.parts:
            hanging.release()
            assert release.wait(30)
            assert connection.connection is None or connection.vendor == "sqlite", "a connection is held"
        return read(tree, *args, **kwargs)

    monkeypatch.setattr(Tree, "read", hang)
    waiting = [asyncio.create_task(get(client, f"{ROOT}/a")) for client in others]
    for _ in range(settings.AGENTHOST_FILE_THREADS // 2):
        assert await asyncio.to_thread(hanging.acquire, timeout=10)
    bob = await opened(host, sample.bob.key, "bob")
    await put(bob, f"{ROOT}/a", "of bob")
    assert await get(bob, f"{ROOT}/a") == "of bob"
    # Her sessions are served as ever.
    await create_session(alice)
    assert not any(task.done() for task in waiting)
    release.set()
    assert await asyncio.gather(*waiting) == ["text"] * 8
    for client in (*others, bob):
        await client.close()
