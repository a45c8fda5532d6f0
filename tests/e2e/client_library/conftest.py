"""The client library, sync and async, behind one interface, against a server that runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agenthost.client import AsyncClient, AsyncSession, Client
from tests.e2e.server import Server
from tests.fakes.cutting_proxy import CuttingProxy, proxied

Connect = Callable[..., Any]


class Driven:
    """An object of the asynchronous client as if it were of the synchronous one: coroutines are run to their end."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target, self._runner = target, runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return (lambda *given, **named: self._plain(value(*given, **named))) if callable(value) else value

    def __iter__(self) -> Iterator[Any]:
        following = aiter(self._target)

        async def step() -> Any:
            return await anext(following, None)

        while (each := self._runner.run(step())) is not None:
            yield each

    def _plain(self, value: Any) -> Any:
        async def finish() -> Any:
            return await value

        found = self._runner.run(finish()) if inspect.isawaitable(value) else value
        is_driven = isinstance(found, AsyncSession) or hasattr(found, "__anext__")
        return Driven(found, self._runner) if is_driven else found


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest, hall: Server) -> Iterator[Connect]:
    """Makes clients of one kind; by default with a key of the server that the tests share."""
    clients: list[Any] = []
    with asyncio.Runner() as runner:

        def make(url: str = hall.origin(), key: str = hall.keys.alice, **settings: Any) -> Any:
            if request.param == "sync":
                clients.append(Client(url, key, **settings))
            else:
                clients.append(Driven(AsyncClient(url, key, **settings), runner))
            return clients[-1]

        yield make
        for each in clients:
            (each.close if request.param == "sync" else each.aclose)()


@pytest.fixture
def proxy(hall: Server) -> Iterator[CuttingProxy]:
    with proxied(hall.ports[0]) as cutting:
        yield cutting
