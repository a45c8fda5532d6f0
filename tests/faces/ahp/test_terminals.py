"""Terminals over AHP: real shells in real sandboxes, with a terminal service in the test's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.terminals.service import Service
from sessions_app.core.workspaces import volume
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)

URI = "term:/one"


@pytest.fixture
def workspaces(tmp_path: Path, settings: Any) -> Iterator[None]:
    tmp_path.chmod(0o755)
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "workspaces"
    settings.AGENTHOST_TERMINALS = True
    settings.AGENTHOST_RENEW_SECONDS = 0.2
    settings.AGENTHOST_SWEEP_SECONDS = 0.1
    volume.forget()
    yield
    volume.forget()


@pytest.fixture
def service(host: str, workspaces: None) -> Iterator[Service]:
    service = Service()
    service.start()
    assert not service.fault
    yield service
    service.stop()


@pytest.fixture
async def client(host: str, service: Service, sample: SampleTenants) -> AsyncIterator[Watcher]:
    client = Watcher(host, sample.alice.key, "me")
    await client.open()
    await client.initialize(ROOT)
    yield client
    await client.close()


async def create(client: Watcher, uri: str = URI, **params: Any) -> None:
    claim = {"kind": "client", "clientId": "me"}
    assert await client.request("createTerminal", {"terminal": uri, "claim": claim, **params}) is None
    await client.subscribe(uri)


def text_of(client: Watcher, uri: str = URI) -> str:
    parts = client.state(uri)["content"]
    return "".join(part["value"] if part["type"] == "unclassified" else part["output"] for part in parts)


async def say(client: Watcher, text: str, uri: str = URI) -> None:
    await client.dispatch({"type": "terminal/input", "terminal": uri, "data": text})


async def shows(client: Watcher, text: str, uri: str = URI) -> None:
    await client.until(lambda: text in text_of(client, uri), 20)


async def exits(client: Watcher, uri: str = URI) -> Any:
    return await client.until(
        lambda: next((each for each in client.state(ROOT)["terminals"] if each["resource"] == uri), {}).get("exitCode"), 20
    )


@pytest.mark.rule("R300", "R302", "R303", "R308", "R71")
async def test_a_shell_takes_input_and_exits_with_a_code(client: Watcher) -> None:
    await create(client, name="build", cols=100, rows=30)
    assert client.state(URI)["cols"] == 100
    await say(client, "echo $((40 + 2)); stty size\n")
    await shows(client, "42\r\n30 100")
    await say(client, "exit 3\n")
    assert await exits(client) == 3
    await client.check(URI)
    await client.check(ROOT)
