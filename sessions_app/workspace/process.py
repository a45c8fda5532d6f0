"""Starting programs in boxes, and their end. On a pseudo-terminal: pty.py; with pipes: `start_piped` here."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from sessions_app.workspace.cgroup import Cgroup
from sessions_app.workspace.outlet import NoOutlet, Outlet, listener_in
from sessions_app.workspace.sandbox import READY, Box, Command, NoSandbox, command, failure, owner
from sessions_app.workspace.waiting import Waiter
from sessions_app.workspace.watchdog import Watched, watchdog

START_SECONDS = 30.0
READ_BYTES = 64 * 1024
WRITE_BYTES = 16 * 1024
_ERRORS_BYTES = 8 * 1024
# Programs of boxes yield to the server, and the kernel kills them first when memory runs out.
_NICE = 5
_OUT_OF_MEMORY_SCORE = b"700"

# ioctl PIDFD_GET_INFO: struct pidfd_info of 64 bytes, its mask first and the wait status in its last 4 bytes.
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 8


def closed(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _status_of(pidfd: int) -> int | None:
    """The wait status of an ended process that another one has waited for. None: the kernel (before 6.15) does not report it."""
    try:
        answer = fcntl.ioctl(pidfd, _PIDFD_GET_INFO, struct.pack("<Q56x", _PIDFD_INFO_EXIT))
    except OSError:
        return None
    (mask,), (status,) = struct.unpack_from("<Q", answer), struct.unpack_from("<i", answer, 60)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


def _exit_code(reported: int, status: int | None) -> int | None:
    """The exit code; None if the program died of a signal.

    bubblewrap reports 128 + n both for an exit with that code and for signal n. If the kernel does not report which it was, n is
    taken for a signal, apart from SIGINT: a shell that ends after an interrupted command exits with 130.

    A status that does not fit what bubblewrap reported is another process's: a program in the background, whose parent had ended
    before anyone looked for it.
    """
    if status is not None and _shown_by_shells(status) == reported:
        return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None
    if reported < 0 or (128 < reported <= 128 + signal.NSIG and reported != 128 + signal.SIGINT):
        return None
    return reported


def _shown_by_shells(status: int) -> int:
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


class Stream:
    """One descriptor of a program: what it prints, or its input. The descriptor is closed by `close`."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._waiter = Waiter(descriptor)
        self._held = b""

    def unread(self, data: bytes) -> None:
        self._held = data

    async def read(self) -> bytes:
        """What can be read, at most READ_BYTES; waits for the first byte. b"" at the end."""
        parts = [self._held] if self._held else []
        size, self._held = len(self._held), b""
        while not self._waiter.stopped and size < READ_BYTES:
            try:
                part = os.read(self.descriptor, READ_BYTES - size)
            except BlockingIOError:
                if parts:
                    break
                await self._waiter.readable()
                continue
            except OSError as error:
                # A terminal whose programs have all ended.
                if error.errno != errno.EIO:
                    raise
                break
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    @property
    def closed(self) -> bool:
        return self._waiter.stopped

    async def write(self, data: bytes) -> None:
        """Writes all of `data`; waits while the program does not read. Raises ConnectionError after the end."""
        view = memoryview(data)
        while view:
            if self._waiter.stopped:
                raise ConnectionError("the program has ended")
            try:
                written = os.write(self.descriptor, view[:WRITE_BYTES])
            except BlockingIOError as error:
                if self._hung_up():
                    raise ConnectionError("the program has ended") from error
                await self._waiter.writable()
                continue
            except OSError as error:
                raise ConnectionError("the program has ended") from error
            view = view[written:]

    def _hung_up(self) -> bool:
        """Whether nobody has the other side. A full terminal answers "try again" even then."""
        poll = select.poll()
        poll.register(self.descriptor, 0)
        return bool(poll.poll(0))

    async def close(self) -> None:
        if self._waiter.stopped:
            return
        await self._waiter.stop()
        closed(self.descriptor)


