"""Workspaces that begin with the template of an agent, as AHP clients see them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_django import Settings

from agents_app import registry
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database
from sessions_app.core.workspaces import directories
from sessions_app.models import Session, Workspace, WorkspaceTotal
from tests.e2e.ahp_steps import create_session
from tests.e2e.ahp_watcher import Watcher
from tests.faces.ahp.test_workspaces import entries_of, get, names, opened, put
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def template(host: str, tmp_path: Path) -> Iterator[Path]:
    """The template of the agent `echo`."""
    folder = tmp_path / "template"
    (folder / "src").mkdir(parents=True)
    (folder / "readme.txt").write_text("read me")
    (folder / "src" / "main.py").write_text("print()")
    with registry.use(
        replace(spec, template=str(folder)) if spec.name == "echo" else spec for spec in registry.described().values()
    ):
        yield folder


@pytest.fixture
async def alice(host: str, template: Path, workspaces: Path, sample: SampleTenants) -> AsyncIterator[Watcher]:
    client = await opened(host, sample.alice.key, "alice")
    yield client
    await client.close()


async def new_session(client: Watcher) -> Session:
    await create_session(client)
    return await Session.objects.order_by("-pk")[:1].aget()


async def new_root(client: Watcher) -> str:
    """The root of a new session's own workspace."""
    return f"file:///sessions/{(await new_session(client)).public_id}"


async def count(root: str) -> tuple[int, int]:
    row = await Workspace.objects.aget(root=root)
    return row.bytes, row.files


CONTENT = {"readme.txt": "file", "src": "directory"}


async def test_a_sessions_own_workspace_begins_with_the_template_when_it_is_first_listed(alice: Watcher) -> None:
    root = await new_root(alice)
    assert await names(alice, root) == CONTENT
    assert await get(alice, f"{root}/src/main.py") == "print()"
    assert await count(root) == (14, 3)
    total = await WorkspaceTotal.objects.aget()
    assert total.bytes == 14
    await alice.request("resourceDelete", {"uri": f"{root}/readme.txt"})
    assert await names(alice, root) == {"src": "directory"}


async def test_a_write_or_a_tool_fills_it_too(alice: Watcher) -> None:
    root = await new_root(alice)
    await put(alice, f"{root}/src/new.py")
    assert await names(alice, f"{root}/src") == {"main.py": "file", "new.py": "file"}
    place = await database.run(directories.of_session, await new_session(alice))
    assert (place.directory / "tree" / "readme.txt").read_text() == "read me"


async def test_a_shared_workspace_is_filled_when_it_was_made_for_a_session_of_the_agent(alice: Watcher) -> None:
    await create_session(alice, workingDirectory="file:///harbour")
    await create_session(alice, "pilot", workingDirectory="file:///plain")
    # A directory of the template, which is in no tree yet.
    await create_session(alice, workingDirectory="file:///harbour/src")
    assert await Workspace.objects.filter(root="file:///harbour/src").acount() == 0
    assert await names(alice, "file:///harbour") == CONTENT
    assert await names(alice, "file:///plain") == {}
    await create_session(alice, workingDirectory="file:///plain")
    assert await names(alice, "file:///plain") == {}
    assert await names(alice, "file:///workspace") == {}


async def test_many_first_uses_at_once_all_see_the_whole_template(alice: Watcher, settings: Settings) -> None:
    # Room for one copy and the operations' reservations.
    settings.AGENTHOST_WORKSPACE_FILES = 1000
    root = await new_root(alice)
    listed = await asyncio.gather(*(names(alice, root) for _ in range(8)))
    assert listed == [CONTENT] * 8
    assert await count(root) == (14, 3)
    assert (await Workspace.objects.aget(root=root)).operations == 0


async def failure(client: Watcher, root: str) -> RPCError:
    with pytest.raises(RPCError) as failed:
        await names(client, root)
    return failed.value


async def test_a_template_that_is_missing_here_is_a_clear_error_without_the_servers_paths(
    alice: Watcher, template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = await new_root(alice)
    away = template.with_name("away")
    os.rename(template, away)  # noqa: PTH104 - at once
    with caplog.at_level(logging.ERROR):
        error = await failure(alice, root)
    assert error.code == -32603
    assert error.message == "The files that a workspace of this agent begins with cannot be used on this host."
    assert f"template={template}" in caplog.text
    os.rename(away, template)  # noqa: PTH104
    assert await names(alice, root) == CONTENT


async def test_a_template_over_a_quota_is_refused_and_nothing_of_it_remains(
    alice: Watcher, workspaces: Path, settings: Settings
) -> None:
    root = await new_root(alice)
    settings.AGENTHOST_TENANT_WORKSPACE_BYTES = 10
    error = await failure(alice, root)
    assert "AGENTHOST_TENANT_WORKSPACE_BYTES" in error.message
    assert await count(root) == (0, 0)
    settings.AGENTHOST_TENANT_WORKSPACE_BYTES = 10**9
    settings.AGENTHOST_WORKSPACE_BYTES = 10
    error = await failure(alice, root)
    assert "cannot be used on this host" in error.message
    assert entries_of(workspaces, "**/readme.txt") == []
    assert await count(root) == (0, 0)


async def test_without_the_agents_template_the_workspace_begins_empty(alice: Watcher) -> None:
    root = await new_root(alice)
    await create_session(alice, workingDirectory="file:///harbour")
    with registry.use(replace(spec, template=None) for spec in registry.described().values()):
        assert await names(alice, "file:///harbour") == {}
        assert await names(alice, root) == {}
