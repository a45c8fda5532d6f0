"""Watches of files over AHP 0.9 and 1.0, on a real file system."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from sessions_app.ahp.client.client import connected
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log import journal
from sessions_app.core.tenancy import keys
from sessions_app.core.workspaces import watches
from sessions_app.models import ApiKey, Event
from sessions_app.workspace import changes, inotify
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, mirroring
from tests.faces.ahp.test_files_1 import AT, put, tree
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[V0_9, V1_0], ids=["0.9", "1.0"])
async def alice(request: pytest.FixtureRequest, host: str, workspaces: Path, sample: SampleTenants) -> AsyncIterator[Mirror]:
    version: ClientVersion = request.param
    async with mirroring(host, sample.alice.key, "alice", version=version) as client:
        yield client


async def watch(client: Mirror, path: str = "", **params: Any) -> str:
    return await client.watch(f"{AT}/{path}".rstrip("/"), **params)


def reported(client: Mirror, channel: str) -> dict[str, list[str]]:
    """What was reported of each path below the root of the workspace, in order."""
    found: dict[str, list[str]] = {}
    for uri, kind in client.news(channel):
        found.setdefault(uri.removeprefix(AT).lstrip("/"), []).append(kind)
    return found


async def until(client: Mirror, channel: str, expected: dict[str, list[str]]) -> None:
    try:
        await client.until(lambda: reported(client, channel) == expected)
    except TimeoutError:
        assert reported(client, channel) == expected
        raise


def kernel_watches() -> int:
    """The directories that the kernel reports to this process, which is the server's."""
    found = 0
    for info in Path("/proc/self/fdinfo").iterdir():
        try:
            found += info.read_text().count("inotify wd:")
        except OSError:
            continue
    return found


