"""Layers to talk through: within the process, and over a Redis that a test may stop."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from channels.layers import channel_layers

from ops.services import Redis, folder
from sessions_app.core.log.broadcast.layer import ChannelLayer

BOUND = 60.0


async def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < until, f"never happened: {what}"
        await asyncio.sleep(0.005)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    with folder() as home:
        server = Redis(home)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def make_layer() -> Iterator[Callable[..., ChannelLayer]]:
    """Each layer stands for a process of its own. Those with the same URL and prefix are one deployment."""
    made: list[ChannelLayer] = []
    prefix = f"test-{secrets.token_hex(4)}"

    def make(url: str | None, **config: object) -> ChannelLayer:
        layer = ChannelLayer(url, **{"prefix": prefix, **config})  # type: ignore[arg-type]  # a test's choice of them
        made.append(layer)
        return layer

    yield make
    for layer in made:
        layer.close()


@pytest.fixture
def use_layer() -> Iterator[Callable[[ChannelLayer], None]]:
    """Make a layer the one that this process announces and listens through."""
    before = channel_layers.backends.get("default")

    def use(layer: ChannelLayer) -> None:
        channel_layers.set("default", layer)

    yield use
    if before is None:
        channel_layers.backends.pop("default", None)
    else:
        channel_layers.set("default", before)


@pytest.fixture(params=["local", "redis"])
async def pair(
    request: pytest.FixtureRequest, make_layer: Callable[..., ChannelLayer]
) -> AsyncIterator[tuple[ChannelLayer, ChannelLayer]]:
    """Who listens and who sends: one process without Redis, two with it."""
    if request.param == "local":
        layer = make_layer(None)
        yield layer, layer
    else:
        server: Redis = request.getfixturevalue("shared_redis")
        yield make_layer(server.url(3)), make_layer(server.url(3))
