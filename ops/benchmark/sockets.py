"""How often processes got data from TCP ports, from the kernel's socket diagnostics."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ops.benchmark import processes

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h
_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST, _DUMP = 0x1, 0x300
_DONE, _ERROR = 3, 2
_TCP_INFO_ATTRIBUTE = 2
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI48s")
_PORTS = struct.Struct("!HH")
_MESSAGE_BYTES = 72
_INODE_AT = 68
_RECEIVED_AT = 152
"""Of `tcpi_data_segs_in` in `struct tcp_info`."""


def available() -> bool:
    try:
        next(_sockets(), None)
    except OSError:
        return False
    return True


def responses(roots: Iterable[int], ports: Mapping[int, str]) -> dict[str, int]:
    """Segments of data that the processes and their descendants received on open connections, by the name of the remote port.

    A segment is one write of the server, at most 64 KiB: what it answers at once is one, however many statements or commands
    were sent together. A closed connection is not counted any more.
    """
    inodes = {inode for pid in processes.tree(roots) for inode in _inodes(pid)}
    found = dict.fromkeys(ports.values(), 0)
    for inode, port, received in _sockets():
        if inode in inodes and port in ports:
            found[ports[port]] += received
    return found


def _inodes(pid: int) -> Iterator[int]:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                link = str(Path(entry.path).readlink())
                if link.startswith("socket:["):
                    yield int(link[8:-1])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return


def _sockets() -> Iterator[tuple[int, int, int]]:
    """The inode, remote port and data segments received of every IPv4 TCP socket."""
    asked = _ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (_TCP_INFO_ATTRIBUTE - 1), 0, 0xFFFFFFFF, b"")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
        link.send(_HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, 1, 0) + asked)
        while True:
            data = link.recv(1 << 16)
            at = 0
            while at < len(data):
                length, kind, *_ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError("the kernel does not report its sockets")
                yield _one(data[at + _HEADER.size : at + length])
                at += length + -length % 4


def _one(message: bytes) -> tuple[int, int, int]:
    _, remote = _PORTS.unpack_from(message, 4)
    (inode,) = struct.unpack_from("=I", message, _INODE_AT)
    at = _MESSAGE_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == _TCP_INFO_ATTRIBUTE and length >= 4 + _RECEIVED_AT + 4:
            return inode, remote, struct.unpack_from("=I", message, at + 4 + _RECEIVED_AT)[0]
        at += max(4, length + -length % 4)
    return inode, remote, 0
