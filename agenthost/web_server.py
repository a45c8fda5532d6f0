"""The HTTP server of the roles web and embedded: listening socket, uvicorn, connection limits."""

from __future__ import annotations

import asyncio
import functools
import logging
import resource
import select
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast

import uvicorn
import uvicorn.lifespan.on
import uvicorn.loops.uvloop
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from agenthost import forking, health, security_warnings, wake_ups
from agenthost.asgi import application
from agenthost.edge.connections import RESERVE, Connections, Limits
from agenthost.edge.protocol import HttpProtocol
from agenthost.websocket import WebSocket
from agents_app import registry
from sessions_app.core.base import draining, process_loop, supervision

log = logging.getLogger(__name__)

OTHER_OPEN_FILES = 256
"""Open files that a process needs besides client connections: databases, Redis, providers, the log."""
_MOST_ACCEPT_ROUNDS = 1000
"""A server that stops closes its socket in the end, even if connections keep coming."""


class WebServer(uvicorn.Server):
    """uvicorn with our signal handling. uvicorn's own raises the signal again at the end, so the exit code is not 0."""

    def __init__(self, config: uvicorn.Config, connections: Connections, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._connections = connections
        self._on_signal = on_signal

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        before = {number: signal.signal(number, self._handle) for number in forking.STOPPING_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._connections.ending = True
        await _accept_waiting(sockets or [])
        await super().shutdown(sockets)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.should_exit:
            if forking.is_child():
                # The parent repeats a signal that the whole process group or container got. It ends a child itself.
                return
            # A second signal stops without draining.
            self.force_exit = True
        self.should_exit = True
        self._on_signal()


async def _accept_waiting(listeners: list[socket.socket]) -> None:
    """Let the loop accept the connections that the kernel has established already. With the socket they would be reset, and
    a proxy does not repeat a request that it may have sent."""
    poll = select.poll()
    for listener in listeners:
        poll.register(listener, select.POLLIN)
    for _ in range(_MOST_ACCEPT_ROUNDS):
        if not poll.poll(0):
            return
        await asyncio.sleep(0)


def listen() -> socket.socket:
    """The listening socket; opened first, so that an address in use stops the process before anything else starts."""
    if inherited := forking.inherited_listener():
        return inherited
    host, port = settings.AGENTHOST_HOST, settings.AGENTHOST_PORT
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ImproperlyConfigured(
            f"AGENTHOST_HOST, AGENTHOST_PORT: cannot listen on {host} port {port}: {error.strerror}."
        ) from None


def serve(listener: socket.socket, drain_seconds: float, on_signal: Callable[[], None] = lambda: None) -> None:
    """Serve HTTP until a signal, then until the open responses are complete or ``drain_seconds`` are over."""
    registry.look_ahead()

    def begin_to_stop() -> None:
        draining.start()
        on_signal()

    connections = Connections(_limits())
    config = uvicorn.Config(
        application,
        loop="uvloop",
        # A factory for the protocol class, called for each connection.
        http=cast(Any, functools.partial(HttpProtocol, open_connections=connections)),
        ws=WebSocket,
        ws_max_size=settings.AGENTHOST_AHP_MAX_FRAME_BYTES,
        ws_ping_interval=settings.AGENTHOST_AHP_PING_SECONDS,
        ws_ping_timeout=settings.AGENTHOST_AHP_PING_SECONDS,
        # Frames are small and encoded once for all readers. Compressing them per connection would cost more than the rest.
        ws_per_message_deflate=False,
        lifespan="on",
        interface="asgi3",
        # The guard writes the access log, without query strings.
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=settings.AGENTHOST_PROXIES,
        timeout_keep_alive=max(1, round(settings.AGENTHOST_IDLE_SECONDS)),
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    server = WebServer(config, connections, begin_to_stop)
    host, port = listener.getsockname()[:2]
    security_warnings.log_warnings()
    log.info("serving on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def run() -> None:
        process_loop.adopt()
        watch = supervision.task(health.watch(), "health")
        publisher = wake_ups.publish_from(asyncio.get_running_loop())
        try:
            await server.serve(sockets=[listener])
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            if publisher is not None:
                wake_ups.stop()
                await publisher.close()
            await process_loop.release()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
    log.info("drained: all responses are complete")


def _limits() -> Limits:
    """Connection limits from the settings, reduced to what the limit of open files allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.AGENTHOST_CONNECTIONS + RESERVE + OTHER_OPEN_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    connections = settings.AGENTHOST_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < needed:
        connections = max(1, soft - RESERVE - OTHER_OPEN_FILES)
        log.warning(
            "AGENTHOST_CONNECTIONS is %d, but the limit of open files (ulimit -n) is %d: at most %d connections are accepted",
            settings.AGENTHOST_CONNECTIONS,
            soft,
            connections,
        )
    return Limits(
        connections=connections,
        per_address=settings.AGENTHOST_CONNECTIONS_PER_ADDRESS,
        head_bytes=settings.AGENTHOST_HEADER_BYTES,
        head_seconds=settings.AGENTHOST_HEADER_SECONDS,
        send_seconds=settings.AGENTHOST_SEND_SECONDS,
    )
