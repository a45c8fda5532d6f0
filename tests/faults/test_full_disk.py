"""SQLite on a full disk: requests are refused clearly, nothing is half-written, and it recovers with free space."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.e2e import server as servers
from tests.e2e import sse
from tests.e2e.client import check_problem, turn_body, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.faults.clients import acceptable
from tests.small_disks import small_disk

SIZE = 48 * 2**20


@dataclass
class Disk:
    """``fill`` uses up the space for the server's data, ``empty`` frees it."""

    server: Server
    fill: Callable[[], object]
    empty: Callable[[], object]


@pytest.fixture(params=[pytest.param("a small disk", marks=pytest.mark.slow), "a quota"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer) -> Iterator[Disk]:
    with contextlib.ExitStack() as stack:
        if request.param == "a small disk":
            place = stack.enter_context(small_disk(tmp_path / "disk", SIZE))
            server = stack.enter_context(servers.running("embedded", tmp_path, model.url, environment=settings(place)))
            filler = place / "filler"
            yield Disk(server, lambda: fill(filler), filler.unlink)
        else:
            server = stack.enter_context(servers.running("embedded", tmp_path, model.url, environment=settings(tmp_path / "var")))
            pid = server.webs[0].popen.pid
            yield Disk(
                server,
                # No file may grow beyond the current size of the write-ahead log.
                lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, (smallest(tmp_path / "var"), resource.RLIM_INFINITY)),
                lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
            )


def settings(var: Path) -> dict[str, str]:
    return {"AGENTHOST_VAR_DIR": str(var), "AGENTHOST_LEASE_SECONDS": "5", "AGENTHOST_RENEW_SECONDS": "0.5"}


def smallest(var: Path) -> int:
    return min(path.stat().st_size for path in var.glob("*.sqlite3*") if not path.name.endswith("-shm")) // 4096 * 4096


def fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65536)
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0")


@pytest.mark.rule("A6", "A40", "A78")
def test_a_full_disk_refuses_writes_keeps_data_and_recovers(disk: Disk, model: ModelServer) -> None:
    server = disk.server
    alice = server.alice
    session, other = alice.create(), alice.create()
    # Enough data that the write-ahead log is larger than one request needs.
    for _ in range(3):
        assert alice.turn(other, "x" * 2000).stop == "end_turn"
    prompt = model.script([steps.text("before "), steps.gate("full"), steps.text("after")])
    with contextlib.suppress(httpx.TransportError), alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        model.wait_gate("full")
        disk.fill()
        try:
            refused = 0
            until = time.monotonic() + 120
            while refused < 3:
                # Only the status is read, because an accepted turn may have to wait for space.
                with alice.http.stream("POST", f"/sessions/{other}/turns", json=turn_body("y" * 20_000)) as response:
                    if response.status_code != 200:
                        response.read()
                if response.status_code == 200:
                    # The write-ahead log still had space for this one.
                    assert time.monotonic() < until
                    continue
                if response.status_code != 409:
                    assert response.status_code == 503, response.text
                    check_problem(response)
                    assert int(response.headers["Retry-After"]) > 0
                    refused += 1
            created = alice.http.post("/sessions", json={"agent": {"name": "echo"}, "messages": [user("z" * 50_000)]})
            assert created.status_code == 503
            # Reading still works.
            acceptable(alice.history(other))
            assert alice.history(session)[0] == user(prompt)
            model.open_gate("full")
        finally:
            disk.empty()
        events = [*stream.seen, *stream.rest()]
    assert server.webs[0].alive
    with alice.join(session, after=stream.seen[0].id) as joined:
        events = [stream.seen[0], *joined.rest()]
    sse.check_turn(events)
    assert events[-1].data["stopReason"] in ("end_turn", "error")
    said = sse.rebuilt(events)
    assert alice.history(session) == [user(prompt), *said]
    assert said[0]["content"] in ("before ", "before after")
    assert not [line for line in alice.history(other) if line["content"] == "z" * 50_000]
    for each in (session, other):
        until = time.monotonic() + 120
        while (response := alice.post(f"/sessions/{each}/turns", turn_body("room again"))).status_code != 200:
            # A turn that was accepted at the last moment may still be running.
            assert response.status_code in (409, 503)
            assert time.monotonic() < until
        assert response.json()["messages"] == [{"role": "assistant", "content": "echo: room again"}]
        acceptable(alice.history(each))
    assert "malformed" not in server.log_text()
