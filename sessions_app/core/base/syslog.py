"""Sends messages to a syslog server: RFC 5424 over UDP, TCP, TLS or a local socket. Knows nothing of the audit.

A stream is framed by octet counting (RFC 6587, RFC 5425). Syslog has no acknowledgements, so a stream is ended after each batch
and its end awaited: a server that has closed its side has read everything, and a reset connection is an error.
"""

from __future__ import annotations

import socket
import ssl
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

SCHEMES = ("udp", "tcp", "tls", "unix")
_PORTS = {"udp": 514, "tcp": 601, "tls": 6514}
_FACILITY = 13
"""Log audit."""
NOTICE, WARNING = 5, 4
CONNECT_SECONDS = 10.0
END_SECONDS = 5.0
"""How long the server's end of the stream is awaited. Some servers never close, so a longer wait is no error."""
_LONGEST_DATAGRAM = 60_000


class CannotSend(Exception):
    """The server was not reached, or has not read everything. The text says why, for the operator."""


@dataclass(frozen=True, slots=True)
class Address:
    """``host`` and ``port`` of a server, or ``path`` of a socket. ``ca``: the file of the authorities that TLS trusts."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    ca: str = ""


def read(text: str) -> Address:
    """An address such as ``tls://log.example.org:6514?ca=/etc/ca.pem`` or ``unix:///dev/log``; ValueError says what is wrong."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise ValueError("its host or port cannot be read") from None
    if url.scheme not in SCHEMES:
        raise ValueError("it must begin with udp://, tcp://, tls:// or unix:///")
    if url.username is not None or url.fragment:
        raise ValueError("it has no user, password or fragment")
    if url.scheme == "unix":
        if url.netloc or len(url.path) < 2 or url.query:
            raise ValueError("a local socket is written as unix:///dev/log")
        return Address("unix", path=unquote(url.path))
    query = parse_qs(url.query, keep_blank_values=True)
    if not url.hostname or url.path not in ("", "/") or set(query) - {"ca"} or (query and url.scheme != "tls"):
        raise ValueError("a server is written as udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT?ca=FILE")
    return Address(url.scheme, url.hostname, port or _PORTS[url.scheme], ca=query.get("ca", [""])[0])


def message(*, at: datetime, severity: int, host: str, name: str, kind: str, text: str) -> bytes:
    """One message of RFC 5424. ``kind``: its MSGID, at most 32 characters; ``text``: ASCII."""
    moment = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = f"<{_FACILITY * 8 + severity}>1 {moment} {_printable(host, 255)} {_printable(name, 48)} - {_printable(kind, 32)} - "
    return (head + text).encode("ascii", "backslashreplace")


def _printable(text: str, most: int) -> str:
    kept = "".join(character for character in text if "!" <= character <= "~")[:most]
    return kept or "-"


def send(address: Address, messages: Sequence[bytes]) -> None:
    """Send all messages in order; CannotSend if the server may have read less. Then send all of them again."""
    try:
        if address.scheme in ("tcp", "tls"):
            _send_stream(address, b"".join(b"%d %b" % (len(each), each) for each in messages))
        else:
            _send_datagrams(address, messages)
    except ssl.SSLCertVerificationError as error:
        raise CannotSend(f"the certificate of {address.host} is not valid: {error.verify_message}") from error
    except TimeoutError as error:
        raise CannotSend("it did not answer in time") from error
    except OSError as error:
        raise CannotSend(error.strerror or type(error).__name__) from error


def _send_stream(address: Address, data: bytes) -> None:
    with socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS) as plain:
        if address.scheme == "tcp":
            plain.sendall(data)
            plain.shutdown(socket.SHUT_WR)
            _await_end(plain)
            return
        context = ssl.create_default_context(cafile=address.ca or None)
        with context.wrap_socket(plain, server_hostname=address.host) as encrypted:
            encrypted.sendall(data)
            encrypted.settimeout(END_SECONDS)
            # Sends close_notify and awaits the server's. Many servers close without one.
            with suppress(TimeoutError, ssl.SSLError):
                encrypted.unwrap()


def _await_end(connection: socket.socket) -> None:
    connection.settimeout(END_SECONDS)
    with suppress(TimeoutError):
        while connection.recv(4096):
            pass


def _send_datagrams(address: Address, messages: Sequence[bytes]) -> None:
    if address.scheme == "unix":
        if not stat.S_ISSOCK(Path(address.path).stat().st_mode):
            raise CannotSend("it is not a socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
            local.settimeout(CONNECT_SECONDS)
            local.connect(address.path)
            for each in messages:
                local.send(each[:_LONGEST_DATAGRAM])
        return
    family, kind, protocol, _, target = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as datagrams:
        # Connected, so that a port that nobody has is an error of the next datagram.
        datagrams.connect(target)
        for each in messages:
            datagrams.send(each[:_LONGEST_DATAGRAM])
