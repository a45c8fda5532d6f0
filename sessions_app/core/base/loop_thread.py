"""A thread that is an event loop: opened, run until it is stopped, and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


def serve(
    loop: asyncio.AbstractEventLoop,
    open_: Callable[[], Awaitable[None]],
    close: Callable[[], Awaitable[None]],
    ready: Callable[[BaseException | None], None],
) -> None:
    """Run the loop in this thread until it is stopped. ``ready`` is called once: with the error if ``open_`` has failed."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(open_())
    except BaseException as error:
        ready(error)
        return
    ready(None)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(close())
        loop.close()
