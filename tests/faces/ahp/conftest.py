"""A host in the test's process: AHP over the test's database, without a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from channels.layers import channel_layers
from django.db import connection
from pytest_django import Settings

from agenthost.websocket import WebSocket
from agenthost.websocket_guard import WebSocketGuard
from sessions_app.ahp import versions
from sessions_app.ahp.transport.consumer import Consumer
from sessions_app.core.base import database
from sessions_app.core.log.broadcast.layer import ChannelLayer
from sessions_app.core.terminals.service import Service
from sessions_app.core.workspaces import volume
from tests.serving import serving


@pytest.fixture
def _own_layer() -> Iterator[None]:
    """A channel layer without Redis, so that only this process announces events."""
    before = channel_layers.backends.get("default")
    with closing(ChannelLayer(None)) as layer:
        channel_layers.set("default", layer)
        yield
    if before is None:
        channel_layers.backends.pop("default", None)
    else:
        channel_layers.set("default", before)


@pytest.fixture
def workspaces(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """The volume of the workspaces; without this fixture there are none."""
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "volume"
    volume.forget()
    yield tmp_path / "volume"
    volume.forget()


@pytest.fixture
def terminals_on(workspaces: Path, settings: Settings, tmp_path: Path) -> None:
    """As in an installation with terminals; no terminal service runs yet."""
    tmp_path.chmod(0o755)
    settings.AGENTHOST_TERMINALS = True
    settings.AGENTHOST_RENEW_SECONDS = 0.2
    settings.AGENTHOST_SWEEP_SECONDS = 0.1


@pytest.fixture
def service(host: str, terminals_on: None) -> Iterator[Service]:
    """A terminal service in the test's process, with real sandboxes."""
    service = Service()
    service.start()
    assert not service.fault
    yield service
    service.stop()


@pytest.fixture
def host(transactional_db: None, scripted_agents: None, _own_layer: None) -> Iterator[str]:
    """Its URL."""
    consumer = Consumer.as_asgi(versions=versions.served())
    with serving(WebSocketGuard({"/ahp": consumer}), ws=WebSocket, ws_per_message_deflate=False) as port:
        yield f"ws://127.0.0.1:{port}/ahp"
    database.shut_down()
    connection.close()
