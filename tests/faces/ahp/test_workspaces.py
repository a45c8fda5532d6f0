"""Files of workspaces over AHP: the resource commands, rights, tenants, quotas."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database
from sessions_app.core.tenancy import keys
from sessions_app.core.workspaces import upkeep
from sessions_app.models import Session, Workspace, WorkspaceTotal
from tests.e2e.ahp_steps import create_session, new_uri
from tests.e2e.ahp_watcher import Watcher
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
    (tree,) = [found for found in workspaces.glob("*/*/tree") if (found / "full").exists()]
    (tree / "link").symlink_to("full")
    await alice.request("resourceDelete", {"uri": f"{ROOT}/link", "recursive": True})
    assert await names(alice, ROOT) == {"full": "directory"}
    await alice.request("resourceDelete", {"uri": f"{ROOT}/full/a"})
    assert await names(alice, f"{ROOT}/full") == {"b": "file"}
    await alice.request("resourceDelete", {"uri": f"{ROOT}/full", "recursive": True})
    assert await names(alice, ROOT) == {}
    usage = await Workspace.objects.aget(root=ROOT)
    assert (usage.bytes, usage.files, usage.operations) == (0, 0, 0)
