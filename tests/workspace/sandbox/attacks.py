"""Attempts to leave a box, run inside one by `python3 attacks.py` with facts in facts.json. Prints a JSON object: their outcomes.

An attempt that gets somewhere returns what it got. One that is refused raises OSError; its error must be among those that the
attempt names, so that an attempt that fails for another reason does not pass for a refusal.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import stat
import struct
from collections.abc import Callable
from typing import Any

Attempt = Callable[[dict[str, Any]], Any]
ATTEMPTS: dict[str, tuple[Attempt, tuple[str, ...]]] = {}

GONE = ("ENOENT",)
NO = ("EPERM",)
READ_ONLY = ("EROFS", "EACCES", "EPERM")
UNREACHABLE = ("ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL")


def attempt(*errors: str) -> Callable[[Attempt], Attempt]:
    def named(function: Attempt) -> Attempt:
        ATTEMPTS[function.__name__] = (function, errors)
        return function

    return named


def read(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return repr(file.read(200))


def write(path: str, content: str = "1") -> str:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(content)
    return f"wrote {path}"


libc = ctypes.CDLL(None, use_errno=True)
COLUMN = 0 if platform.machine() == "x86_64" else 1


def call(x86_64: int, aarch64: int, *arguments: Any) -> str:
    result = libc.syscall(
        ctypes.c_long((x86_64, aarch64)[COLUMN]),
        *(ctypes.c_long(value) if isinstance(value, int) else value for value in arguments),
    )
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return f"returned {result}"


# --- files ---


@attempt(*GONE)
def read_the_servers_file(facts: dict[str, Any]) -> str:
    return read(facts["secret"])


@attempt(*GONE)
def read_the_servers_file_through_a_link_in_the_tree(facts: dict[str, Any]) -> str:
    os.symlink(facts["secret"], "link")  # noqa: PTH211
    return read("link")


@attempt(*GONE)
def read_another_tree(facts: dict[str, Any]) -> str:
    return read(facts["other"])


@attempt()
def see_neighbours_above_the_tree(facts: dict[str, Any]) -> str | None:
    names = os.listdir(os.path.dirname(facts["mounted_at"]))  # noqa: PTH208, PTH120
    return None if names == [os.path.basename(facts["mounted_at"])] else str(names)  # noqa: PTH119


@attempt(*GONE)
def read_passwords(facts: dict[str, Any]) -> str:
    return read("/etc/shadow")


@attempt()
def see_the_machines_users(facts: dict[str, Any]) -> str | None:
    with open("/etc/passwd") as file:  # noqa: PTH123
        names = [line.split(":")[0] for line in file]
    return None if names == ["root", "user", "nobody"] else str(names)


@attempt("ENOENT", "EACCES")
def read_through_the_root_of_process_1(facts: dict[str, Any]) -> str:
    return read("/proc/1/root" + facts["secret"])


@attempt("ENOENT", "EACCES")
def read_through_the_working_directory_of_process_1(facts: dict[str, Any]) -> str:
    return read("/proc/1/cwd/../../../../../.." + facts["secret"])


@attempt(*READ_ONLY)
def write_to_the_root(facts: dict[str, Any]) -> str:
    return write("/x")


@attempt(*READ_ONLY)
def write_to_usr(facts: dict[str, Any]) -> str:
    return write("/usr/bin/x")


@attempt(*READ_ONLY)
def write_to_etc(facts: dict[str, Any]) -> str:
    return write("/etc/passwd")


@attempt(*READ_ONLY)
def write_to_dev(facts: dict[str, Any]) -> str:
    return write("/dev/x")


@attempt(*READ_ONLY)
def change_what_the_next_shell_reads(facts: dict[str, Any]) -> str:
    return write("/run/agenthost/bashrc")


@attempt("EROFS", "EPERM", "EACCES", "EBUSY")
def rename_the_workspace(facts: dict[str, Any]) -> str:
    os.rename(facts["mounted_at"], facts["mounted_at"] + "2")  # noqa: PTH104
    return "renamed"


@attempt("EPERM")
def make_a_device(facts: dict[str, Any]) -> str:
    os.mknod("device", stat.S_IFBLK | 0o666, os.makedev(254, 0))
    return "made"


@attempt("EXDEV", "EPERM", "ENOENT")
def hard_link_a_system_file(facts: dict[str, Any]) -> str:
    os.link("/usr/bin/env", "hard")
    return "linked"


@attempt()
def find_mounts_where_setuid_or_devices_work(facts: dict[str, Any]) -> str | None:
    with open("/proc/self/mountinfo") as file:  # noqa: PTH123
        mounts = [(line.split()[4], line.split()[5].split(",")) for line in file]
    single = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "console", "pts")}
    bad = [where for where, options in mounts if "nosuid" not in options or ("nodev" not in options and where not in single)]
    return str(bad) if bad else None


@attempt()
def find_writable_mounts(facts: dict[str, Any]) -> str | None:
    with open("/proc/self/mountinfo") as file:  # noqa: PTH123
        mounts = [(line.split()[4], line.split()[5].split(",")) for line in file]
    writable = {where for where, options in mounts if "rw" in options}
    expected = {"/proc", "/dev/shm", "/tmp", facts["mounted_at"], "/dev/pts"}
    expected |= {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "console")}
    return str(writable - expected) if writable - expected else None


# --- /proc, /sys, /dev ---


@attempt()
def see_processes_outside(facts: dict[str, Any]) -> str | None:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return None if max(pids) < 100 and len(pids) < 10 else str(pids)


@attempt(*READ_ONLY, "ENOENT")
def write_the_core_pattern(facts: dict[str, Any]) -> str:
    return write("/proc/sys/kernel/core_pattern", "|/bin/sh")


@attempt(*READ_ONLY, "ENOENT")
def write_sysrq(facts: dict[str, Any]) -> str:
    return write("/proc/sysrq-trigger", "h")


@attempt(*READ_ONLY)
def write_a_setting_of_virtual_memory(facts: dict[str, Any]) -> str:
    return write("/proc/sys/vm/overcommit_memory", "1")


@attempt(*READ_ONLY)
def allow_user_namespaces(facts: dict[str, Any]) -> str:
    return write("/proc/sys/user/max_user_namespaces", "100")


@attempt("EACCES", "EPERM", "ENOENT")
def read_the_kernels_memory(facts: dict[str, Any]) -> str:
    return read("/proc/kcore")


@attempt("EACCES")
def read_the_kernels_command_line(facts: dict[str, Any]) -> str:
    return read("/proc/cmdline")


@attempt(*GONE)
def read_the_machines_memory(facts: dict[str, Any]) -> str:
    return read("/dev/mem")


@attempt(*GONE)
def read_kernel_messages(facts: dict[str, Any]) -> str:
    return read("/dev/kmsg")


@attempt(*GONE)
def open_fuse(facts: dict[str, Any]) -> str:
    return read("/dev/fuse")


@attempt(*GONE)
def list_sys(facts: dict[str, Any]) -> str:
    return str(os.listdir("/sys"))  # noqa: PTH208


@attempt(*GONE)
def list_cgroups(facts: dict[str, Any]) -> str:
    return str(os.listdir("/sys/fs/cgroup"))  # noqa: PTH208


@attempt("EACCES", "EPERM")
def lower_the_out_of_memory_score(facts: dict[str, Any]) -> str:
    return write("/proc/self/oom_score_adj", "-900")


# --- processes ---


@attempt("ESRCH")
def signal_the_server(facts: dict[str, Any]) -> str:
    os.kill(facts["server"], 0)
    return "signalled"


@attempt("ESRCH")
def signal_bubblewraps_group(facts: dict[str, Any]) -> str:
    os.killpg(facts["server"], 0)
    return "signalled"


@attempt(*NO)
def trace_process_1(facts: dict[str, Any]) -> str:
    return call(101, 117, 16, 1, 0, 0)


@attempt(*NO)
def be_traced(facts: dict[str, Any]) -> str:
    return call(101, 117, 0, 0, 0, 0)


@attempt(*NO)
def read_the_memory_of_process_1(facts: dict[str, Any]) -> str:
    return call(310, 270, 1, 0, 0, 0, 0, 0)


@attempt(*NO)
def take_a_descriptor_of_process_1(facts: dict[str, Any]) -> str:
    pidfd = os.pidfd_open(1)
    return call(438, 438, pidfd, 0, 0)


@attempt("EACCES", "EPERM")
def take_priority(facts: dict[str, Any]) -> str:
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    return "taken"


@attempt(*NO)
def take_real_time(facts: dict[str, Any]) -> str:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    return "taken"


def _dies(child: Callable[[], Any]) -> str | None:
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return None if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS else f"status {status}"


@attempt()
def call_by_x32_numbers(facts: dict[str, Any]) -> str | None:
    if platform.machine() != "x86_64":
        return None
    return _dies(lambda: call(0x40000000 | 39, 0))


# --- privileges ---


@attempt()
def have_a_capability(facts: dict[str, Any]) -> str | None:
    with open("/proc/self/status") as file:  # noqa: PTH123
        fields = dict(line.split(":", 1) for line in file)
    held = [name for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(fields[name], 16)]
    return str(held) if held else None


@attempt()
def be_able_to_gain_privileges(facts: dict[str, Any]) -> str | None:
    with open("/proc/self/status") as file:  # noqa: PTH123
        fields = dict(line.split(":", 1) for line in file)
    return None if (fields["NoNewPrivs"].strip(), fields["Seccomp"].strip()) == ("1", "2") else str(fields)


@attempt("EPERM", "EINVAL")
def become_root(facts: dict[str, Any]) -> str:
    os.setuid(0)
    return "root"


@attempt("EPERM", "EINVAL")
def join_a_group(facts: dict[str, Any]) -> str:
    os.setgroups([0])
    return "joined"


@attempt()
def run_a_setuid_program_of_its_own(facts: dict[str, Any]) -> str | None:
    with open("/usr/bin/id", "rb") as source, open("own", "wb") as copy:  # noqa: PTH123
        copy.write(source.read())
    os.chmod("own", 0o6755)  # noqa: PTH101
    import subprocess

    printed = subprocess.run(["./own", "-u"], capture_output=True, text=True, check=False).stdout.strip()
    return None if printed == "1000" else printed


@attempt()
def raise_a_limit(facts: dict[str, Any]) -> str | None:
    raised = []
    for name in ("NPROC", "DATA", "FSIZE", "NOFILE", "CPU", "CORE", "MEMLOCK"):
        number = getattr(resource, f"RLIMIT_{name}")
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(number, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            raised.append(name)
    return str(raised) if raised else None


# --- system calls ---


def _system_calls() -> None:
    null = ctypes.c_void_p(None)
    tmpfs = ctypes.c_char_p(b"tmpfs")
    place = ctypes.c_char_p(b"/tmp")
    new_user = 0x10000000
    table: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
        "mount": (NO, (165, 40, tmpfs, place, tmpfs, 0, null)),
        "unmount": (NO, (166, 39, ctypes.c_char_p(b"/proc"), 2)),
        "pivot_root": (NO, (155, 41, place, place)),
        "chroot": (NO, (161, 51, place)),
        "open_a_tree": (NO, (428, 428, -100, ctypes.c_char_p(b"/usr"), 1)),
        "open_a_file_system": (NO, (430, 430, tmpfs, 0)),
        "change_a_mount": (NO, (442, 442, -100, place, 0, null, 0)),
        "unshare_a_user_namespace": (NO, (272, 97, new_user)),
        "unshare_a_network": (NO, (272, 97, 0x40000000)),
        "clone_a_user_namespace": (NO, (56, 220, new_user | 17, 0, 0, 0, 0)),
        "clone3": (("ENOSYS",), (435, 435, null, 0)),
        "join_a_namespace": (NO, (308, 268, 0, 0)),
        "open_by_handle": (NO, (304, 265, -100, null, 0)),
        "keyctl": (NO, (250, 219, 0, -3, 0, 0, 0)),
        "add_key": (NO, (248, 217, null, null, null, 0, -3)),
        "bpf": (NO, (321, 280, 0, null, 0)),
        "perf_event_open": (NO, (298, 241, null, 0, -1, -1, 0)),
        "userfaultfd": (NO, (323, 282, 1)),
        "io_uring": (("ENOSYS",), (425, 425, 1, null)),
        "memfd_create": (("ENOSYS",), (319, 279, place, 0)),
        "load_a_module": (NO, (313, 273, 0, null, 0)),
        "kexec": (NO, (246, 104, 0, 0, null, 0)),
        "reboot": (NO, (169, 142, 0, 0, 0, null)),
        "swapon": (NO, (167, 224, place, 0)),
        "account": (NO, (163, 89, null)),
        "quota": (NO, (179, 60, 0, null, 0, null)),
        "set_the_clock": (NO, (227, 112, 0, null)),
        "set_the_host_name": (NO, (170, 161, place, 4)),
        "read_the_kernel_log": (NO, (103, 116, 3, null, 0)),
        "fanotify": (NO, (300, 262, 0, 0)),
        "personality": (NO, (135, 92, 0x0400000)),
        "large_shared_memory": (("EINVAL",), (29, 194, 0, 1 << 30, 0o1600)),
    }
    if COLUMN == 0:
        table["ports"] = (NO, (172, 0, 3))

    def tried(arguments: tuple[Any, ...]) -> Attempt:
        return lambda _facts: call(*arguments)

    for name, (errors, arguments) in table.items():
        ATTEMPTS[f"system_call_{name}"] = (tried(arguments), errors)


_system_calls()


@attempt(*NO)
def type_into_the_terminal(facts: dict[str, Any]) -> str:
    _master, slave = os.openpty()
    fcntl.ioctl(slave, 0x5412, b"x")
    return "typed"


@attempt(*NO)
def change_the_line_discipline(facts: dict[str, Any]) -> str:
    _master, slave = os.openpty()
    fcntl.ioctl(slave, 0x5423, struct.pack("i", 21))
    return "changed"


# --- network ---


@attempt(*UNREACHABLE)
def connect_to_the_servers_port(facts: dict[str, Any]) -> str:
    socket.create_connection(("127.0.0.1", facts["port"]), 3)
    return "connected"


@attempt(*UNREACHABLE)
def connect_to_the_metadata_address(facts: dict[str, Any]) -> str:
    socket.create_connection(("169.254.169.254", 80), 3)
    return "connected"


@attempt(*UNREACHABLE)
def send_a_datagram(facts: dict[str, Any]) -> str:
    sent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
    return f"sent {sent}"


@attempt(*UNREACHABLE)
def connect_over_ipv6(facts: dict[str, Any]) -> str:
    socket.create_connection(("2001:db8::1", 80), 3)
    return "connected"


@attempt("name")
def resolve_a_name(facts: dict[str, Any]) -> str:
    try:
        return str(socket.getaddrinfo("example.com", 80))
    except socket.gaierror as error:
        raise OSError("name") from error


@attempt("ECONNREFUSED")
def connect_to_an_abstract_socket(facts: dict[str, Any]) -> str:
    socket.socket(socket.AF_UNIX).connect("\0" + facts["abstract"])
    return "connected"


@attempt(*GONE)
def connect_to_a_socket_of_the_machine(facts: dict[str, Any]) -> str:
    socket.socket(socket.AF_UNIX).connect(facts["unix"])
    return "connected"


@attempt("EAFNOSUPPORT")
def open_a_packet_socket(facts: dict[str, Any]) -> str:
    return str(socket.socket(17, socket.SOCK_RAW))


@attempt("EAFNOSUPPORT")
def open_a_vsock(facts: dict[str, Any]) -> str:
    return str(socket.socket(40, socket.SOCK_STREAM))


@attempt("EAFNOSUPPORT")
def open_a_kernel_crypto_socket(facts: dict[str, Any]) -> str:
    return str(socket.socket(38, 5))


@attempt("EPROTONOSUPPORT")
def open_a_raw_socket(facts: dict[str, Any]) -> str:
    return str(socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))


@attempt("EPROTONOSUPPORT")
def open_a_netfilter_socket(facts: dict[str, Any]) -> str:
    return str(socket.socket(16, socket.SOCK_RAW, 12))


# --- what leaks in ---


@attempt()
def find_variables_of_the_server(facts: dict[str, Any]) -> str | None:
    expected = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "PWD", "GIVEN", "LC_CTYPE"}
    extra = set(os.environ) - expected
    return str(extra) if extra else None


@attempt()
def find_the_servers_directories_in_process_1(facts: dict[str, Any]) -> str | None:
    with open("/proc/1/environ", "rb") as environment, open("/proc/1/cmdline", "rb") as line:  # noqa: PTH123
        found = environment.read() + line.read()
    return str(found) if facts["directory"].encode() in found or b"SECRET" in found else None


def descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        # The listing's own is closed already.
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
    return found


AT_START = descriptors()


@attempt()
def find_inherited_descriptors(facts: dict[str, Any]) -> str | None:
    return None if set(AT_START) == {0, 1, 2} else str(AT_START)


@attempt()
def find_descriptors_of_process_1(facts: dict[str, Any]) -> str | None:
    found = [os.readlink(f"/proc/1/fd/{name}") for name in os.listdir("/proc/1/fd")]  # noqa: PTH115, PTH208
    bad = [where for where in found if not where.startswith(("pipe:", "anon_inode:[eventfd]", "/dev/null"))]
    return str(bad) if bad else None


@attempt()
def learn_the_machines_name(facts: dict[str, Any]) -> str | None:
    return None if socket.gethostname() == "workspace" else socket.gethostname()


# --- limits ---


@attempt("EFBIG")
def write_a_large_file(facts: dict[str, Any]) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open("large", "wb") as file:  # noqa: PTH123
            file.truncate(facts["file_bytes"] + 1)
    finally:
        os.unlink("large")  # noqa: PTH108
    return "written"


@attempt("ENOSPC")
def fill_tmp(facts: dict[str, Any]) -> str:
    try:
        with open("/tmp/full", "wb") as file:  # noqa: PTH123
            for _ in range(facts["temporary_bytes"] // 65536 + 1):
                file.write(bytes(65536))
    finally:
        os.unlink("/tmp/full")  # noqa: PTH108
    return "filled"


@attempt("EMFILE")
def open_many_files(facts: dict[str, Any]) -> str:
    opened: list[int] = []
    try:
        for _ in range(facts["open_files"] + 1):
            opened.append(os.open("/dev/null", os.O_RDONLY))  # noqa: PERF401
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return "opened"


@attempt("ENOMEM")
def take_much_memory(facts: dict[str, Any]) -> str:
    try:
        return f"took {len(bytearray(facts['memory_bytes']))}"
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "memory") from error


@attempt("EAGAIN")
def fork_without_end(facts: dict[str, Any]) -> str:
    children = []
    try:
        for _ in range(facts["processes"] + 5):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return f"{len(children)} processes"


def outcome(function: Attempt, errors: tuple[str, ...], facts: dict[str, Any]) -> str:
    try:
        got = function(facts)
    except OSError as error:
        name = errno.errorcode.get(error.errno, str(error.errno)) if error.errno else str(error)
        return "refused" if name in errors else f"failed with {name}, not one of {errors}: {error}"
    except Exception as error:
        return f"broken attempt: {error!r}"
    return "refused" if got is None else f"SUCCEEDED: {got}"


def main() -> None:
    with open("facts.json") as file:  # noqa: PTH123
        facts = json.load(file)
    print(json.dumps({name: outcome(function, errors, facts) for name, (function, errors) in ATTEMPTS.items()}))  # noqa: T201


if __name__ == "__main__":
    main()
