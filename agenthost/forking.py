"""Several processes of one role, forked from one parent that has loaded their code.

The memory of code and configuration is shared until a process writes to it. The parent serves nothing. It has no thread,
event loop or connection; after forking it is replaced by a small program that starts it anew when a child has ended, and ends
when all children have (supervisor.py). Each child opens its own connections and has a pipe from the parent: a byte tells it to
stop, and the end of the pipe that the parent has gone.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from django.core.exceptions import ImproperlyConfigured

from agenthost import observability, supervisor
from agenthost.supervisor import Child, Parent
from sessions_app.core.base import supervision

log = logging.getLogger(__name__)

STOPPING_SIGNALS = supervisor.STOPPING_SIGNALS

_number: int | None = None


def is_child() -> bool:
    """Whether a parent of this module started this process."""
    return _number is not None


def number() -> int:
    """This process's number among its siblings, from 1; 0: it has none."""
    return _number or 0


def is_restart() -> bool:
    """Whether this process is a parent that loads the code again, while children run."""
    return supervisor.resumed is not None


def inherited_listener() -> socket.socket | None:
    """The listening socket of the running children; None if there are none."""
    parent = supervisor.resumed
    if parent is None or parent.listener < 0:
        return None
    # A copy: the parent's own stays open for a later start if this one fails.
    return socket.socket(fileno=os.dup(parent.listener))


def run(
    program: Sequence[str],
    count: int,
    work: Callable[[], int],
    *,
    check: Callable[[], int],
    listener: socket.socket | None = None,
) -> int:
    """Run ``work`` in ``count`` children until a signal; the process then ends with the first exit code that is not 0, else 0.

    Returns only if ``check`` refuses the start, with its exit code. It runs before each fork, and must close what it opens.
    ``program`` is a module and the arguments of its ``main``, which is called to start children again and must come to this
    function. The parent closes ``listener`` when the children begin to stop.
    """
    _refuse_threads()
    if refused := check():
        return refused
    _freeze()
    parent = supervisor.resumed or _new_parent(program, count, listener)
    # The supervisor gets the signals that come from now on.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPPING_SIGNALS, signal.SIGCHLD, signal.SIGHUP))
    for child in parent.due():
        try:
            _start(parent, child, work)
        except OSError as error:
            child.postpone()
            log.error("child_not_started child=%d seconds=%.1f: %s", child.number, child.pause, error.strerror)
    if listener is not None:
        listener.close()
    return parent.supervise()


def _new_parent(program: Sequence[str], count: int, listener: socket.socket | None) -> Parent:
    signal_pipe = os.pipe()
    for descriptor in signal_pipe:
        os.set_blocking(descriptor, False)
    options = sys.orig_argv[1 : sys.orig_argv.index("-m")] if "-m" in sys.orig_argv else []
    return Parent(
        [Child(number) for number in range(1, count + 1)],
        signal_pipe=signal_pipe,
        listener=-1 if listener is None else os.dup(listener.fileno()),
        interpreter=[sys.executable, *options],
        program=program,
        json_lines=observability.writes_json(),
        level=logging.getLogger(supervisor.__name__).getEffectiveLevel(),
    )


def _start(parent: Parent, child: Child, work: Callable[[], int]) -> None:
    orders, pipe = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(orders)
        os.close(pipe)
        raise
    if pid == 0:
        _leave_after(lambda: _serve(child.number, orders, (pipe, *parent.descriptors()), work))
    os.close(orders)
    child.start(pid, pipe)
    log.info("child_started child=%d child_pid=%d", child.number, pid)


def _serve(number: int, orders: int, parents_ends: Sequence[int], work: Callable[[], int]) -> int:
    """In the child."""
    _become_child(number)
    for descriptor in parents_ends:
        os.close(descriptor)
    threading.Thread(target=_obey, args=(orders,), name="parent-watch", daemon=True).start()
    return work()


def _refuse_threads() -> None:
    """A forked process has none of its parent's threads, so code that needs one would wait for ever."""
    # Also the threads of libraries that Python does not know.
    tasks = Path("/proc/self/task")
    count = len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()
    if count > 1:
        names = ", ".join(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
        raise ImproperlyConfigured(
            f"--processes: code that is loaded at the start, for example an agent's module, has started {count - 1} threads"
            f" ({names or 'of a library'}). They would be missing in forked processes. Start them at the first use, or start"
            " this role several times without --processes."
        )


def _freeze() -> None:
    """Keep the garbage collector from writing to the objects that the children share."""
    gc.collect()
    gc.freeze()


def _become_child(number: int) -> None:
    global _number
    _number = number
    signal.set_wakeup_fd(-1)
    for each in (*STOPPING_SIGNALS, signal.SIGCHLD):
        signal.signal(each, signal.SIG_DFL)
    # Until the role handles it: the parent passes it on to all children.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    observability.set_child(number)


def _leave_after(work: Callable[[], int]) -> NoReturn:
    """Run ``work`` and end this process with its exit code, without returning to the parent's code."""
    code = supervision.EXIT_CODE
    try:
        code = work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        supervision.leave(code)
    raise AssertionError


def _obey(orders: int) -> None:
    """In a child: stop as the parent says, or when it has gone."""
    order = os.read(orders, 1)
    if not order:
        log.warning("parent_gone: this process drains and ends")
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)
    if order and os.read(orders, 1) == supervisor.END:
        supervision.leave(128 + signal.SIGTERM)
