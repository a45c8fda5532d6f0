"""Process roles: ``python -m agenthost.processes ROLE``.

Each role runs in the foreground, logs to stderr, drains on SIGTERM or SIGINT and then exits with 0.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, SystemCheckError
from django.db import DatabaseError, InterfaceError

from agenthost.command_line import CLOSED_PIPE, REFUSED, discard_stdout
from agenthost.env import ROLES
from agenthost.observability import report_fatal
from sessions_app.core.base import supervision

if TYPE_CHECKING:
    from agenthost.edge.connections import Limits

log = logging.getLogger("agenthost.processes")

STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
BAD_USAGE = 2
OTHER_OPEN_FILES = 256
"""Open files that a process needs besides client connections: databases, Redis, providers, the log."""


class WebServer(uvicorn.Server):
    """uvicorn with our signal handling. uvicorn's own raises the signal again at the end, so the exit code is not 0."""

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_signal = on_signal

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        before = {number: signal.signal(number, self._handle) for number in STOPPING_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.should_exit:
            # A second signal stops without draining.
            self.force_exit = True
        self.should_exit = True
        self._on_signal()


def listen() -> socket.socket:
    """The listening socket; opened first, so that an address in use stops the process before anything else starts."""
    from django.conf import settings

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
    from django.conf import settings

    from agenthost import health, security_warnings
    from agenthost.asgi import application
    from agenthost.edge.connections import Connections
    from agenthost.edge.protocol import HttpProtocol
    from agenthost.websocket import WebSocket
    from agents_app import registry
    from sessions_app.core.base import draining, process_loop

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
    server = WebServer(config, begin_to_stop)
    host, port = listener.getsockname()[:2]
    security_warnings.log_warnings()
    log.info("serving on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    async def run() -> None:
        process_loop.adopt()
        watch = supervision.task(health.watch(), "health")
        try:
            await server.serve(sockets=[listener])
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await process_loop.release()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
    log.info("drained: all responses are complete")


def _limits() -> Limits:
    """Connection limits from the settings, reduced to what the limit of open files allows."""
    from django.conf import settings

    from agenthost.edge.connections import RESERVE, Limits

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


def web() -> None:
    from django.conf import settings

    from agenthost import startup_checks
    from agenthost.worker_services import freeze_memory

    listener = listen()
    startup_checks.check()
    freeze_memory()
    serve(listener, settings.AGENTHOST_DRAIN_SECONDS)


def worker() -> None:
    from django.conf import settings

    from agenthost import startup_checks
    from agenthost.worker_services import WorkerServices
    from agents_app import registry

    stop = _stop_event()
    startup_checks.check()
    registry.look_ahead()
    services = WorkerServices(beat=False)
    services.start()
    stop.wait()
    log.info("stopping: runs have %.0f s to finish", settings.AGENTHOST_WORKER_GRACE_SECONDS)
    services.stop(settings.AGENTHOST_WORKER_GRACE_SECONDS, settings.AGENTHOST_DRAIN_SECONDS)


def beat() -> None:
    from agenthost.worker_services import Beat

    stop = _stop_event()
    service = Beat()
    service.start()
    log.info("beat is ready")
    stop.wait()
    service.stop()


def migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=1)


def embedded() -> None:
    """All roles in one process; migrates the database first."""
    from django.conf import settings
    from django.core.management import call_command

    from agenthost import data_directory
    from agenthost.worker_services import WorkerServices

    listener = listen()
    locked = data_directory.lock(settings.AGENTHOST_VAR_DIR, listener.getsockname()[1])
    call_command("migrate", interactive=False, verbosity=0)
    services = WorkerServices(beat=True)
    services.start()
    # Worker and web server stop at the same time, so that runs can end while their streams are still open.
    stopping = threading.Thread(target=services.stop, args=(settings.AGENTHOST_WORKER_GRACE_SECONDS,), name="stop-worker")

    def on_signal() -> None:
        if not stopping.is_alive() and stopping.ident is None:
            stopping.start()

    try:
        serve(listener, min(settings.AGENTHOST_DRAIN_SECONDS, settings.AGENTHOST_WORKER_GRACE_SECONDS + 5), on_signal)
    finally:
        on_signal()
        stopping.join()
        locked.close()


RUN = {"web": web, "worker": worker, "beat": beat, "migrate": migrate, "embedded": embedded}
assert tuple(RUN) == ROLES


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in RUN:
        report_fatal(f"usage: python -m agenthost.processes ROLE, with one of the roles {', '.join(ROLES)}")
        return BAD_USAGE
    os.environ["AGENTHOST_ROLE"] = arguments[0]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agenthost.settings")
    try:
        import django

        django.setup()
        _run_system_checks()
        RUN[arguments[0]]()
        sys.stdout.flush()
    except (ImproperlyConfigured, SystemCheckError, CommandError) as error:
        report_fatal(str(error))
        return REFUSED
    except (DatabaseError, InterfaceError) as error:
        from agenthost import database_diagnosis

        fault = database_diagnosis.diagnose_error(error)
        if fault is None:
            raise
        report_fatal(fault)
        return REFUSED
    except BrokenPipeError:
        discard_stdout()
        return CLOSED_PIPE
    return 0


def _run_system_checks() -> None:
    from django.core import checks

    errors = [message for message in checks.run_checks() if message.is_serious() and not message.is_silenced()]
    if errors:
        raise SystemCheckError("system checks failed:\n" + "\n".join(str(message) for message in errors))


def _stop_event() -> threading.Event:
    """Set by the first stopping signal. A second one ends the process at once; other workers take over its runs."""
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in STOPPING_SIGNALS:
        signal.signal(number, handle)
    return stop


if __name__ == "__main__":
    supervision.leave(main(sys.argv[1:]))