class BoxProcess:
    """The processes of one box, from bubblewrap on. Made by `spawned`; `close` must be called."""

    def __init__(self, box: Box, bubblewrap: subprocess.Popen[bytes], cgroup: Cgroup | None) -> None:
        self.box = box
        self.pid = bubblewrap.pid
        self._bubblewrap = bubblewrap
        self._cgroup = cgroup
        self._end = os.pidfd_open(self.pid)
        # The box's init: its end is that of every process in the box.
        self._init: int | None = None
        self._init_pid = 0
        self._program: int | None = None
        self._killed = False
        self._killed_for: str | None = None
        self._watched: Watched | None = None
        self._outlet: Outlet | None = None
        self._ended: asyncio.Task[int | None] = asyncio.get_running_loop().create_task(self._until_ended())

    @property
    def killed_for(self) -> str | None:
        """Why the sandbox was killed by the watchdog or for its memory, in one sentence; None if it was not."""
        return self._killed_for

    async def connect(self, init: int, outlet: Outlet) -> NoOutlet | None:
        """Gives the box, whose init has the pid `init`, its way out before its program begins. Returns why that failed."""
        try:
            listener = await listener_in(init, owner(self.box.owner))
        except NoOutlet as error:
            return error
        if self._ended.done():
            # Nobody would close what is opened here.
            listener.close()
            return NoOutlet("its sandbox has ended")
        self._outlet = outlet
        outlet.open(listener)
        return None

    def begun(self, init: int) -> None:
        """The box works; `init` is the pid of its init."""
        if self._ended.done():
            # A short program, which ended before it was seen to begin: nobody would take back what is made here.
            return
        self._init_pid = init
        with contextlib.suppress(ProcessLookupError):
            self._init = os.pidfd_open(self._init_pid)
            with contextlib.suppress(OSError, ValueError, IndexError):
                children = Path(f"/proc/{self._init_pid}/task/{self._init_pid}/children").read_text()
                self._program = os.pidfd_open(int(children.split()[0]))
        self._watched = watchdog().watch(self.box, self._init_pid, self._kill_for)

    def awake(self) -> None:
        """Input is given to the program: the watchdog looks soon."""
        if self._watched is not None:
            self._watched.awake()

    def _kill_for(self, reason: str) -> None:
        if not self._ended.done() and self._killed_for is None:
            self._killed_for = reason
            self.kill()

    def kill(self) -> None:
        """Kills every process of the sandbox. Returns at once; `wait` returns when they are gone. Safe to repeat."""
        if self._ended.done():
            return
        self._killed = True
        self._kill_all()

    def _kill_all(self) -> None:
        if self._cgroup is not None:
            self._cgroup.kill()
        for pidfd in (self._init, self._end):
            if pidfd is not None and pidfd >= 0:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    async def wait(self) -> int | None:
        """The exit code; None if the program died of a signal or was killed. Returns when no process of the box is left."""
        return await asyncio.shield(self._ended)

    async def _until_ended(self) -> int | None:
        try:
            await Waiter(self._end).readable()
            # It has ended: this does not block.
            reported = self._bubblewrap.wait()
            status = _status_of(self._program) if self._program is not None else None
            if self._init is not None:
                # Programs in the background may be left.
                self._kill_all()
                await Waiter(self._init).readable()
                # Its parent, bubblewrap, is gone. Where this process inherits orphans (as process 1 of a container), it waits.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self._init_pid, os.WNOHANG)  # noqa: ASYNC222
            if self._cgroup is not None:
                if self._cgroup.out_of_memory() and self._killed_for is None:
                    self._killed_for = "memory: the limit of the sandbox was reached and the kernel ended a program"
                self._cgroup.remove()
            return None if self._killed else _exit_code(reported, status)
        finally:
            if self._watched is not None:
                self._watched.stop()
            if self._outlet is not None:
                self._outlet.close()
            closed(self._end, *(pidfd for pidfd in (self._init, self._program) if pidfd is not None))
            self._init = self._program = None
            self._end = -1

    async def close(self) -> None:
        """Kills what still runs and waits for its end. Safe to repeat."""
        self.kill()
        await self.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class _Owned:
    """Descriptors that are closed once each, and never again: by then the number may be another one's."""

    def __init__(self, *descriptors: int) -> None:
        self._open = set(descriptors)

    def close(self, *descriptors: int) -> None:
        mine = self._open & set(descriptors)
        self._open -= mine
        closed(*mine)

    def close_all(self) -> None:
        self.close(*self._open)


async def launched(
    box: Box, argv: Sequence[str], environment: Mapping[str, str], *, child: tuple[int, int, int], errors: Stream, terminal: bool
) -> BoxProcess:
    """Starts `argv` in `box` and waits until it runs.

    `child` are the program's descriptors, which are closed here; `errors` reads from the third. Must run on a thread that lives
    as long as the box: the kernel kills a box when the thread that started it ends. Raises NoSandbox if the box could not be
    made, with what bubblewrap printed.
    """
    arguments_from, arguments_to = os.pipe()
    info_from, info_to = os.pipe()
    go_from, go_to = os.pipe()
    owned = _Owned(arguments_from, arguments_to, info_from, info_to, go_from, go_to, *child)
    cgroup: Cgroup | None = None
    process: BoxProcess | None = None
    try:
        with command(
            box,
            argv,
            environment,
            arguments_from=arguments_from,
            terminal=terminal,
            info_to=info_to,
            wait_for=None if box.outlet is None else go_from,
        ) as line:
            if box.cgroups is not None:
                cgroup = Cgroup(box.cgroups, box.limits)
            bubblewrap = _popen(line, child)
            process = BoxProcess(box, bubblewrap, cgroup)
        owned.close(arguments_from, info_to, go_from, *child)
        _yielding(bubblewrap.pid)
        if cgroup is not None:
            cgroup.add(bubblewrap.pid)
        # It waits for its arguments, so nothing of the box was there before it was in its cgroup.
        with contextlib.suppress(BrokenPipeError):
            os.write(arguments_to, line.arguments)
        owned.close(arguments_to)
        async with asyncio.timeout(START_SECONDS):
            init = await _init_of(info_from)
            no_outlet = None if box.outlet is None or not init else await process.connect(init, box.outlet)
            owned.close(go_to)
            # If bubblewrap has failed, its message is the reason.
            await _until_ready(errors)
            if no_outlet is not None:
                raise no_outlet
        process.begun(init)
    except BaseException as error:
        if process is not None:
            await process.close()
        elif cgroup is not None:
            cgroup.remove()
        if isinstance(error, TimeoutError):
            raise NoSandbox(f"a sandbox did not start within {START_SECONDS:.0f} s") from error
        if isinstance(error, OSError | NoOutlet):
            raise NoSandbox(f"a sandbox could not be started: {error}") from error
        raise
    finally:
        owned.close_all()
    return process


