"""Size limits of requests, model answers and sessions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.client import Client, user
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import text

MIB = 1024 * 1024
LIMIT = 4 * MIB
"""The server's own default for a message of a model."""


def _processes(server: Server) -> Iterator[tuple[list[str], str]]:
    """What /proc has in `stat`, from the state on, and in `status` for the server's processes and their children."""
    groups = {process.popen.pid for process in (*server.webs, *server.workers)}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            # What is before it, the program's name, may hold anything.
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) in groups:
                yield fields, (stat.parent / "status").read_text()


def peak(server: Server) -> int:
    """The sum of the processes' peak memory, in bytes."""
    statuses = [status for _fields, status in _processes(server)]
    return sum(int(status.partition("VmHWM:")[2].split()[0]) * 1024 for status in statuses if "VmHWM:" in status)


def cpu(server: Server) -> float:
    """The CPU time of the processes, in seconds."""
    ticks = sum(int(field) for fields, _status in _processes(server) for field in fields[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.rule("A58", "A60", "A86")
@pytest.mark.parametrize("mode", ["delta", "message", "none"])
def test_an_endless_answer_is_cut_for_client_and_history(alice: Client, server: Server, model: ModelServer, mode: str) -> None:
    session = alice.create("pilot")
    before = peak(server)
    # 30 MB, in pieces as in one event of a careless provider.
    script = model.script([text(*["x" * 60_000] * 500)])
    outcome = alice.turn(session, user(script), stream=mode)
    assert outcome.stop == "max_tokens"
    assert LIMIT - 60_000 < len(outcome.text) <= LIMIT
    assert alice.history(session)[1:] == [{"role": "assistant", "content": outcome.text}]
    assert model.wait_ended(model.wait_request(script)) == "closed"
    # An endless answer of 30 MB once took 300 MiB.
    assert peak(server) - before < 160 * MIB


@pytest.mark.rule("A4", "A93")
@pytest.mark.parametrize(
    "body",
    [b"[" * 8_000_000, b'{"a":' + b"[" * 4_000_000 + b"]" * 4_000_000 + b"}", b'{"a":[' + b"0," * 7_000_000 + b"0]}"],
    ids=["open", "lists", "members"],
)
def test_a_body_of_nothing_but_brackets_or_members_costs_little_to_refuse(alice: Client, server: Server, body: bytes) -> None:
    def spent(content: bytes) -> float:
        before = cpu(server)
        response = alice.http.post("/sessions", content=content, headers={"Content-Type": "application/json"})
        assert response.status_code in (400, 422)
        return cpu(server) - before

    # Receiving 8 to 14 MB takes most of it; what is no JSON is refused at its first byte. Parsing such a body took 3 s and more.
    received = min(spent(b"x" * len(body)) for _ in range(3))
    assert min(spent(body) for _ in range(3)) < 5 * received + 0.3
