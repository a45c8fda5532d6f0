"""The parent of forked processes while they run (``--processes``): a program that has loaded nothing of the server.

Two programs take turns in one process, each started by the other with exec, so the process id and the children stay:
- the supervisor (this file, run by its path) waits for children and signals, and stops the children;
- the loader (``python -m agenthost.supervisor MODULE ARGUMENTS``) loads the code, forks the children that are due
  (forking.py), and starts the supervisor again, also if loading fails.

No signal is lost in between: signals are blocked during an exec, and those that were handled are in a pipe that both have.
Imports few light modules, because each supervisor has them in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WATCHED = (*STOPPING_SIGNALS, signal.SIGCHLD, signal.SIGHUP)
STABLE_SECONDS = 30.0
"""A child that ran for so long is started again at once. One that ended earlier waits, twice as long each time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

STOP, END = b"s", b"e"
"""What a parent writes to its child: drain and exit; exit at once."""

_STATE = "AGENTHOST_PARENT_STATE_1"
"""The environment variable for the state, set for the exec only. The number changes with the format."""
_FILE = os.path.abspath(__file__)  # noqa: PTH100 -- pathlib takes 0.7 MiB
_LEVELS = {20: "INFO", 40: "ERROR"}
INFO, ERROR = _LEVELS


class Child:
    def __init__(
        self, number: int, pid: int = 0, pipe: int = -1, started: float = 0.0, pause: float = 0.0, due: float | None = 0.0
    ) -> None:
        self.number, self.pid = number, pid
        self.pipe = pipe
        """The end that the parent writes to."""
        self.started = started
        self.pause = pause
        """Seconds before the last start; 0 for a child that was stable."""
        self.due = due
        """When it is to be started; None while it runs."""

    def start(self, pid: int, pipe: int) -> None:
        """Note that it has been started."""
        self.pid, self.pipe, self.started, self.due = pid, pipe, time.monotonic(), None

    def postpone(self) -> None:
        self.pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self.pause))
        self.due = time.monotonic() + self.pause


