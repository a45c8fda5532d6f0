"""The seccomp filter of sandboxes, assembled as a classic BPF program for bubblewrap's `--seccomp`.

Everything is allowed but what is listed here. What a mount, user or pid namespace already forbids is listed as well: a fault in
the kernel behind such a call is then out of reach. Calls of another architecture, and x32, kill the process: their numbers mean
other calls.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

RET_KILL_PROCESS = 0x80000000
RET_ERRNO = 0x00050000
RET_ALLOW = 0x7FFF0000

LD_W_ABS = 0x20
JEQ = 0x15
JGT = 0x25
JGE = 0x35
JSET = 0x45
AND = 0x54
RET = 0x06

# struct seccomp_data: int nr; __u32 arch; __u64 instruction_pointer; __u64 args[6]. Both architectures are little-endian.
NUMBER, ARCHITECTURE = 0, 4
X32_BIT = 0x40000000


def low(argument: int) -> int:
    return 16 + 8 * argument


def high(argument: int) -> int:
    return low(argument) + 4


@dataclass(frozen=True)
class Machine:
    """An architecture: its AUDIT_ARCH number and, as a position in the tables below, its column."""

    audit: int
    column: int
    x32: bool


MACHINES = {"x86_64": Machine(0xC000003E, 0, x32=True), "aarch64": Machine(0xC00000B7, 1, x32=False)}

# Name: number on x86_64, on aarch64 (None: no such call there).
Table = dict[str, tuple[int | None, int | None]]

PERMISSION_DENIED: Table = {
    # Mounts, roots and namespaces.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # The kernel itself.
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
    "modify_ldt": (154, None),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}

# Programs try these and do without. Memory of memfd_create counts for no process, so no limit of a process would hold.
NOT_IMPLEMENTED: Table = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # Messages of System V queues: 32,000 queues with 16,384 empty messages each are 32 GB.
    "msgget": (68, 186),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "uselib": (134, None),
    "sysfs": (139, None),
    "ustat": (136, None),
    "_sysctl": (156, None),
    "create_module": (174, None),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
    "uretprobe": (335, None),
    "uprobe": (336, None),
}

ARGUMENTS: Table = {
    "clone": (56, 220),
    "unshare": (272, 97),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "shmget": (29, 194),
    "semget": (64, 190),
    "setsockopt": (54, 208),
    "personality": (135, 92),
}

# CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET. The low byte of clone's flags is a signal, so NEWTIME is unshare's only.
NEW_NAMESPACES = 0x7E020000
CLONE_NEWTIME = 0x80

# Typing into another reader's terminal, the console's selection, and line disciplines (drivers nobody audits).
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
SOCK_STREAM, SOCK_DGRAM = 1, 2
SOCK_TYPE_MASK = 0xF
# The default, ICMP echo, TCP, UDP, ICMPv6 echo; not SCTP, DCCP, MPTCP.
PROTOCOLS = (0, 1, 6, 17, 58)

# System V shared memory that is not attached counts for no process: 4,096 segments of this size are all there can be.
SHARED_SEGMENT_BYTES = 64 * 1024

# Semaphores count for no process either: a set of 32,000 takes 2 MB, and there can be 32,000 sets.
SEMAPHORES_OF_A_SET = 64

# SOL_SOCKET; SO_SNDBUF, SO_RCVBUF and the two that override their limits. What is in a buffer counts for no process, so all
# sockets keep the size by default. The size is advice, and programs take no notice of it being ignored.
SOL_SOCKET = 1
BUFFER_SIZES = (7, 8, 32, 33)

# PER_LINUX, ADDR_NO_RANDOMIZE (debuggers), "return the current one".
PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Step:
    """One instruction. `yes` and `no` are labels to jump to; None continues with the next instruction."""

    code: int
    value: int
    yes: str | None = None
    no: str | None = None


Source = list[Step | Label]


def assemble(source: Sequence[Step | Label]) -> bytes:
    """The program's bytes: `struct sock_filter` after `struct sock_filter`. Jumps go forward, at most 255 instructions."""
    positions: dict[str, int] = {}
    steps: list[Step] = []
    for entry in source:
        if isinstance(entry, Label):
            positions[entry.name] = len(steps)
        else:
            steps.append(entry)

    def distance(label: str | None, here: int) -> int:
        if label is None:
            return 0
        jump = positions[label] - here - 1
        if not 0 <= jump <= 255:
            raise ValueError(f"jump to {label}: {jump} instructions; a conditional jump reaches 0 to 255")
        return jump

    return b"".join(
        struct.pack("<HBBI", step.code, distance(step.yes, here), distance(step.no, here), step.value)
        for here, step in enumerate(steps)
    )


def _error(number: int) -> Step:
    return Step(RET, RET_ERRNO | number)


_ALLOW = Step(RET, RET_ALLOW)


