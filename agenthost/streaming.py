"""Sends responses whose bodies are produced over time, each in the task of its request.

Most streams are idle, so a stream holds no task, timer or request of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agenthost.guard import DISCONNECT, DROP, WRITE, Receive, Scope, Send
from sessions_app.aap.views import Stream

_UNREAD_SECONDS = 0.5
"""How long the end of a response may wait for a client that reads nothing, after its key was revoked or expired."""


async def send_body(stream: Stream, receive: Receive, send: Send, scope: Scope) -> None:
    """Send the body as it is produced, until it ends or the client disconnects."""
    extensions = scope.get("extensions", {})
    sending = _Sending(extensions[DROP]["call"] if DROP in extensions else None)
    stream.on_key_end(sending.key_has_ended)
    if WRITE in extensions:
        stream.write_with(extensions[WRITE]["call"])
    waiting = None
    if DISCONNECT in extensions:
        extensions[DISCONNECT]["call"](sending.disconnect)
    else:
        waiting = asyncio.create_task(_wait_for_disconnect(receive, sending))
    try:
        async for chunk in stream.body:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except asyncio.CancelledError:
        if not sending.has_taken_cancellation():
            raise
    finally:
        sending.end()
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait([waiting])


async def _wait_for_disconnect(receive: Receive, sending: _Sending) -> None:
    """For servers without the extension."""
    while (await receive())["type"] != "http.disconnect":
        pass
    sending.disconnect()


class _Sending:
    """Ends the sending of one response from outside. Made in the task that sends it."""

    __slots__ = ("_disconnected", "_drop", "_task", "_timer")

    def __init__(self, drop: Callable[[], object] | None) -> None:
        self._task = asyncio.current_task()
        self._drop = drop
        self._timer: asyncio.TimerHandle | None = None
        self._disconnected = False

    def disconnect(self) -> None:
        """Cancel the task, once: it waits for the next chunk, or for the client to read."""
        if self._task is not None and not self._disconnected:
            self._disconnected = True
            self._task.cancel()

    def has_taken_cancellation(self) -> bool:
        """Whether the task was cancelled by ``disconnect`` alone, and not also by the server's shutdown."""
        return self._disconnected and self._task is not None and not self._task.uncancel()

    def key_has_ended(self) -> None:
        """Drop the client if it does not read the end of its response."""
        if self._drop is not None and self._task is not None:
            self._timer = asyncio.get_running_loop().call_later(_UNREAD_SECONDS, self._drop)

    def end(self) -> None:
        self._task = None
        if self._timer is not None:
            self._timer.cancel()
