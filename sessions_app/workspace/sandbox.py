"""The sandbox: the bubblewrap command line of a box around a workspace's tree.

A box has user, pid, network, ipc, uts, cgroup and mount namespaces of its own. Only the workspace's tree, /tmp and /dev/shm can
be written. Programs have no capability, cannot gain one (no_new_privs), and run under the seccomp filter of `seccomp.py`.

The tree's place on the volume can be read inside the box (/proc/self/mountinfo); nothing else of the server can be.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sessions_app.workspace import paths, seccomp
from sessions_app.workspace.limits import MIB, Limits, rlimit_options
from sessions_app.workspace.outlet import ENVIRONMENT as PROXIED
from sessions_app.workspace.outlet import Outlet
from sessions_app.workspace.shell import BASHRC, BASHRC_AT

# A user of no account. If the outer identity of a user namespace is root, its processes may write what belongs to root and is
# not in a namespace, such as /proc/sys; and its files would belong to root.
DEFAULT_OWNER = 64_321
# Who a program in a box is, to itself.
INSIDE_ID = 1000
HOSTNAME = "workspace"
HOME = "/tmp/home"  # noqa: S108
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

OLDEST_BUBBLEWRAP = (0, 8, 0)
# From this version on RLIMIT_NPROC counts the processes of a user namespace; before, all of the user's.
NPROC_PER_NAMESPACE = (5, 14)

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What programs need of /etc. No file here holds a secret; /etc/ssl/private, gitconfig and the like stay outside.
_ETC = (
    "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "mime.types", "magic", "terminfo",
    "inputrc", "protocols", "services", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf",
    "pki/tls/certs", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies", "fonts", "java-11-openjdk",
    "java-17-openjdk", "java-21-openjdk", "perl", "debian_version", "os-release",
)  # fmt: skip
_OWN_ETC = {
    "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nuser:x:{INSIDE_ID}:{INSIDE_ID}:user:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": f"root:x:0:\nuser:x:{INSIDE_ID}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "resolv.conf": "",
    "hostname": f"{HOSTNAME}\n",
}
# Facts about the machine that no program needs. Some kernels do not have all of them.
_HIDDEN = ("cmdline", "kcore", "keys", "key-users", "timer_list", "sched_debug")
_SHARED_MEMORY_BYTES = 64 * MIB
_ARGUMENT_BYTES = 48 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Runs inside, first. The limit of processes counts those of the box only when it is set inside. stderr is the pipe on which the
# service waits for "ready"; whatever comes before it is why the box could not be made. `setsid` makes the program the leader of a
# session of its own, so that `kill 0` does not reach bubblewrap, and gives it its terminal.
READY = b"ready\n"
_LIMIT = 'if test "$1" != 0; then if (ulimit -u "$1") 2>/dev/null; then ulimit -u "$1"; else ulimit -p "$1"; fi || exit 125; fi; '
_ON_TERMINAL = _LIMIT + 'shift; echo ready >&2; exec setsid -c -- "$@" 2>&0'
_ON_PIPES = _LIMIT + 'shift; echo ready >&2; exec setsid -- "$@"'

# Runs outside, as root: an owner that cannot reach the tree or the root, because a directory above it is the server's alone, gets
# it at a place that it can reach, in a mount namespace that ends with the box.
_REACH = 'mount=$1; shift; while test "$1" != --; do "$mount" --bind -- "$1" "$2" || exit 125; shift 2; done; shift; exec "$@"'
_REACHABLE_AT = ("/mnt", "/media", "/srv", "/opt")


class NoSandbox(Exception):
    """A sandbox cannot be had, or one could not be started. The text is a sentence for operators, not for clients."""


class NoDirectory(NoSandbox):
    """The directory in which a program was to start is missing or closed. The text is for clients too, and names no path."""


@dataclass(frozen=True)
class Box:
    """Where and under which limits programs run.

    `tree` is the workspace's directory, seen as `mounted_at` by programs; `cwd` is where they start. `root` is the operator's
    directory with a system of its own (bash or sh, setsid); None is /usr and the like of this machine. `outlet` is the only way
    to a network; None: there is none. `machine_network` shares the network of this machine instead, loopback and metadata
    addresses included: only for operators who filter it themselves. `cgroups` is a cgroup v2 directory that is delegated to this
    process. `owner` is who runs it, and owns the tree, if this process is root.
    `group` is whose it is: of the group that takes most memory of the host, the largest box is ended when it is too much.
    `writable`: whether programs may change the tree. `mounts` are directories of the operator that programs can read, at the same
    place; the tree must not have the first segment of one.
    """

    tree: Path
    mounted_at: str
    cwd: str
    root: Path | None = None
    outlet: Outlet | None = field(default=None, compare=False)
    machine_network: bool = False
    limits: Limits = field(default_factory=Limits)
    cgroups: Path | None = None
    owner: int = DEFAULT_OWNER
    group: str = ""
    writable: bool = True
    mounts: tuple[Path, ...] = ()


def owner(uid: int = DEFAULT_OWNER) -> tuple[int, int] | None:
    """The (uid, gid) that sandboxes run as when this process is root; None otherwise: they run as this process."""
    return (uid, uid) if os.geteuid() == 0 else None


@dataclass(frozen=True)
class Command:
    """A command line to start with `descriptors` inherited and the NUL-separated `arguments` written to the pipe it reads.

    bubblewrap's options are not on the command line, because programs in the box can read that.
    """

    argv: tuple[str, ...]
    arguments: bytes
    descriptors: tuple[int, ...]


def _tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        package = "bubblewrap" if name == "bwrap" else "util-linux"
        raise NoSandbox(f"sandboxes need {name}, which is not installed; on Debian or Ubuntu: apt-get install {package}")
    return found


@functools.cache
def _version(bwrap: str) -> tuple[int, ...]:
    # S603, here and below: the commands are made in this module, and no shell reads them.
    printed = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout  # noqa: S603
    return tuple(int(number) for number in re.findall(r"\d+", printed)[:3])


@functools.cache
def _kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])


def _memory_file(stack: ExitStack, content: bytes) -> int:
    descriptor = os.memfd_create("box")
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _checked_place(box: Box) -> None:
    segments = box.mounted_at.split("/")[1:]
    if not box.mounted_at.startswith("/") or not all(segments) or {".", ".."} & set(segments) or segments[0] in paths.RESERVED:
        raise ValueError(f"mounted_at: {box.mounted_at!r} is not a place for a workspace inside a box")
    for mount in box.mounts:
        first = mount.parts[1:2]
        if not mount.is_absolute() or not first or {".", ".."} & set(mount.parts) or first[0] in {*paths.RESERVED, "tmp", "var"}:
            raise ValueError(f"mounts: {str(mount)!r} cannot be mounted in a box")
        # A client that chose this place could replace what the operator mounts.
        if first[0] == segments[0]:
            raise ValueError(f"mounted_at: {box.mounted_at!r} hides {str(mount)!r}, which the operator mounts")
    if not box.cwd.startswith("/"):
        raise ValueError(f"cwd: {box.cwd!r} is not an absolute path")


def _root(box: Box, listed: Path | None) -> Iterator[str]:
    """The read-only system below the workspace. `listed` is its root as this process sees it."""
    first = box.mounted_at.split("/")[1]
    if box.root is None or listed is None:
        yield from ("--ro-bind", "/usr", "/usr")
        for name in _SYSTEM:
            place = Path("/") / name
            if place.is_symlink():
                yield from ("--symlink", str(place.readlink()), f"/{name}")
            elif place.is_dir():
                yield from ("--ro-bind", f"/{name}", f"/{name}")
        for name in _ETC:
            yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
        return
    # Entry by entry, so that directories for the workspace and /tmp can be made beside them.
    for entry in sorted(listed.iterdir()):
        if entry.name in ("proc", "dev", "sys", "run", "tmp", first):
            continue
        if entry.is_symlink():
            yield from ("--symlink", str(entry.readlink()), f"/{entry.name}")
        elif entry.is_dir():
            yield from ("--ro-bind", str(box.root / entry.name), f"/{entry.name}")


def _environment(given: Mapping[str, str], home: str) -> Iterator[str]:
    scratch = {
        "PATH": PATH,
        "HOME": home,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    for name, value in {**scratch, **given}.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"environment: {name!r} is not the name of a variable, or its value contains NUL")
        yield from ("--setenv", name, value)


def _arguments(
    box: Box, listed: Path | None, environment: Mapping[str, str], stack: ExitStack, descriptors: list[int]
) -> Iterator[str]:
    def file(content: bytes) -> str:
        descriptors.append(_memory_file(stack, content))
        return str(descriptors[-1])

    limits = box.limits
    over_tmp = box.mounted_at == "/tmp"  # noqa: S108
    yield from ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns")
    if not box.machine_network:
        yield "--unshare-net"
    yield from ("--uid", str(INSIDE_ID), "--gid", str(INSIDE_ID), "--hostname", HOSTNAME)
    yield from (
        "--die-with-parent",
        "--cap-drop",
        "ALL",
        "--clearenv",
        *_environment({**(PROXIED if box.outlet else {}), **environment}, box.mounted_at if over_tmp else HOME),
    )
    yield from _root(box, listed)
    if box.root is None:
        for name, content in _OWN_ETC.items():
            yield from ("--perms", "0644", "--file", file(content.encode()), f"/etc/{name}")
        if box.machine_network:
            yield from ("--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf")
    yield from ("--perms", "0644", "--file", file(BASHRC.encode()), BASHRC_AT)
    yield from ("--proc", "/proc", "--dev", "/dev")
    for name in _HIDDEN:
        if (Path("/proc") / name).exists():
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
    yield from ("--perms", "1777", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm")  # noqa: S108
    if not over_tmp:
        yield from ("--perms", "1777", "--size", str(limits.temporary_bytes), "--tmpfs", "/tmp", "--dir", HOME)  # noqa: S108
    if box.root is None and box.mounted_at.split("/")[1] != "var":
        yield from ("--dir", "/var", "--symlink", "/tmp", "/var/tmp")  # noqa: S108
    for mount in box.mounts:
        yield from ("--ro-bind", str(mount), str(mount))
    yield from ("--bind" if box.writable else "--ro-bind", str(box.tree), box.mounted_at)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")
    yield from ("--chdir", box.cwd, "--seccomp", file(seccomp.program()))


def _reachable(place: Path, uid: int) -> bool:
    """Whether a user of no group but its own can search every directory above `place`."""
    for directory in place.parents:
        found = directory.stat()
        bit = stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == uid else stat.S_IXOTH
        if not found.st_mode & bit:
            return False
    return True


def _outer(box: Box) -> tuple[list[str], Box]:
    """What is run before bubblewrap, and the box with the places where bubblewrap finds its tree and root."""
    box = replace(box, tree=box.tree.resolve(), root=box.root.resolve() if box.root else None)
    argv = [_tool("prlimit"), *rlimit_options(box.limits), "--"]
    who = owner(box.owner)
    if who is None:
        return argv, box
    needed = {"tree": box.tree, **({"root": box.root} if box.root else {})}
    free = [Path(at) for at in _REACHABLE_AT if Path(at).is_dir() and not any(p.is_relative_to(at) for p in needed.values())]
    hidden = {name: place for name, place in needed.items() if not _reachable(place, who[0])}
    if len(hidden) > len(free):
        raise NoSandbox(f"user {who[0]} cannot reach {box.tree} or its root: a directory above is closed to it")
    if hidden:
        moved = dict(zip(hidden, free, strict=False))
        pairs = [str(place) for name, source in hidden.items() for place in (source, moved[name])]
        box = replace(box, tree=moved.get("tree", box.tree), root=moved.get("root", box.root))
        argv += [_tool("unshare"), "--mount", "--propagation", "private", "--"]
        argv += [_tool("sh"), "-c", _REACH, "sh", _tool("mount"), *pairs, "--"]
    uid, gid = (str(number) for number in who)
    argv += [_tool("setpriv"), "--reuid", uid, "--regid", gid, "--clear-groups", "--inh-caps=-all", "--no-new-privs", "--"]
    return argv, box


@contextmanager
def command(
    box: Box,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    arguments_from: int,
    terminal: bool,
    info_to: int | None = None,
    wait_for: int | None = None,
) -> Iterator[Command]:
    """The command that runs `argv` in `box`. Its descriptors are closed at the end of the context.

    The program begins when something can be read from `wait_for`.
    """
    _checked_place(box)
    if not argv or any("\0" in part for part in argv):
        raise ValueError("argv: at least the program's name is needed, and no part may contain NUL")
    bwrap = _tool("bwrap")
    if _version(bwrap) < OLDEST_BUBBLEWRAP:
        found, needed = (".".join(str(number) for number in version) for version in (_version(bwrap), OLDEST_BUBBLEWRAP))
        raise NoSandbox(f"bubblewrap {found} is too old; sandboxes need {needed} or newer")
    root = box.root
    outer, box = _outer(box)
    descriptors = [arguments_from]
    options = ["--args", str(arguments_from)]
    if info_to is not None:
        descriptors.append(info_to)
        options += ["--info-fd", str(info_to)]
    if wait_for is not None:
        descriptors.append(wait_for)
        options += ["--block-fd", str(wait_for)]
    # One more for bubblewrap's own process in the box.
    processes = box.limits.processes + 1 if _kernel() >= NPROC_PER_NAMESPACE else 0
    script = _ON_TERMINAL if terminal else _ON_PIPES
    inner = ["/bin/sh", "-c", script, "sh", str(processes), *argv]
    with ExitStack() as stack:
        arguments = "\0".join(_arguments(box, root, environment, stack, descriptors)).encode() + b"\0"
        if len(arguments) > _ARGUMENT_BYTES:
            raise ValueError(f"environment: {len(arguments):,} bytes; the limit is {_ARGUMENT_BYTES:,}")
        yield Command((*outer, bwrap, *options, "--", *inner), arguments, tuple(descriptors))


def _why_not(text: str) -> str:
    """A sentence for the message of bubblewrap or a tool before it."""
    line = next((line for line in reversed(text.strip().splitlines()) if line.strip()), "no message")
    reason = line.strip()[:500]
    if re.search(r"namespace|uid map|clone|unshare|setting up|newroot|pivot|mount proc", reason, re.IGNORECASE):
        reason += (
            "; unprivileged user namespaces have to be allowed: sysctl user.max_user_namespaces above 0, "
            "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0 where they exist; "
            "in a container also a seccomp profile that allows unshare and mount, and an unmasked /proc"
        )
    return reason


FAILURE_SECONDS = 50.0
"""How long `check` repeats a failure without a new attempt: a missing package may be installed meanwhile."""
_checked: dict[tuple[Path | None, int, Path | None], tuple[str | None, float]] = {}


def check(*, root: Path | None = None, uid: int = DEFAULT_OWNER, directory: Path | None = None) -> str | None:
    """Starts a box once and returns why none can be had, in one sentence; None if one can. Blocks; cached per arguments.

    `directory` is where the trees are: a box must be able to reach it.
    """
    asked = (root, uid, directory)
    fault, at = _checked.get(asked, ("", 0.0))
    if asked in _checked and (fault is None or time.monotonic() - at < FAILURE_SECONDS):
        return fault
    fault = _attempted(root, uid, directory)
    _checked[asked] = fault, time.monotonic()
    return fault


def _attempted(root: Path | None, uid: int, directory: Path | None) -> str | None:
    if sys.platform != "linux":
        return f"sandboxes need Linux; this is {platform.system()}"
    try:
        seccomp.program()
        with tempfile.TemporaryDirectory(prefix="box-", dir=directory) as made:
            tree = Path(made)
            if who := owner(uid):
                os.chown(tree, *who)
            return _tried(Box(tree, "/workspace", "/workspace", root=root, owner=uid))
    except (NoSandbox, ValueError) as failure:
        return str(failure)
    except (OSError, subprocess.SubprocessError) as failure:
        return f"a sandbox could not be tried: {failure}"


def _tried(box: Box) -> str | None:
    arguments_from, arguments_to = os.pipe()
    try:
        inside = ["/bin/sh", "-c", "echo x > here && test ! -w /usr && test $$ -lt 100 && echo works"]
        with command(box, inside, {}, arguments_from=arguments_from, terminal=False) as line:
            process = subprocess.Popen(  # noqa: S603
                line.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=line.descriptors,
                env={},
                cwd="/",
                start_new_session=True,
            )
        os.write(arguments_to, line.arguments)
    finally:
        os.close(arguments_to)
        os.close(arguments_from)
    try:
        output, errors = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "a sandbox did not start within 30 s"
    if output == b"works\n" and errors == READY:
        return None
    return f"a sandbox cannot be started: {_why_not(errors.decode(errors='replace'))}"


def failure(errors: bytes) -> NoSandbox:
    """The error for what bubblewrap printed instead of starting the program."""
    if b"Can't chdir to " in errors:
        return NoDirectory("its directory was removed or may not be entered")
    return NoSandbox(f"a sandbox could not be started: {_why_not(errors.decode(errors='replace'))}")