def _rules() -> dict[str, Source]:
    """What is decided by arguments. Each begins behind the comparison of the call's number, and ends with a RET."""
    return {
        "clone": [
            Step(LD_W_ABS, low(0)),
            Step(JSET, NEW_NAMESPACES, no="clone allowed"),
            _error(errno.EPERM),
            Label("clone allowed"),
            _ALLOW,
        ],
        "unshare": [
            Step(LD_W_ABS, low(0)),
            Step(JSET, NEW_NAMESPACES | CLONE_NEWTIME, no="unshare allowed"),
            _error(errno.EPERM),
            Label("unshare allowed"),
            _ALLOW,
        ],
        # The kernel uses the low half of the request only.
        "ioctl": [
            Step(LD_W_ABS, low(1)),
            Step(JEQ, TIOCSTI, yes="ioctl denied"),
            Step(JEQ, TIOCLINUX, yes="ioctl denied"),
            Step(JEQ, TIOCSETD, yes="ioctl denied"),
            _ALLOW,
            Label("ioctl denied"),
            _error(errno.EPERM),
        ],
        "socket": [
            Step(LD_W_ABS, low(0)),
            Step(JEQ, AF_UNIX, yes="socket allowed"),
            Step(JEQ, AF_NETLINK, yes="socket netlink"),
            Step(JEQ, AF_INET, yes="socket inet"),
            Step(JEQ, AF_INET6, yes="socket inet"),
            _error(errno.EAFNOSUPPORT),
            Label("socket netlink"),
            Step(LD_W_ABS, low(2)),
            Step(JEQ, NETLINK_ROUTE, yes="socket allowed"),
            _error(errno.EPROTONOSUPPORT),
            Label("socket inet"),
            Step(LD_W_ABS, low(1)),
            Step(AND, SOCK_TYPE_MASK),
            Step(JEQ, SOCK_STREAM, yes="socket protocol"),
            Step(JEQ, SOCK_DGRAM, yes="socket protocol"),
            _error(errno.EPROTONOSUPPORT),
            Label("socket protocol"),
            Step(LD_W_ABS, low(2)),
            *(Step(JEQ, protocol, yes="socket allowed") for protocol in PROTOCOLS),
            _error(errno.EPROTONOSUPPORT),
            Label("socket allowed"),
            _ALLOW,
        ],
        "socketpair": [
            Step(LD_W_ABS, low(0)),
            Step(JEQ, AF_UNIX, yes="socketpair allowed"),
            _error(errno.EAFNOSUPPORT),
            Label("socketpair allowed"),
            _ALLOW,
        ],
        "shmget": [
            Step(LD_W_ABS, high(1)),
            Step(JEQ, 0, no="shmget denied"),
            Step(LD_W_ABS, low(1)),
            Step(JGT, SHARED_SEGMENT_BYTES, yes="shmget denied"),
            _ALLOW,
            Label("shmget denied"),
            _error(errno.EINVAL),
        ],
        # The kernel uses the low halves only, of both this and `setsockopt`'s arguments.
        "semget": [
            Step(LD_W_ABS, low(1)),
            Step(JGT, SEMAPHORES_OF_A_SET, no="semget allowed"),
            _error(errno.EINVAL),
            Label("semget allowed"),
            _ALLOW,
        ],
        "setsockopt": [
            Step(LD_W_ABS, low(1)),
            Step(JEQ, SOL_SOCKET, no="setsockopt allowed"),
            Step(LD_W_ABS, low(2)),
            *(Step(JEQ, option, yes="setsockopt ignored") for option in BUFFER_SIZES),
            Label("setsockopt allowed"),
            _ALLOW,
            Label("setsockopt ignored"),
            # The error 0 is success, without a call.
            _error(0),
        ],
        "personality": [
            Step(LD_W_ABS, low(0)),
            *(Step(JEQ, value, yes="personality allowed") for value in PERSONALITIES),
            _error(errno.EPERM),
            Label("personality allowed"),
            _ALLOW,
        ],
    }


def source(machine: Machine) -> Source:
    program: Source = [
        Step(LD_W_ABS, ARCHITECTURE),
        Step(JEQ, machine.audit, yes="native"),
        Step(RET, RET_KILL_PROCESS),
        Label("native"),
        Step(LD_W_ABS, NUMBER),
    ]
    if machine.x32:
        program += [Step(JGE, X32_BIT, no="number"), Step(RET, RET_KILL_PROCESS), Label("number")]
    for name, rule in _rules().items():
        number = ARGUMENTS[name][machine.column]
        if number is not None:
            program += [Step(JEQ, number, no=f"after {name}"), *rule, Label(f"after {name}")]
    for table, error in ((PERMISSION_DENIED, errno.EPERM), (NOT_IMPLEMENTED, errno.ENOSYS)):
        for name, numbers in table.items():
            number = numbers[machine.column]
            if number is not None:
                program += [Step(JEQ, number, no=f"after {name}"), _error(error), Label(f"after {name}")]
    return [*program, _ALLOW]


def program(machine: str | None = None) -> bytes:
    """The filter for `machine` (this one by default). Raises ValueError for an architecture that has no table here."""
    name = machine or platform.machine()
    if name not in MACHINES:
        known = ", ".join(sorted(MACHINES))
        raise ValueError(f"sandboxes need a seccomp filter, and there is none for {name} processors, only for {known}")
    return assemble(source(MACHINES[name]))
