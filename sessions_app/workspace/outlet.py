"""The way out of a box: a socket that listens on the loopback of its network namespace, and that the server answers.

A box has a network namespace of its own with nothing but its loopback, so no packet leaves it. The server gets the listening
socket from a small program that joins the namespace for a moment, before the box's own program starts. Who accepts from it, in
the server's namespace, decides what is reached: for sandboxes with network that is an HTTP proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from typing import Protocol

from sessions_app.workspace.waiting import Waiter

PORT = 3128
ENVIRONMENT = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{PORT}"),
    # What programs of the box serve to each other.
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
    # Node.js from release 24 on takes no notice of the others without this.
    "NODE_USE_ENV_PROXY": "1",
}
_BACKLOG = 64
_SECONDS = 20.0

# Run by the server's Python without the server's code, because `setns` into a user namespace needs a process with one thread. Who
# made a namespace may join it: root, or in a container whose root may not, the user as which the box runs.
_HELPER = f"""
import ctypes, fcntl, os, socket, sys
pid, uid, gid, out = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
def join(namespace, kind):
    if libc.setns(namespace, kind):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def network():
    return os.open(f"/proc/{{pid}}/ns/net", os.O_RDONLY)
try:
    join(network(), 0x40000000)
except OSError:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    found = network()
    join(fcntl.ioctl(found, 0xB701), 0x10000000)
    join(found, 0x40000000)
listener = socket.socket()
listener.setsockopt(socket.IPPROTO_IP, 15, 1)
listener.bind(("127.0.0.1", {PORT}))
listener.listen({_BACKLOG})
socket.send_fds(socket.socket(fileno=out), [b"x"], [listener.fileno()])
"""


class NoOutlet(Exception):
    """The box cannot get its way out. The text is a sentence for operators."""


class Outlet(Protocol):
    """Answers what the programs of one box connect to."""

    def open(self, listener: socket.socket) -> None:
        """Serve the socket, which is now this object's. Called once, on the loop, before the box's program starts."""

    def close(self) -> None:
        """The box has ended. Called once, on the loop, if `open` was."""


async def listener_in(init: int, owner: tuple[int, int] | None) -> socket.socket:
    """A socket that listens inside the box whose init has this pid. `owner`: as whom the box runs, if that is not this process.

    Raises NoOutlet.
    """
    uid, gid = owner or (0, 0)
    here, there = socket.socketpair()
    here.settimeout(0)
    waiter = Waiter(here.fileno())
    helper: subprocess.Popen[bytes] | None = None
    try:
        with there:
            helper = _started(init, uid, gid, there.fileno())
        return await _received(here, waiter, helper)
    finally:
        await waiter.stop()
        here.close()
        if helper is not None:
            with contextlib.suppress(OSError):
                helper.kill()
            # It has been killed: this does not block for long.
            helper.wait()
            assert helper.stderr is not None
            helper.stderr.close()


def _started(*numbers: int) -> subprocess.Popen[bytes]:
    # S603: the arguments are numbers and this module's own text.
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-S", "-c", _HELPER, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[numbers[-1]],
        env={},
        cwd="/",
    )


async def _received(here: socket.socket, waiter: Waiter, helper: subprocess.Popen[bytes]) -> socket.socket:
    try:
        await asyncio.wait_for(waiter.readable(), _SECONDS)
    except TimeoutError:
        raise NoOutlet(f"its network could not be connected within {_SECONDS:.0f} s") from None
    _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
    if not descriptors:
        # It has ended.
        printed = helper.stderr.read().decode(errors="replace").strip() if helper.stderr else ""
        raise NoOutlet(f"its network could not be connected: {printed.rpartition(chr(10))[2][:300] or 'no reason given'}")
    listener = socket.socket(fileno=descriptors[0])
    listener.settimeout(0)
    return listener
