"""The seccomp filter's decisions, computed by a BPF interpreter of the test for both architectures."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from sessions_app.workspace import seccomp

ALLOW, KILL = seccomp.RET_ALLOW, seccomp.RET_KILL_PROCESS


def decision(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    program = seccomp.program(machine)
    steps = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    six = [*arguments, *([0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, seccomp.MACHINES[machine].audit if audit is None else audit, 0, *six)
    accumulator = at = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == seccomp.RET:
            return int(value)
        if code == seccomp.LD_W_ABS:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == seccomp.AND:
            accumulator &= value
        else:
            true = {
                seccomp.JEQ: accumulator == value,
                seccomp.JGT: accumulator > value,
                seccomp.JGE: accumulator >= value,
                seccomp.JSET: bool(accumulator & value),
            }[code]
            at += yes if true else no


def error(number: int) -> int:
    return seccomp.RET_ERRNO | number


machines = pytest.mark.parametrize("machine", sorted(seccomp.MACHINES))


def number_of(machine: str, name: str) -> int:
    number = seccomp.ARGUMENTS[name][seccomp.MACHINES[machine].column]
    assert number is not None
    return number


@machines
def test_every_listed_call_is_denied_with_its_error_and_others_are_allowed(machine: str) -> None:
    column = seccomp.MACHINES[machine].column
    listed = set()
    for table, expected in ((seccomp.PERMISSION_DENIED, errno.EPERM), (seccomp.NOT_IMPLEMENTED, errno.ENOSYS)):
        for name, numbers in table.items():
            if (number := numbers[column]) is not None:
                assert decision(machine, number) == error(expected), name
                listed.add(number)
    decided_by_arguments = {numbers[column] for numbers in seccomp.ARGUMENTS.values()}
    others = set(range(460)) - listed - decided_by_arguments
    assert {decision(machine, number) for number in others} == {ALLOW}


@machines
def test_calls_of_another_architecture_kill_the_process(machine: str) -> None:
    other = next(entry.audit for name, entry in seccomp.MACHINES.items() if name != machine)
    assert decision(machine, 0, audit=other) == KILL
    assert decision(machine, 0, audit=0x40000003) == KILL, "i386"


def test_x32_calls_kill_the_process() -> None:
    assert decision("x86_64", 0x40000000) == KILL
    assert decision("x86_64", 0x40000000 | 165) == KILL
    assert decision("x86_64", 0xFFFFFFFF) == KILL


@machines
def test_processes_and_threads_can_be_made_but_no_namespaces(machine: str) -> None:
    clone, unshare = number_of(machine, "clone"), number_of(machine, "unshare")
    thread = 0x003D0F00
    assert decision(machine, clone, 17) == ALLOW
    assert decision(machine, clone, thread) == ALLOW
    assert decision(machine, unshare, 0x400) == ALLOW, "CLONE_FILES"
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decision(machine, clone, flag | 17) == error(errno.EPERM)
        assert decision(machine, unshare, flag) == error(errno.EPERM)
    assert decision(machine, unshare, 0x80) == error(errno.EPERM), "CLONE_NEWTIME"


@machines
def test_nothing_can_be_typed_into_a_terminal_by_a_program(machine: str) -> None:
    ioctl = number_of(machine, "ioctl")
    for request in (0x5412, 0x541C, 0x5423):
        assert decision(machine, ioctl, 0, request) == error(errno.EPERM)
        assert decision(machine, ioctl, 0, 0x1_0000_0000 | request) == error(errno.EPERM), "the kernel ignores the high half"
    assert decision(machine, ioctl, 0, 0x5413) == ALLOW, "TIOCGWINSZ"


@machines
def test_sockets_are_those_of_common_programs(machine: str) -> None:
    socket, pair = number_of(machine, "socket"), number_of(machine, "socketpair")
    cloexec = 0o2000000
    assert decision(machine, socket, 1, 5) == ALLOW, "AF_UNIX, SEQPACKET"
    assert decision(machine, socket, 2, 1 | cloexec, 6) == ALLOW
    assert decision(machine, socket, 10, 2, 17) == ALLOW
    assert decision(machine, socket, 16, 3, 0) == ALLOW, "NETLINK_ROUTE"
    assert decision(machine, socket, 16, 3, 9) == error(errno.EPROTONOSUPPORT), "NETLINK_AUDIT"
    assert decision(machine, socket, 2, 3, 255) == error(errno.EPROTONOSUPPORT), "SOCK_RAW"
    assert decision(machine, socket, 2, 1, 132) == error(errno.EPROTONOSUPPORT), "SCTP"
    for family in (17, 40, 38, 31, 29, 44, 3):
        assert decision(machine, socket, family, 3, 0) == error(errno.EAFNOSUPPORT)
    assert decision(machine, pair, 1, 1) == ALLOW
    assert decision(machine, pair, 2, 1) == error(errno.EAFNOSUPPORT)


@machines
def test_shared_memory_segments_are_small(machine: str) -> None:
    shmget = number_of(machine, "shmget")
    assert decision(machine, shmget, 0, 56) == ALLOW
    assert decision(machine, shmget, 0, 64 * 1024 + 1) == error(errno.EINVAL)
    assert decision(machine, shmget, 0, 0x1_0000_0000) == error(errno.EINVAL)


@machines
def test_sets_of_semaphores_are_small_and_there_are_no_message_queues(machine: str) -> None:
    semget = number_of(machine, "semget")
    assert decision(machine, semget, 0, 17) == ALLOW
    assert decision(machine, semget, 0, 65) == error(errno.EINVAL)
    assert decision(machine, semget, 0, 0xFFFFFFFF) == error(errno.EINVAL)
    queues = seccomp.NOT_IMPLEMENTED["msgget"][seccomp.MACHINES[machine].column]
    assert queues is not None
    assert decision(machine, queues) == error(errno.ENOSYS)


@machines
def test_sizes_of_socket_buffers_are_ignored_and_other_options_are_not(machine: str) -> None:
    setsockopt = number_of(machine, "setsockopt")
    for option in (7, 8, 32, 33):
        assert decision(machine, setsockopt, 5, 1, option) == error(0), "success without a call"
        assert decision(machine, setsockopt, 5, 1, 0x1_0000_0000 | option) == error(0), "the kernel ignores the high half"
    assert decision(machine, setsockopt, 5, 1, 2) == ALLOW, "SO_REUSEADDR"
    assert decision(machine, setsockopt, 5, 6, 7) == ALLOW, "an option of TCP"


@machines
def test_only_harmless_personalities_can_be_chosen(machine: str) -> None:
    personality = number_of(machine, "personality")
    assert decision(machine, personality, 0xFFFFFFFF) == ALLOW
    assert decision(machine, personality, 0x0400000) == error(errno.EPERM), "READ_IMPLIES_EXEC"


HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), r"#define __NR_(\w+)\s+(\d+)"),
    # The table of all newer architectures, arm64 among them.
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"), r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
}


@machines
def test_the_numbers_of_calls_are_those_of_the_kernels_own_headers(machine: str) -> None:
    header, line = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"{header} is missing; Debian, Ubuntu: apt-get install linux-libc-dev")
    known = {name: int(number) for name, number in re.findall(line, header.read_text())}
    tables = {**seccomp.PERMISSION_DENIED, **seccomp.NOT_IMPLEMENTED, **seccomp.ARGUMENTS}
    ours = {name: numbers[seccomp.MACHINES[machine].column] for name, numbers in tables.items()}
    # Calls that are newer than the header are not in it.
    assert {name: number for name, number in ours.items() if name in known} == {
        name: known[name] for name in ours if name in known
    }
    assert len(known.keys() & ours.keys()) > 60


def test_an_architecture_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="a seccomp filter, and there is none for riscv64 processors"):
        seccomp.program("riscv64")