async def eventually(condition: Callable[[], object]) -> None:
    """What the kernel knows has no event to wait for."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def added(*paths: str) -> dict[str, list[str]]:
    return {path: ["added"] for path in paths}


@pytest.mark.rule("V245", "V47", "V54", "V92", "V324")
async def test_changes_are_reported_under_numbers_of_the_tenant(alice: Mirror) -> None:
    await put(alice, "old", "1")
    created = await alice.request(
        "createResourceWatch", {"channel": ROOT, "uri": AT, "recursive": True, "excludes": {"items": ["*.log"]}}
    )
    channel = created["channel"]
    assert channel.startswith("ahp-resource-watch:/")
    # Between creating and subscribing nothing is lost.
    await put(alice, "early")
    state = await alice.subscribe(channel)
    assert state == {"root": AT, "recursive": True, "excludes": {"items": ["*.log"]}}
    await until(alice, channel, {"early": ["added"]})
    await put(alice, "old", "2")
    await until(alice, channel, {"early": ["added"], "old": ["updated"]})
    await alice.request("resourceDelete", {"channel": ROOT, "uri": f"{AT}/old"})
    await until(alice, channel, {"early": ["added"], "old": ["updated", "deleted"]})
    await put(alice, "noise.log")
    await put(alice, "last ü")
    await until(alice, channel, {"early": ["added"], "old": ["updated", "deleted"], "last%20%C3%BC": ["added"]})
    numbers = [envelope["serverSeq"] for envelope in alice.seen]
    assert numbers == sorted(set(numbers))
    # The state never changes, and its snapshot comes at the position of the connection.
    assert await alice.check(channel) == state
    # Only the host has news of files.
    news = {"items": [{"uri": AT, "type": "updated"}]}
    assert "only the host" in await alice.refused(channel, "resourceWatch/changed", changes=news)
    assert "watch" in await alice.refused(channel, "session/titleChanged", title="x")
    # What is stored has no names of files.
    stored = [each.data async for each in Event.objects.filter(kind="files_changed")]
    assert stored
    assert not any("old" in data or AT in data for data in stored)


@pytest.mark.rule("V245")
async def test_a_recursive_watch_follows_directories_that_come_move_and_go(alice: Mirror) -> None:
    await put(alice, "begin")
    inside = await tree()
    (inside / "a" / "b").mkdir(parents=True)
    flat, deep = await watch(alice), await watch(alice, recursive=True)
    (inside / "a" / "b" / "one").write_text("1")
    await until(alice, deep, {"a/b/one": ["added"]})
    # Programs make whole trees faster than anybody can look.
    shutil.copytree(inside / "a", inside / "c")
    await until(alice, deep, {"a/b/one": ["added"], **added(*("c", "c/b", "c/b/one"))})
    (inside / "c").rename(inside / "d")
    expected = {
        "a/b/one": ["added"],
        "c": ["added", "deleted"],
        **added(*("c/b", "c/b/one")),
        **added(*("d", "d/b", "d/b/one")),
    }
    await until(alice, deep, expected)
    (inside / "d" / "b" / "one").write_text("2")
    await alice.until(lambda: reported(alice, deep).get("d/b/one") == ["added", "updated"])
    assert reported(alice, deep)["c/b/one"] == ["added"]
    shutil.rmtree(inside / "d")
    await alice.until(lambda: {reported(alice, deep)[path][-1] for path in ("d", "d/b", "d/b/one")} == {"deleted"})
    # Without `recursive`: the root's own entries.
    await until(alice, flat, {"c": ["added", "deleted"], "d": ["added", "deleted"]})


@pytest.mark.rule("V245")
async def test_a_root_that_goes_and_comes_is_found_again(alice: Mirror) -> None:
    await put(alice, "begin")
    inside = await tree()
    file, folder = await watch(alice, "file"), await watch(alice, "x/folder", recursive=True)
    await put(alice, "file", "1")
    await until(alice, file, {"file": ["added"]})
    await put(alice, "file", "2")
    await until(alice, file, {"file": ["added", "updated"]})
    await alice.request("resourceDelete", {"uri": f"{AT}/file"})
    await until(alice, file, {"file": ["added", "updated", "deleted"]})
    await alice.request("resourceMkdir", {"uri": f"{AT}/x/folder"})
    await until(alice, folder, {"x/folder": ["added"]})
    await put(alice, "x/folder/a")
    await until(alice, folder, {"x/folder": ["added"], "x/folder/a": ["added"]})
    await alice.request("resourceDelete", {"uri": f"{AT}/x", "recursive": True})
    await until(alice, folder, {"x/folder": ["added", "deleted"], "x/folder/a": ["added"]})
    (inside / "x" / "folder").mkdir(parents=True)
    await until(alice, folder, {"x/folder": ["added", "deleted", "added"], "x/folder/a": ["added"]})
    await put(alice, "x/folder/a")
    await alice.until(lambda: len(reported(alice, folder)["x/folder/a"]) == 2)


@pytest.mark.rule("V245")
async def test_patterns_restrict_what_is_reported_and_excluded_directories_cost_nothing(alice: Mirror) -> None:
    await put(alice, "begin")
    inside = await tree()
    for name in ("src", "node_modules/x/y", "src/node_modules"):
        (inside / name).mkdir(parents=True)
    before = kernel_watches()
    patterns: dict[str, Any] = {
        "includes": {"items": ["*.py", "src/docs"]},
        "excludes": {"items": ["**/node_modules/**", "test_*"]},
    }
    channel = await watch(alice, recursive=True, **patterns)
    # The root and src.
    assert kernel_watches() - before == 2
    (inside / "src" / "docs").mkdir()
    for name in ("node_modules/a.py", "src/node_modules/b.py", "src/c.txt", "src/test_d.py", "src/docs/e", "f.py"):
        (inside / name).write_text("")
    await until(alice, channel, added(*("src/docs", "src/docs/e", "f.py")))


@pytest.mark.rule("V245")
async def test_a_watch_does_not_leave_its_workspace(alice: Mirror, workspaces: Path) -> None:
    await put(alice, "begin")
    inside, outside = await tree(), workspaces / "outside"
    (outside / "deep").mkdir(parents=True)
    (inside / "dir").mkdir()
    (inside / "out").symlink_to(outside)
    (inside / "up").symlink_to("../new")
    (inside / "in").symlink_to("dir")
    for path, code in (("out", -32009), ("up/x", -32009), ("../../etc", -32009), ("%2e%2e/x", -32009)):
        assert await alice.code_of("createResourceWatch", channel=ROOT, uri=f"{AT}/{path}") == code, path
    for uri, code in (("file:///etc", -32009), ("other:/x", -32008), ("no uri", -32602)):
        assert await alice.code_of("createResourceWatch", channel=ROOT, uri=uri) == code, uri
    assert await alice.code_of("createResourceWatch", channel="ahp-session:/a", uri=AT) == -32602
    before = kernel_watches()
    channel, linked = await watch(alice, recursive=True), await watch(alice, "in", recursive=True)
    # The root and dir: no link was followed.
    assert kernel_watches() - before == 2
    (inside / "dir").rename(inside / "old")
    (inside / "dir").symlink_to(outside)
    (outside / "deep" / "secret").write_text("")
    (outside / "secret").write_text("")
    os.mkfifo(inside / "pipe")
    (inside / os.fsdecode(b"bad\xff")).write_text("")
    (inside / "end").write_text("")
    await until(alice, channel, {"dir": ["updated"], "old": ["added"], "pipe": ["added"], "end": ["added"]})
    assert "in/secret" not in reported(alice, linked)


@pytest.mark.rule("V245", "V52")
async def test_a_watch_is_its_connections_own_and_ends_with_its_subscription(
    alice: Mirror, host: str, sample: SampleTenants
) -> None:
    await put(alice, "a")
    before = kernel_watches()
    async with mirroring(host, sample.alice.key, "second", version=alice.version) as second:
        channel, other = await watch(alice, recursive=True), await watch(second, recursive=True)
        assert await second.code_of("subscribe", channel=channel) == -32008
        await put(second, "b")
        await asyncio.gather(until(alice, channel, {"b": ["added"]}), until(second, other, {"b": ["added"]}))
        assert reported(second, channel) == {}
        await alice.unsubscribe(channel)
        await second.request("resourceDelete", {"uri": f"{AT}/b"})
        await until(second, other, {"b": ["added", "deleted"]})
        assert reported(alice, channel) == {"b": ["added"]}
        assert await alice.code_of("subscribe", channel=channel) == -32008
        assert kernel_watches() > before
        # The second client's connection is lost, without a word.
        second.cut()
        await second.ended()
        await eventually(lambda: kernel_watches() == before)
        assert await second.reconnect() == "replay"
        assert other not in second.mirrors
    gone = await alice.request("createResourceWatch", {"channel": ROOT, "uri": AT})
    await alice.close()
    await eventually(lambda: kernel_watches() == before)
    await alice.open()
    answer = await alice.request(
        "reconnect",
        {"channel": ROOT, "clientId": "alice", "lastSeenServerSeq": alice.last_seq, "subscriptions": [gone["channel"], ROOT]},
    )
    assert answer["missing"] == [gone["channel"]]


@pytest.mark.rule("V245")
async def test_a_flood_is_reported_as_a_change_of_the_root(alice: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    # A slow machine makes few files between two reports.
    monkeypatch.setattr(changes, "MOST_CHANGES", 5)
    await put(alice, "begin")
    inside = await tree()
    channel = await watch(alice, recursive=True)
    for number in range(500):
        (inside / f"file {number}").write_text("")
    await alice.until(lambda: "updated" in reported(alice, channel).get("", []))
    # Whoever lists again now, and follows what comes, knows everything.
    (inside / "last").write_text("")
    await alice.until(lambda: "last" in reported(alice, channel) or reported(alice, channel)[""].count("updated") > 1)
    sizes = [len(each["action"]["changes"]["items"]) for each in alice.seen if each["channel"] == channel]
    assert max(sizes) <= 5


@pytest.mark.rule("V245")
async def test_limits_of_watches_name_their_settings(alice: Mirror, settings: Settings) -> None:
    await put(alice, "begin")
    inside = await tree()
    for number in range(6):
        (inside / f"dir {number}").mkdir()

    async def refused(**params: Any) -> str:
        answer = alice.ask("createResourceWatch", {"channel": ROOT, "uri": AT, **params})
        error = await asyncio.gather(answer, return_exceptions=True)
        assert getattr(error[0], "code", 0) == -32602, error
        return str(error[0])

    settings.AGENTHOST_WATCH_DIRECTORIES = 5
    assert "AGENTHOST_WATCH_DIRECTORIES" in await refused(recursive=True)
    settings.AGENTHOST_WATCH_DIRECTORIES, settings.AGENTHOST_AHP_WATCHES = 100, 1
    channel = await watch(alice)
    assert "AGENTHOST_AHP_WATCHES" in await refused()
    settings.AGENTHOST_AHP_WATCHES, settings.AGENTHOST_TENANT_WATCHES = 100, 1
    assert "AGENTHOST_TENANT_WATCHES" in await refused()
    settings.AGENTHOST_TENANT_WATCHES = 100
    await refused(includes={"items": ["{a,b,c,d,e,f,g,h,i,j}{a,b,c,d,e}", "{a,b,c,d,e,f,g,h,i,j}{a,b,c,d,e,f}"]})
    await refused(excludes={"items": [""]})
    await refused(excludes=["x"])
    await refused(recursive="yes")
    await put(alice, "still")
    await until(alice, channel, {"still": ["added"]})


@pytest.mark.rule("V245", "V240")
async def test_keys_that_only_read_watch_and_keys_without_a_session_there_do_not(
    alice: Mirror, host: str, sample: SampleTenants
) -> None:
    await put(alice, "begin")

    def issue(scopes: list[str], agents: list[str] | None) -> str:
        made = keys.issue(sample.alice.tenant, name="k", scopes=scopes, expires_at=None, allowed_agents=agents, actor="the tests")
        return made.raw

    reader_key, limited_key = [
        await database.run(issue, scopes, agents) for scopes, agents in ((["sessions:read"], None), (["*"], ["echo"]))
    ]
    async with (
        mirroring(host, reader_key, "reader", version=alice.version) as reader,
        mirroring(host, limited_key, "limited", version=alice.version) as limited,
        mirroring(host, sample.bob.key, "bob", version=alice.version) as bob,
        connected(host, sample.alice.key, "old") as old,
    ):
        channel, bobs = await watch(reader), await watch(bob)
        await old.request("resourceWrite", {"uri": f"{AT}/by 0.1", "data": "", "encoding": "utf-8"})
        await until(reader, channel, {"by%200.1": ["added"]})
        await put(bob, "bob's")
        await until(bob, bobs, {"bob's": ["added"]})
        assert await limited.code_of("createResourceWatch", channel=ROOT, uri=AT) == -32009
        # A session of its agent opens the workspace to the limited key, and its end closes it.
        uri, _ = await alice.create("echo", workingDirectories=[AT])
        channel = await watch(limited)
        await put(alice, "c")
        await until(limited, channel, {"c": ["added"]})
        await alice.request("disposeSession", {"channel": uri})
        await put(alice, "d")
        await until(limited, channel, {"c": ["added"], "": ["deleted"]})


@pytest.mark.rule("V245", "V324")
async def test_an_editor_gets_all_the_watches_that_it_asks_for_on_connecting(alice: Mirror) -> None:
    asked = [alice.ask("createResourceWatch", {"channel": ROOT, "uri": f"{AT}/{n}", "recursive": True}) for n in range(12)]
    channels = [(await each)["channel"] for each in asked]
    assert len(set(channels)) == 12
    for channel in channels:
        await alice.subscribe(channel)
    await alice.request("resourceMkdir", {"uri": f"{AT}/7"})
    await until(alice, channels[7], {"7": ["added"]})
    assert all(reported(alice, channel) == {} for channel in channels if channel != channels[7])


@pytest.mark.rule("V245", "V320")
async def test_where_the_kernel_cannot_report_everything_watches_are_not_served(
    alice: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "sees_all", lambda _directory: False)
    assert await alice.code_of("createResourceWatch", channel=ROOT, uri=AT) == -32601
    monkeypatch.setattr(inotify, "is_available", lambda: False)
    assert await alice.code_of("createResourceWatch", channel=ROOT, uri=AT) == -32601


@pytest.mark.rule("V245", "R8")
@pytest.mark.parametrize("end", ["revocation", "suspension"])
async def test_a_key_that_ends_takes_its_watches_with_it(host: str, workspaces: Path, sample: SampleTenants, end: str) -> None:
    before = kernel_watches()
    async with mirroring(host, sample.alice.key, "alice") as alice:
        await put(alice, "begin")
        channel = await watch(alice, recursive=True)
        assert kernel_watches() > before
        key = await ApiKey.objects.select_related("tenant").aget(pk=sample.alice.caller.key)
        if end == "revocation":
            await database.run(turns.revoke_key, key, actor="the tests")
        else:
            await database.run(turns.suspend_tenant, sample.alice.tenant, actor="the tests")
        assert await alice.ended() == 1008
        assert alice.news(channel) == []
    await eventually(lambda: kernel_watches() == before)


@pytest.mark.rule("V245")
async def test_changes_wait_for_a_database_that_takes_no_writes(alice: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(alice, "begin")
    inside = await tree()
    channel = await watch(alice)
    failures = []
    works = journal.transaction

    def fails() -> None:
        failures.append(1)
        monkeypatch.setattr(journal, "transaction", works)
        raise NotReady

    monkeypatch.setattr(journal, "transaction", fails)
    (inside / "late").write_text("")
    await until(alice, channel, {"late": ["added"]})
    assert failures


@pytest.mark.rule("V245")
async def test_a_watch_that_nobody_subscribes_to_ends(alice: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(alice, "begin")
    before = kernel_watches()
    monkeypatch.setattr(watches, "_UNUSED_SECONDS", 0.2)
    created = await alice.request("createResourceWatch", {"channel": ROOT, "uri": AT})
    await eventually(lambda: kernel_watches() == before)
    assert await alice.code_of("subscribe", channel=created["channel"]) == -32008
