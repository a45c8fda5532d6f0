"""Several processes of one role, forked from one parent that has loaded their code.

The memory of code and configuration is shared until a process writes to it. The parent serves nothing. It has no thread,
event loop or connection; it starts a child again that has ended, and ends when its children have. Each child opens its own
connections and has a pipe from the parent: a byte tells it to stop, and the end of the pipe that the parent has gone.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from django.core.exceptions import ImproperlyConfigured

from agenthost import observability
from sessions_app.core.base import supervision

log = logging.getLogger(__name__)

STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STABLE_SECONDS = 30.0
"""A child that ran for so long is started again at once. One that ended earlier waits, twice as long each time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

_STOP, _END = b"s", b"e"
"""What a parent writes to its child: drain and exit; exit at once."""

_number: int | None = None


def is_child() -> bool:
    """Whether a parent of this module started this process."""
    return _number is not None


def run(count: int, work: Callable[[], int], *, check: Callable[[], int], on_stop: Callable[[], object]) -> int:
    """Run ``work`` in ``count`` children until a signal; returns the first exit code of a child that is not 0, else 0.

    ``check`` runs first, in a child of its own, because it opens connections; if its exit code is not 0, nothing is started.
    ``on_stop`` is called in the parent when the children begin to stop.
    """
    _refuse_threads()
    _freeze()
    if refused := _checked(check):
        return refused
    return _Parent(count, work, on_stop).run()


@dataclass
class _Child:
    number: int
    pid: int = 0
    pipe: int = -1
    """The end that the parent writes to."""
    started: float = 0.0
    pause: float = 0.0
    """Seconds before the last start; 0 for a child that was stable."""
    due: float | None = 0.0
    """When it is to be started; None while it runs."""


@dataclass
class _Parent:
    count: int
    work: Callable[[], int]
    on_stop: Callable[[], object]
    children: list[_Child] = field(default_factory=list)
    signals: int = 0
    exit_code: int = 0

    def run(self) -> int:
        self.children = [_Child(number) for number in range(1, self.count + 1)]
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        # Python handles a signal between two statements; the pipe ends a wait that began in between.
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in STOPPING_SIGNALS:
            signal.signal(number, self._count_signal)
        told = 0
        while True:
            self._collect()
            while told < self.signals:
                told += 1
                self._tell(_STOP if told == 1 else _END)
            if self.signals:
                if all(child.due is not None for child in self.children):
                    log.info("parent_ends exit_code=%d", self.exit_code)
                    return self.exit_code
            else:
                self._start_due((reader, writer))
            self._wait(reader)

    def _count_signal(self, *_: object) -> None:
        self.signals += 1

    def _wait(self, reader: int) -> None:
        due = [child.due for child in self.children if child.due is not None]
        timeout = None if self.signals or not due else max(0.0, min(due) - time.monotonic())
        select.select([reader], [], [], timeout)
        while True:
            try:
                if not os.read(reader, 512):
                    return
            except BlockingIOError:
                return

    def _tell(self, order: bytes) -> None:
        if order == _STOP:
            self.on_stop()
            log.info("parent_stops children=%d", sum(child.due is None for child in self.children))
        for child in self.children:
            if child.due is None:
                # It may have ended just now.
                with contextlib.suppress(BrokenPipeError):
                    os.write(child.pipe, order)

    def _start_due(self, own: tuple[int, int]) -> None:
        for child in self.children:
            if child.due is not None and child.due <= time.monotonic():
                try:
                    self._start(child, own)
                except OSError as error:
                    child.pause = _longer(child.pause)
                    child.due = time.monotonic() + child.pause
                    log.error("child_not_started child=%d seconds=%.1f: %s", child.number, child.pause, error.strerror)

    def _start(self, child: _Child, own: tuple[int, int]) -> None:
        orders, pipe = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(orders)
            os.close(pipe)
            raise
        if pid == 0:
            parents_ends = (*own, pipe, *(other.pipe for other in self.children if other.due is None))
            _leave_after(lambda: self._serve(child.number, orders, parents_ends))
        os.close(orders)
        child.pid, child.pipe, child.started, child.due = pid, pipe, time.monotonic(), None
        log.info("child_started child=%d child_pid=%d", child.number, pid)

    def _serve(self, number: int, orders: int, parents_ends: Sequence[int]) -> int:
        """In the child."""
        _become_child(number)
        for descriptor in parents_ends:
            os.close(descriptor)
        threading.Thread(target=_obey, args=(orders,), name="parent-watch", daemon=True).start()
        return self.work()

    def _collect(self) -> None:
        """Note the children that have ended. As the first process of a container the parent also gets unknown ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self.children:
                if child.due is None and child.pid == pid:
                    self._note_end(child, _exit_code(status))

    def _note_end(self, child: _Child, code: int) -> None:
        os.close(child.pipe)
        now = time.monotonic()
        if self.signals:
            if self.signals == 1 and code == 128 + signal.SIGTERM:
                # The order to stop has ended it while it started, before it could drain anything.
                code = 0
            self.exit_code = self.exit_code or code
            child.due = now
            return
        stable = code == 0 or now - child.started >= STABLE_SECONDS
        child.pause = 0.0 if stable else _longer(child.pause)
        child.due = now + child.pause
        log.log(
            logging.INFO if code == 0 else logging.ERROR,
            "child_ended child=%d child_pid=%d exit_code=%d: it is started again in %.1f s",
            child.number,
            child.pid,
            code,
            child.pause,
        )


def _longer(pause: float) -> float:
    return min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause))


def _exit_code(status: int) -> int:
    """As shells report it: 128 and the signal's number for a process that a signal has ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


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


def _checked(check: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        _leave_after(check)
    return _exit_code(os.waitpid(pid, 0)[1])


def _become_child(number: int) -> None:
    global _number
    _number = number
    signal.set_wakeup_fd(-1)
    for each in (*STOPPING_SIGNALS, signal.SIGCHLD):
        signal.signal(each, signal.SIG_DFL)
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
    if order and os.read(orders, 1) == _END:
        supervision.leave(128 + signal.SIGTERM)