class Parent:
    """The state that supervisor and loader pass to each other."""

    def __init__(
        self,
        children: Sequence[Child],
        *,
        signal_pipe: Sequence[int],
        listener: int,
        interpreter: Sequence[str],
        program: Sequence[str],
        json_lines: bool,
        level: int,
    ) -> None:
        self.children = list(children)
        self.signal_pipe = tuple(signal_pipe)
        """Reader and writer: the number of each signal that was handled, as a byte."""
        self.listener = listener
        """The listening socket of webs, which children that are started later need; -1 if there is none."""
        self.interpreter, self.program = list(interpreter), list(program)
        """The interpreter and its options; the module whose ``main`` is called to load, and its arguments."""
        self.json_lines, self.level = json_lines, level
        self.signals = 0
        self.exit_code = 0

    def _dump(self) -> str:
        children = [[each.number, each.pid, each.pipe, each.started, each.pause, each.due] for each in self.children]
        names = ("signal_pipe", "listener", "interpreter", "program", "json_lines", "level")
        return json.dumps({"children": children, **{name: getattr(self, name) for name in names}}, separators=(",", ":"))

    @classmethod
    def inherited(cls) -> Parent:
        """The state from before the exec."""
        values = json.loads(os.environ.pop(_STATE))
        parent = cls([Child(*child) for child in values.pop("children")], **values)
        parent._set_inheritable(inheritable=False)
        return parent

    def running(self) -> list[Child]:
        return [child for child in self.children if child.due is None]

    def due(self) -> list[Child]:
        """The children that are to be started now."""
        now = time.monotonic()
        return [child for child in self.children if child.due is not None and child.due <= now]

    def descriptors(self) -> list[int]:
        """The descriptors that only the parent uses."""
        listener = [self.listener] if self.listener >= 0 else []
        return [*self.signal_pipe, *listener, *(child.pipe for child in self.running())]

    # --- changing programs ---

    def supervise(self) -> NoReturn:
        """Start the supervisor in place of this program. If that fails, this program does its work."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        for stream in (sys.stdout, sys.stderr):
            # It may be closed, or in use by code that a signal has interrupted.
            with contextlib.suppress(Exception):
                stream.flush()
        try:
            self._exec([sys.executable, "-I", "-S", "-B", _FILE, *self.program])
        except (OSError, SyntaxError, ValueError) as error:
            self.log(ERROR, f"supervisor_not_started: {_described(error)}: the program that loaded the code supervises")
        self.run()

    def _load_again(self) -> None:
        """Start the loader in place of this program. Returns if that fails, or after a signal."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        self._count_signals()
        if not self.signals:
            try:
                self._exec([*self.interpreter, "-m", "agenthost.supervisor", *self.program])
            except (OSError, SyntaxError, ValueError) as error:
                self.postpone(error)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)

    def _exec(self, arguments: Sequence[str]) -> None:
        # Python would end if it could not read this file, and the children with it.
        with open(_FILE, "rb") as file:  # noqa: PTH123 -- as above
            source = file.read()
        compile(source, _FILE, "exec")
        if _STATE.encode() not in source:
            raise ValueError(f"{_FILE} is of another release: restart this role")
        self._set_inheritable(inheritable=True)
        try:
            os.execve(arguments[0], list(arguments), {**os.environ, _STATE: self._dump()})  # noqa: S606 -- there is no shell
        finally:
            self._set_inheritable(inheritable=False)

    def _set_inheritable(self, *, inheritable: bool) -> None:
        for descriptor in self.descriptors():
            os.set_inheritable(descriptor, inheritable)

    def postpone(self, error: BaseException, trace: str = "") -> None:
        """Start the due children later, because of this error."""
        for child in self.due():
            child.postpone()
            text = f"child_not_started child={child.number} seconds={child.pause:.1f}: {_described(error)}"
            self.log(ERROR, text, trace)

    # --- supervising ---

    def run(self) -> NoReturn:
        """Supervise until all children have ended after a signal, or until children are to be started."""
        signal.set_wakeup_fd(self.signal_pipe[1], warn_on_full_buffer=False)
        for number in _WATCHED:
            signal.signal(number, _in_the_pipe)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        sent = 0
        while True:
            self._count_signals()
            self._collect()
            while sent < self.signals:
                sent += 1
                self._send(STOP if sent == 1 else END)
            if self.signals and not self.running():
                self.log(INFO, f"parent_ends exit_code={self.exit_code}")
                os._exit(self.exit_code)
            if not self.signals and self.due():
                self._load_again()
            else:
                self._wait()

    def _wait(self) -> None:
        due = [child.due for child in self.children if child.due is not None]
        timeout = None if self.signals or not due else max(0.0, min(due) - time.monotonic())
        select.select([self.signal_pipe[0]], [], [], timeout)

    def _count_signals(self) -> None:
        while True:
            try:
                handled = os.read(self.signal_pipe[0], 512)
            except BlockingIOError:
                return
            self.signals += sum(number in STOPPING_SIGNALS for number in handled)
            if signal.SIGHUP in handled:
                self._pass_on(signal.SIGHUP)

    def _pass_on(self, number: int) -> None:
        """The children load their agents again. One that is started meanwhile loads them anyway."""
        for child in self.running():
            # It may have ended just now.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)

    def _send(self, order: bytes) -> None:
        if order == STOP:
            self.log(INFO, f"parent_stops children={len(self.running())}")
            if self.listener >= 0:
                # It would take connections that nobody serves.
                os.close(self.listener)
                self.listener = -1
        for child in self.running():
            # It may have ended just now.
            with contextlib.suppress(BrokenPipeError):
                os.write(child.pipe, order)

    def _collect(self) -> None:
        """Note the children that have ended. As the first process of a container the parent also gets unknown ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self.running():
                if child.pid == pid:
                    self._note_end(child, exit_code(status))

    def _note_end(self, child: Child, code: int) -> None:
        os.close(child.pipe)
        now = time.monotonic()
        if self.signals:
            if self.signals == 1 and code == 128 + signal.SIGTERM:
                # The order to stop has ended it while it started, before it could drain anything.
                code = 0
            self.exit_code = self.exit_code or code
            child.due = now
            return
        if code == 0 or now - child.started >= STABLE_SECONDS:
            child.pause, child.due = 0.0, now
        else:
            child.postpone()
        self.log(
            INFO if code == 0 else ERROR,
            f"child_ended child={child.number} child_pid={child.pid} exit_code={code}:"
            f" it is started again in {child.pause:.1f} s",
        )

    def log(self, level: int, message: str, error: str = "") -> None:
        """Write a line as the formatters of observability.py do."""
        if level < self.level:
            return
        now = time.time()
        name = _LEVELS[level]
        if self.json_lines:
            clock = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}+00:00"
            fields = {"time": clock, "level": name, "logger": "agenthost.supervisor", "message": message, "pid": os.getpid()}
            if error:
                fields["error"] = error
            line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        else:
            clock = time.strftime("%H:%M:%S", time.localtime(now))
            line = f"{clock} {name:<7} agenthost.supervisor: {message}" + (f"\n{error}" if error else "")
        # The reader of the log may have gone.
        with contextlib.suppress(OSError):
            os.write(2, (line + "\n").encode(errors="backslashreplace"))


resumed: Parent | None = None
"""In the loader: the state of the supervisor that has started it."""


def exit_code(status: int) -> int:
    """As shells report it: 128 and the signal's number for a process that a signal has ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def load(arguments: Sequence[str]) -> NoReturn:
    """The loader: call a module's ``main``, which forks the due children. It must not return."""
    global resumed
    resumed = parent = Parent.inherited()
    signal.set_wakeup_fd(parent.signal_pipe[1], warn_on_full_buffer=False)
    # The children that are started next load everything anyway, and the others keep what they have.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in STOPPING_SIGNALS:
        # At once, because code may take long to load.
        signal.signal(number, lambda *_: parent.supervise())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    try:
        import importlib

        code = importlib.import_module(arguments[0]).main(arguments[1:])
        raise RuntimeError(f"{arguments[0]} ended with code {code}")
    except BaseException as error:
        import traceback

        parent.postpone(error, _masked("".join(traceback.format_exception(error)).rstrip()))
    parent.supervise()


def _masked(text: str) -> str:
    # Before observability is loaded, no setting has been read that could be in the text.
    masked = getattr(sys.modules.get("agenthost.observability"), "masked", None)
    return str(masked(text)) if masked else text


def _described(error: BaseException) -> str:
    return _masked(f"{type(error).__name__}: {error}")


def _in_the_pipe(*_: object) -> None:
    """A signal's handler. The interpreter has written the number into the pipe."""


if __name__ == "__main__":
    if __package__:
        # The module that forking.py imports, not this second copy of it.
        from agenthost import supervisor  # noqa: PLW0406

        supervisor.load(sys.argv[1:])
    Parent.inherited().run()