def _popen(line: Command, child: tuple[int, int, int]) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = child
    # vfork and exec, without Python code between them: a fork of a server with many threads and much memory is neither safe
    # nor cheap. S603: the arguments are made in sandbox.py, and no shell reads them.
    return subprocess.Popen(  # noqa: S603
        line.argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=line.descriptors,
        env={},
        cwd="/",
        start_new_session=True,
        umask=0o022,
    )


def _yielding(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_bytes(_OUT_OF_MEMORY_SCORE)


async def _init_of(information_from: int) -> int:
    """The pid of the box's init, which bubblewrap reports when the namespaces are there; 0 if it has failed before."""
    os.set_blocking(information_from, False)
    waiter = Waiter(information_from)
    reported = b""
    while not reported.rstrip().endswith(b"}"):
        await waiter.readable()
        if not (part := os.read(information_from, 4096)):
            return 0
        reported += part
    return int(json.loads(reported)["child-pid"])


async def _until_ready(errors: Stream) -> None:
    printed = b""
    while len(printed) < _ERRORS_BYTES and (data := await errors.read()):
        printed += data
        before, ready, after = printed.partition(READY)
        if ready and (not before or before.endswith(b"\n")):
            errors.unread(after)
            return
    raise failure(printed)


class PipedProcess:
    """A program in a sandbox with pipes. `close` must be called. Its standard error is `errors`."""

    def __init__(self, process: BoxProcess, stdin: Stream, stdout: Stream, errors: Stream) -> None:
        self._process = process
        self.stdin = stdin
        self.stdout = stdout
        self.errors = errors
        self.pid = process.pid
        self.kill = process.kill
        self.wait = process.wait

    @property
    def killed_for(self) -> str | None:
        return self._process.killed_for

    async def close(self) -> None:
        await self._process.close()
        for stream in (self.stdin, self.stdout, self.errors):
            await stream.close()


async def start_piped(box: Box, argv: Sequence[str], environment: Mapping[str, str]) -> PipedProcess:
    """Starts `argv` in `box` with pipes for its input, output and errors. Raises NoSandbox if the sandbox could not be made.

    `environment` is added to one made from scratch, and has to come from trusted callers: it can change what is loaded.
    """
    stdin_from, stdin_to = os.pipe()
    stdout_from, stdout_to = os.pipe()
    errors_from, errors_to = os.pipe()
    streams = stdin, stdout, errors = Stream(stdin_to), Stream(stdout_from), Stream(errors_from)
    try:
        child = (stdin_from, stdout_to, errors_to)
        process = await launched(box, argv, environment, child=child, errors=errors, terminal=False)
    except BaseException:
        for stream in streams:
            await stream.close()
        raise
    return PipedProcess(process, stdin, stdout, errors)


@dataclass(frozen=True)
class Finished:
    """What a program printed, cut at the limit, and its exit code: None if it died of a signal or was killed."""

    output: bytes
    errors: bytes
    exit_code: int | None
    killed_for: str | None


async def run_piped(
    box: Box, argv: Sequence[str], environment: Mapping[str, str], *, stdin: bytes = b"", most: int = 1024 * 1024
) -> Finished:
    """Runs a program to its end, with `stdin` as its input; keeps the first `most` bytes of output and of errors."""
    process = await start_piped(box, argv, environment)

    async def kept(stream: Stream) -> bytes:
        content = bytearray()
        while data := await stream.read():
            content += data[: most - len(content)]
        return bytes(content)

    async def given() -> None:
        with contextlib.suppress(ConnectionError):
            await process.stdin.write(stdin)
        await process.stdin.close()

    try:
        output, errors, _ = await asyncio.gather(kept(process.stdout), kept(process.errors), given())
        code = await process.wait()
        return Finished(output, errors, code, process.killed_for)
    finally:
        await process.close()
