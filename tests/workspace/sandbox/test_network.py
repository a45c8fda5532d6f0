"""The network of a box: nothing, or a proxy on its loopback, whatever its programs try."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from agents_app.outbound.addresses import Address
from agents_app.outbound.policy import Allowance, Policy
from agents_app.outbound.proxy.reach import Reach
from agents_app.outbound.proxy.server import Connection, Limits, Proxy, Shared
from sessions_app.workspace import outlet, process
from sessions_app.workspace.outlet import PORT, NoOutlet
from sessions_app.workspace.process import Finished, run_piped
from sessions_app.workspace.sandbox import Box, NoDirectory, NoSandbox
from tests.network.agents_app.outbound.site import Site, answer, redirect, running
from tests.workspace.sandbox.conftest import Run, box_in

pytestmark = pytest.mark.sandbox

# What pip, curl and the like do, without one of them: urllib reads the variables of the proxy.
GET = """
import sys, urllib.request, urllib.error
for url in sys.argv[1:]:
    try:
        with urllib.request.urlopen(url, timeout=20) as got:
            print(got.status, got.read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.reason)
    except OSError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def python() -> str:
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip("programs in boxes need a Python in /usr; Debian, Ubuntu: apt-get install python3")
    return found


@asynccontextmanager
async def connected(
    box: Box, shared: Shared | None = None, owner: int = 1, *, limits: Limits | None = None
) -> AsyncIterator[tuple[Box, Site, list[Connection]]]:
    """The box with a proxy that reaches a site of this machine, under its address and as site.example."""
    shared = shared or Shared(64, 1e9)
    reports: list[Connection] = []

    async def look_up(name: str, _port: int) -> Sequence[Address]:
        known = {"site.example": "127.0.0.1", "inside.example": "10.0.0.1"}
        if name not in known:
            raise OSError(None, "no such name")
        return [ip_address(known[name])]

    async with running() as site:
        policy = Policy((Allowance.read(f"127.0.0.1:{site.port}"),))
        proxy = Proxy(Reach(policy, (), look_up), lambda: shared, owner, limits=limits, report=reports.append)
        yield replace(box, outlet=proxy), site, reports


async def got(box: Box, python: str, *urls: str) -> list[str]:
    finished = await run_piped(box, [python, "-I", "-c", GET, *urls], {})
    assert finished.exit_code == 0, finished
    return finished.output.decode().splitlines()


def test_a_program_reaches_an_allowed_host_by_the_variables_of_the_proxy(run: Run, box: Box, python: str) -> None:
    async def scenario() -> None:
        async with connected(box) as (inside, site, reports):
            site.pages["/simple/"] = answer("the package")
            site.pages["/moved"] = redirect("http://169.254.169.254/latest/")
            # Whose own address programs would not take to the proxy.
            urls = [site.url("/simple/", "site.example"), site.url("/simple/?again", "site.example")]
            urls.append(site.url("/moved", "site.example"))
            lines = await got(
                inside, python, *urls, "http://169.254.169.254/latest/", "http://inside.example/", "https://10.0.0.1/"
            )
            assert lines[:2] == ["200 the package", "200 the package"]
            public = "the host is unknown, or has an address that is not public (AGENTHOST_SANDBOX_NETWORK_ALLOW)"
            assert lines[2:5] == [f"403 Forbidden: {public}"] * 3
            assert "Tunnel connection failed: 403 Forbidden" in lines[5]
            # A report is made when its connection has ended, so they may change places.
            assert sorted(report.refused for report in reports) == ["", "", "", public, public, public, public]

    run(scenario())


ESCAPES = f"""
import socket
def refused(family, kind, where):
    with socket.socket(family, kind) as tried:
        tried.settimeout(3)
        try:
            tried.connect(where)
            tried.send(b"x")
        except OSError as error:
            print("refused")
        else:
            print("REACHED", where)
refused(socket.AF_INET, socket.SOCK_STREAM, ("10.0.0.1", int("SITE")))
refused(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int("SITE")))
refused(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))
refused(socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53))
refused(socket.AF_INET6, socket.SOCK_STREAM, ("2001:4860:4860::8888", 443))
try:
    socket.create_server(("127.0.0.1", {PORT}), reuse_port=True)
    print("TAKEN")
except OSError:
    print("refused")
try:
    print("RESOLVED", socket.getaddrinfo("site.example", 80))
except OSError:
    print("refused")
"""


