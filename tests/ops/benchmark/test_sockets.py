"""Responses that processes got from TCP ports."""

from __future__ import annotations

import os
import socket

import pytest

from ops.benchmark import processes, sockets

pytestmark = pytest.mark.skipif(
    not processes.available() or not sockets.available(), reason="the kernel does not report its sockets"
)


def test_what_is_answered_at_once_is_one_response() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_connection(listener.getsockname()) as client,
    ):
        accepted, _ = listener.accept()
        with accepted:
            for _ in range(7):
                client.send(b"x")
                client.send(b"x")
                accepted.send(b"y")
                client.recv(1)
            ports = {listener.getsockname()[1]: "a store", other.getsockname()[1]: "another"}
            assert sockets.responses([os.getpid()], ports) == {"a store": 7, "another": 0}
