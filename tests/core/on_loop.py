"""Requests of the core's tests that one event loop serves at the same time, as a web process does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest

from sessions_app.core.base import database, loop_connections, process_loop


def on_loop(tenant: int, *calls: Callable[[], Any]) -> list[Any]:
    """The calls' results or exceptions, in their order."""
    if not database.has_loop_calls():
        pytest.skip("SQLite has no connections for loops")

    async def main() -> list[Any]:
        process_loop.adopt()
        serving = [database.serve_on_loop(tenant, None, copy_context(), call) for call in calls]
        try:
            return await asyncio.gather(*serving, return_exceptions=True)
        finally:
            await process_loop.release()
            loop_connections.close_all()

    return asyncio.run(main())