def test_nothing_but_the_proxy_has_a_way_out(run: Run, box: Box, python: str) -> None:
    async def scenario() -> None:
        async with connected(box) as (inside, site, _):
            program = ESCAPES.replace("SITE", str(site.port))
            finished = await run_piped(inside, [python, "-I", "-c", program], {})
            assert finished.output.decode().split() == ["refused"] * 7, finished
            assert site.connections == 0

    run(scenario())


FLOOD = f"""
import socket, time
held = []
for _ in range(300):
    one = socket.socket()
    one.settimeout(2)
    try:
        one.connect(("127.0.0.1", {PORT}))
    except OSError:
        one.close()
    else:
        held.append(one)
print(len(held), flush=True)
time.sleep(1000)
"""


def test_a_flood_of_connections_leaves_the_network_to_another_tenant(tmp_path: Path, python: str) -> None:
    async def scenario() -> None:
        shared = Shared(16, 1e9)
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        flooding, other = box_in(tmp_path / "one"), box_in(tmp_path / "two")
        async with connected(flooding, shared, 1) as (first, _, _), connected(other, shared, 2) as (second, site, _):
            flood = await process.start_piped(first, [python, "-I", "-c", FLOOD], {})
            try:
                while shared.slots.busy < 8:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                assert await got(second, python, *[site.url("/", "site.example")] * 5) == ["200 canary"] * 5
                assert shared.slots._shares.held(1) <= 8
            finally:
                await flood.close()
            # Its slots are free when its box has ended.
            while shared.slots.busy:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_box_that_ends_while_its_outlet_is_made_leaves_no_proxy(
    tmp_path: Path, python: str, made: list[process.BoxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners, listener_in = list[socket.socket](), outlet.listener_in

    async def late(init: int, owner: tuple[int, int] | None) -> socket.socket:
        listeners.append(await listener_in(init, owner))
        await made[-1].close()
        return listeners[-1]

    monkeypatch.setattr(process, "listener_in", late)

    async def scenario() -> None:
        async with connected(box_in(tmp_path)) as (box, _, _):
            with pytest.raises(NoSandbox):
                await run_piped(box, [python, "-c", "pass"], {})
            assert [each.fileno() for each in listeners] == [-1]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_box_without_an_outlet_has_no_variables_of_a_proxy_and_nothing_listens(run: Run, box: Box) -> None:
    async def scenario() -> None:
        program = f"env | grep -ic proxy; (exec 3<>/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null && echo open; exit 0"
        assert (await run_piped(box, ["/bin/bash", "-c", program], {})).output == b"0\n"

    run(scenario())


def test_a_box_whose_network_cannot_be_connected_is_not_started(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_init: int, _owner: object) -> socket.socket:
        raise NoOutlet("its network could not be connected: a reason")

    monkeypatch.setattr(process, "listener_in", refused)

    async def scenario() -> Finished:
        async with connected(box) as (inside, _, _):
            return await run_piped(inside, ["/bin/sh", "-c", "echo ran > ran"], {})

    with pytest.raises(NoSandbox, match="a sandbox could not be started: its network could not be connected: a reason"):
        asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_missing_directory_is_the_reason_with_an_outlet_too(run: Run, box: Box) -> None:
    async def scenario() -> None:
        async with connected(replace(box, cwd="/projects/one/gone")) as (inside, _, _):
            with pytest.raises(NoDirectory):
                await run_piped(inside, ["/bin/sh", "-c", "true"], {})

    run(scenario())


def test_the_helper_explains_why_a_namespace_cannot_be_joined() -> None:
    async def scenario() -> None:
        with pytest.raises(NoOutlet, match=r"its network could not be connected: .*No such file"):
            await outlet.listener_in(2**22 + 1, None)

    asyncio.run(asyncio.wait_for(scenario(), 60))
