"""Process roles: ``python -m agenthost.processes ROLE [--processes N] [--queues NAMES]``.

Each role runs in the foreground, logs to stderr, drains on SIGTERM or SIGINT and then exits with 0. A process loads only what
its role serves. With ``--processes``, several processes of the role are forked from one (forking.py).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, SystemCheckError
from django.db import DatabaseError, InterfaceError

from agenthost import forking, memory, unused_imports
from agenthost.command_line import CLOSED_PIPE, REFUSED, discard_stdout
from agenthost.env import ROLES
from agenthost.observability import report_fatal
from sessions_app.core.base import supervision

log = logging.getLogger("agenthost.processes")

BAD_USAGE = 2
USAGE = (
    "usage: python -m agenthost.processes ROLE [--processes N] [--queues NAME,NAME]\n"
    f"ROLE is one of {', '.join(ROLES)}. web and worker can run as 1 to 999 processes. "
    "--queues: the queues that a worker serves, instead of AGENTHOST_QUEUES."
)


def load(role: str) -> None:
    """Import and check what the role needs. Starts nothing and opens no connection, so that processes can be forked then."""
    os.environ["AGENTHOST_ROLE"] = role
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agenthost.settings")
    with unused_imports.left_out(), memory.without_collections():
        _load(role)


def _load(role: str) -> None:
    import django
    from django.conf import settings

    django.setup()
    _run_system_checks()
    if role in ("web", "embedded"):
        from agenthost import celery, web_server  # noqa: F401
        from agents_app import preloading

        preloading.load(runs=False)
        celery.load_publisher()
    if role in ("worker", "embedded"):
        from agenthost import worker_services
        from agents_app import preloading

        preloading.load(runs=True)
        worker_services.load()
    if role in ("terminals", "embedded"):
        import sessions_app.core.terminals.service  # noqa: F401
    if role == "beat":
        from agenthost import beat  # noqa: F401
    if settings.AGENTHOST_METRICS_PORT:
        import agenthost.metrics.server
    if settings.AGENTHOST_TRACING is not None:
        import agenthost.tracing.process  # noqa: F401


def _observe() -> None:
    """Serve this process's metrics and send its traces, if the operator wants them."""
    from django.conf import settings

    if settings.AGENTHOST_METRICS_PORT:
        from agenthost.metrics import server

        server.start(settings.AGENTHOST_ROLE)
    if settings.AGENTHOST_TRACING is not None:
        from agenthost.tracing import process

        process.start(settings.AGENTHOST_ROLE)


def _send_last_traces() -> None:
    from django.conf import settings

    if settings.AGENTHOST_TRACING is not None:
        from agenthost.tracing import process

        process.stop()


def web(count: int) -> int:
    from django.conf import settings

    from agenthost import startup_checks, web_server
    from agenthost.agents_reload import Reloader

    # First, so that an address in use stops the process before anything else starts.
    listener = web_server.listen()

    def serve() -> None:
        if not forking.is_child():
            startup_checks.check()
        memory.freeze()
        _observe()
        Reloader(watches=False, role="web").start()
        web_server.serve(listener, settings.AGENTHOST_DRAIN_SECONDS)
        _send_last_traces()

    return _run("web", serve, count, check=startup_checks.check_before_forking, listener=listener)


def worker(count: int) -> int:
    from django.conf import settings

    from agenthost import startup_checks, worker_services
    from agenthost.agents_reload import Reloader
    from agents_app import registry

    def work() -> None:
        stop = _stop_event()
        if not forking.is_child():
            startup_checks.check()
        _observe()
        registry.look_ahead()
        Reloader(watches=False, role="worker").start()
        services = worker_services.WorkerServices(settings.AGENTHOST_QUEUES)
        services.start()
        stop.wait()
        log.info("stopping: runs have %.0f s to finish", settings.AGENTHOST_WORKER_GRACE_SECONDS)
        services.stop(settings.AGENTHOST_WORKER_GRACE_SECONDS, settings.AGENTHOST_DRAIN_SECONDS)
        _send_last_traces()

    return _run("worker", work, count, check=startup_checks.check_before_forking)


def beat() -> None:
    from agenthost.beat import Beat

    stop = _stop_event()
    _observe()
    service = Beat(apart=True)
    service.start()
    log.info("beat is ready")
    stop.wait()
    service.stop()


def terminals() -> None:
    from django.conf import settings

    from agenthost import role_health, startup_checks
    from sessions_app.core.terminals.service import Service

    if not settings.AGENTHOST_TERMINALS:
        raise ImproperlyConfigured("AGENTHOST_TERMINALS: must be on in all processes for the role terminals.")
    stop = _stop_event()
    startup_checks.check()
    _observe()
    service = Service(on_renewed=partial(role_health.write, settings.AGENTHOST_VAR_DIR))
    service.start()
    stop.wait()
    log.info("stopping: all terminals end")
    service.stop()


def migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=1)


def embedded() -> None:
    """All roles in one process; migrates the database first."""
    from django.conf import settings
    from django.core.management import call_command

    from agenthost import data_directory, web_server
    from agenthost.agents_reload import Reloader
    from agenthost.worker_services import WorkerServices
    from sessions_app.core.terminals.service import Service

    listener = web_server.listen()
    _observe()
    locked = data_directory.lock(settings.AGENTHOST_VAR_DIR, listener.getsockname()[1])
    call_command("migrate", interactive=False, verbosity=0)
    services = WorkerServices()
    services.start()
    Reloader(watches=True).start()
    terminal_service = Service() if settings.AGENTHOST_TERMINALS else None
    if terminal_service is not None:
        terminal_service.start()

    # Worker and web server stop at the same time, so that runs can end while their streams are still open.
    def stop() -> None:
        if terminal_service is not None:
            terminal_service.stop()
        services.stop(settings.AGENTHOST_WORKER_GRACE_SECONDS)

    stopping = threading.Thread(target=stop, name="stop-worker")

    def on_signal() -> None:
        if not stopping.is_alive() and stopping.ident is None:
            stopping.start()

    try:
        drain_seconds = min(settings.AGENTHOST_DRAIN_SECONDS, settings.AGENTHOST_WORKER_GRACE_SECONDS + 5)
        web_server.serve(listener, drain_seconds, on_signal)
    finally:
        on_signal()
        stopping.join()
        _send_last_traces()
        locked.close()


ONE = {"terminals": terminals, "beat": beat, "migrate": migrate, "embedded": embedded}
MANY = {"web": web, "worker": worker}
"""The roles that can run as several processes; called with their number."""
assert set(ONE | MANY) == set(ROLES)


def main(arguments: Sequence[str]) -> int:
    role, count, queues = _parsed(arguments)
    if role is None:
        report_fatal(USAGE)
        return BAD_USAGE
    if queues is not None:
        # Processes that are forked or loaded again have it too.
        os.environ["AGENTHOST_QUEUES"] = queues
        os.environ.pop("AGENTHOST_QUEUES_FILE", None)

    def run() -> int:
        load(role)
        if role in MANY:
            return MANY[role](count)
        ONE[role]()
        return 0

    # The supervisor's loader reports errors of a restart.
    return run() if forking.is_restart() else _reported(run)


def _parsed(arguments: Sequence[str]) -> tuple[str | None, int, str | None]:
    """The role, the number of processes, and the queues if they are given; the role is None if the arguments are wrong."""
    count, queues = 1, None
    match arguments:
        case [role, *options] if role in ROLES:
            pass
        case _:
            return None, 0, None
    while options:
        match options:
            case ["--processes", number, *options] if role in MANY and re.fullmatch(r"[1-9][0-9]{0,2}", number, re.ASCII):
                count = int(number)
            case ["--queues" | "-Q", names, *options] if role == "worker" and names.strip(", "):
                queues = names
            case _:
                return None, 0, None
    return role, count, queues


def _run(
    role: str, work: Callable[[], object], count: int, *, check: Callable[[], object], listener: socket.socket | None = None
) -> int:
    """Run ``work`` in this process, or in several that are forked from it. Returns the exit code."""
    if count == 1:
        work()
        return 0

    def reported(function: Callable[[], object]) -> int:
        def run() -> int:
            function()
            return 0

        return _reported(run)

    program = ("agenthost.processes", role, "--processes", str(count))
    return forking.run(program, count, partial(reported, work), check=partial(reported, check), listener=listener)


def _reported(run: Callable[[], int]) -> int:
    """The exit code; an error that an operator can fix is reported in one line."""
    try:
        code = run()
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
    return code


def _run_system_checks() -> None:
    from django.core import checks
    from django.core.checks.commands import migrate_and_makemigrations_autodetector

    # It checks Django's own commands, and would load them and all migrations' code in every process.
    checks.registry.registry.registered_checks.discard(migrate_and_makemigrations_autodetector)
    messages = [message for message in checks.run_checks() if not message.is_silenced()]
    for message in messages:
        if message.level == checks.WARNING:
            log.warning("%s %s", message.msg, message.hint or "")
    errors = [message for message in messages if message.is_serious()]
    if errors:
        raise SystemCheckError("system checks failed:\n" + "\n".join(str(message) for message in errors))


def _stop_event() -> threading.Event:
    """Set by the first stopping signal. A second one ends the process at once; other workers take over its runs."""
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        # The parent repeats a signal that the whole process group or container got. It ends a child itself.
        if stop.is_set() and not forking.is_child():
            os._exit(128 + number)
        stop.set()

    for number in forking.STOPPING_SIGNALS:
        signal.signal(number, handle)
    return stop


if __name__ == "__main__":
    supervision.leave(main(sys.argv[1:]))
