"""Files of workspaces over AHP 0.9 and 1.0. What is the same in 0.1 is tested there (test_workspaces)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from pytest_django import Settings

from sessions_app.ahp.client.client import connected
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database
from sessions_app.core.tenancy import keys
from sessions_app.models import Workspace
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, mirroring
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)

AT = "file:///workspace"


@pytest.fixture(params=[V0_9, V1_0], ids=["0.9", "1.0"])
async def alice(request: pytest.FixtureRequest, host: str, workspaces: Path, sample: SampleTenants) -> AsyncIterator[Mirror]:
    version: ClientVersion = request.param
    async with mirroring(host, sample.alice.key, "alice", version=version) as client:
        yield client


async def put(client: Mirror, path: str, text: str = "text", **params: Any) -> None:
    wanted = {"channel": ROOT, "uri": f"{AT}/{path}", "data": text, "encoding": "utf-8", **params}
    assert await client.request("resourceWrite", wanted) == {}


async def get(client: Mirror, path: str) -> Any:
    return (await client.request("resourceRead", {"channel": ROOT, "uri": f"{AT}/{path}"}))["data"]


async def resolved(client: Mirror, path: str, **params: Any) -> Any:
    return await client.request("resourceResolve", {"channel": ROOT, "uri": f"{AT}/{path}", **params})


async def tree() -> Path:
    row = await Workspace.objects.aget(root=AT)
    return Path(str(configured.AGENTHOST_WORKSPACES_DIR)) / str(row.tenant_id) / row.public_id / "tree"


@pytest.mark.rule("V240", "V40")
async def test_files_are_written_read_listed_copied_moved_and_deleted(alice: Mirror) -> None:
    await put(alice, "a.txt", "one")
    assert await alice.request("resourceRead", {"uri": f"{AT}/a.txt"}) == {
        "data": "one",
        "encoding": "utf-8",
        "contentType": "text/plain",
    }
    assert await alice.request("resourceCopy", {"channel": ROOT, "source": f"{AT}/a.txt", "destination": f"{AT}/b"}) == {}
    assert await alice.request("resourceMove", {"channel": ROOT, "source": f"{AT}/b", "destination": f"{AT}/c"}) == {}
    assert await alice.request("resourceDelete", {"channel": ROOT, "uri": f"{AT}/a.txt"}) == {}
    assert await alice.request("resourceRequest", {"channel": ROOT, "uri": f"{AT}/c", "write": True}) == {}
    entries = await alice.request("resourceList", {"channel": ROOT, "uri": AT})
    assert entries == {"entries": [{"name": "c", "type": "file"}]}
    for method, params, code in (
        ("resourceRead", {"uri": f"{AT}/none"}, -32008),
        ("resourceRead", {"uri": "ahp-session:/sess_none/content/x"}, -32008),
        ("resourceRead", {"uri": "file:///etc/passwd"}, -32009),
        ("resourceResolve", {"uri": "file:///etc/passwd"}, -32009),
        ("resourceResolve", {"uri": f"{AT}/../etc/passwd"}, -32009),
        ("resourceMkdir", {"uri": "file:///etc/passwd"}, -32009),
        ("resourceMkdir", {"uri": f"{AT}/%2e%2e/%2e%2e/x"}, -32009),
        ("resourceWrite", {"uri": f"{AT}/c", "data": "", "encoding": "utf-8", "createOnly": True}, -32010),
        ("resourceResolve", {"uri": "no uri"}, -32602),
        ("resourceResolve", {"uri": "other:/a"}, -32008),
    ):
        assert await alice.code_of(method, channel=ROOT, **params) == code, (method, params)
        assert await alice.code_of(method, channel="ahp-session:/a", **params) == -32602, method
    with pytest.raises(RPCError, match=f"{AT}/none"):
        await get(alice, "none")


@pytest.mark.rule("V243")
async def test_resolve_reports_files_directories_and_links(alice: Mirror) -> None:
    await alice.request("resourceMkdir", {"channel": ROOT, "uri": f"{AT}/dir"})
    await put(alice, "dir/a.txt", "12345")
    inside = await tree()
    (inside / "link").symlink_to("dir/a.txt")
    (inside / "folder").symlink_to("dir")
    (inside / "out").symlink_to("../../../agenthost-volume")
    (inside / "nowhere").symlink_to("missing")
    os.mkfifo(inside / "pipe")
    found = await resolved(alice, "dir/a.txt")
    assert set(found) - {"ctime"} == {"uri", "type", "size", "mtime", "contentType", "etag"}
    assert (found["uri"], found["type"], found["size"], found["contentType"]) == (f"{AT}/dir/a.txt", "file", 5, "text/plain")
    assert found["mtime"].endswith("Z")
    for spelled in ("link", "folder/a.txt"):
        assert await resolved(alice, spelled) == found
    link = await resolved(alice, "link", followSymlinks=False)
    assert (link["uri"], link["type"]) == (f"{AT}/link", "symlink")
    assert "etag" not in link
    directory = await resolved(alice, "folder")
    assert (directory["uri"], directory["type"]) == (f"{AT}/dir", "directory")
    assert {"size", "etag"} & set(directory) == set()
    assert (await resolved(alice, ""))["type"] == "directory"
    for path, code in (("none", -32008), ("nowhere", -32008), ("dir/a.txt/b", -32008), ("out", -32009), ("pipe", -32602)):
        assert await alice.code_of("resourceResolve", channel=ROOT, uri=f"{AT}/{path}") == code, path


@pytest.mark.rule("V244")
async def test_mkdir_makes_parents_and_refuses_files(alice: Mirror) -> None:
    made = {"channel": ROOT, "uri": f"{AT}/a/b/c"}
    assert await alice.request("resourceMkdir", made) == {}
    await put(alice, "a/b/c/file", "stays")
    assert await alice.request("resourceMkdir", made) == {}
    assert await get(alice, "a/b/c/file") == "stays"
    (await tree() / "nowhere").symlink_to("missing")
    for path in ("a/b/c/file", "a/b/c/file/d", "nowhere"):
        assert await alice.code_of("resourceMkdir", channel=ROOT, uri=f"{AT}/{path}") == -32010, path
    assert await alice.request("resourceMkdir", {"channel": ROOT, "uri": AT}) == {}


@pytest.mark.rule("V242")
async def test_modes_put_data_at_their_position(alice: Mirror, settings: Settings) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"mode": "append"}, "one"),
        ({"mode": "append"}, "oneone"),
        ({"mode": "append", "position": 2}, "oneoonene"),
        ({"mode": "insert"}, "oneoneoonene"),
        ({"mode": "insert", "position": 12}, "oneoneooneneone"),
        ({"mode": "insert", "position": 1.0}, "ooneneoneooneneone"),
        ({"mode": "truncate", "position": 4}, "ooneone"),
        ({"mode": "truncate", "position": 7}, "ooneoneone"),
        ({"mode": "truncate"}, "one"),
        ({}, "one"),
    ]
    for params, expected in cases:
        await put(alice, "file", "one", **params)
        assert await get(alice, "file") == expected, params
    settings.AGENTHOST_FILE_BYTES = 5
    wrongs: list[dict[str, Any]] = [
        *({"mode": mode, "position": 4} for mode in ("append", "insert", "truncate")),
        *({"mode": "insert", "position": wrong} for wrong in (-1, 0.5, "1", 10**30)),
        {"mode": "prepend"},
        {"mode": "append"},
        {"ifMatch": 5},
    ]
    for params in wrongs:
        wanted = {"channel": ROOT, "uri": f"{AT}/file", "data": "one", "encoding": "utf-8", **params}
        assert await alice.code_of("resourceWrite", **wanted) == -32602, params
    assert await get(alice, "file") == "one"
    assert await alice.code_of("resourceWrite", channel=ROOT, uri=AT, data="", encoding="utf-8", mode="append") == -32602


@pytest.mark.rule("V242")
async def test_a_stale_etag_is_a_conflict_that_names_the_file(alice: Mirror) -> None:
    await put(alice, "file", "aaa")
    seen = (await resolved(alice, "file"))["etag"]
    assert (await resolved(alice, "file"))["etag"] == seen
    await put(alice, "file", "bbb", ifMatch=seen)
    with pytest.raises(RPCError, match=f"{AT}/file") as stale:
        await put(alice, "file", "ccc", ifMatch=seen)
    assert stale.value.code == -32011
    for path in ("file", "none"):
        wanted = {"channel": ROOT, "uri": f"{AT}/{path}", "data": "c", "encoding": "utf-8", "mode": "append", "ifMatch": seen}
        assert await alice.code_of("resourceWrite", **wanted) == -32011
    assert await get(alice, "file") == "bbb"
    # Every version looks different, also those of equal size that follow each other at once.
    etags = set()
    for number in range(20):
        await put(alice, "file", f"{number:03}")
        etags.add((await resolved(alice, "file"))["etag"])
    assert len(etags) == 20


@pytest.mark.rule("V242")
async def test_of_two_writers_with_one_etag_one_wins_and_no_append_is_lost(
    alice: Mirror, host: str, sample: SampleTenants
) -> None:
    await put(alice, "file", "")
    await put(alice, "log", "")
    async with mirroring(host, sample.alice.key, "second") as second:
        for round_ in range(8):
            etag = (await resolved(alice, "file"))["etag"]
            both = (put(client, "file", f"{round_} {client.client_id}", ifMatch=etag) for client in (alice, second))
            results = await asyncio.gather(*both, return_exceptions=True)
            codes = sorted(each.code if isinstance(each, RPCError) else 0 for each in results)
            assert codes == [-32011, 0], results
        lines = [f"{client.client_id} {number}\n" for number in range(10) for client in (alice, second)]
        writers = {alice.client_id: alice, second.client_id: second}
        await asyncio.gather(*(put(writers[line.split()[0]], "log", line, mode="append") for line in lines))
        assert sorted((await get(second, "log")).splitlines(keepends=True)) == sorted(lines)


@pytest.mark.rule("V240")
async def test_a_key_that_may_only_read_reads_and_writes_nothing(alice: Mirror, host: str, sample: SampleTenants) -> None:
    await put(alice, "file")
    issued = await database.run(
        lambda: keys.issue(
            sample.alice.tenant, name="reader", scopes=["sessions:read"], expires_at=None, allowed_agents=None, actor="the tests"
        )
    )
    async with mirroring(host, issued.raw, "reader", version=alice.version) as reader:
        assert await get(reader, "file") == "text"
        assert (await resolved(reader, "file"))["type"] == "file"
        for method, params in (
            ("resourceWrite", {"uri": f"{AT}/file", "data": "", "encoding": "utf-8"}),
            ("resourceMkdir", {"uri": f"{AT}/dir"}),
            ("resourceDelete", {"uri": f"{AT}/file"}),
            ("resourceCopy", {"source": f"{AT}/file", "destination": f"{AT}/b"}),
            ("resourceMove", {"source": f"{AT}/file", "destination": f"{AT}/b"}),
        ):
            assert await reader.code_of(method, channel=ROOT, **params) == -32009, method
    assert await get(alice, "file") == "text"


@pytest.mark.rule("V240", "V320")
async def test_tenants_and_versions_share_and_separate_files(alice: Mirror, host: str, sample: SampleTenants) -> None:
    await put(alice, "file", "alice's")
    async with (
        mirroring(host, sample.bob.key, "bob", version=alice.version) as bob,
        connected(host, sample.alice.key, "old") as old,
    ):
        assert (await old.request("resourceRead", {"uri": f"{AT}/file"}))["data"] == "alice's"
        assert await bob.code_of("resourceResolve", channel=ROOT, uri=f"{AT}/file") == -32008
        await put(bob, "file", "bob's")
        assert await get(alice, "file") == "alice's"


@pytest.mark.rule("V12", "V320")
async def test_the_handshake_names_the_default_workspace(host: str, workspaces: Path, sample: SampleTenants) -> None:
    client = Mirror(host, sample.alice.key, "hand")
    await client.open()
    assert (await client.initialize())["defaultDirectory"] == AT
    await client.close()
