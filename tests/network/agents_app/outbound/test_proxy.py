"""The proxy of sandboxes, used over real sockets: what it passes on, what it refuses, and its limits."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address

import pytest

from agents_app.outbound.addresses import Address
from agents_app.outbound.policy import Allowance, Policy
from agents_app.outbound.proxy import server
from agents_app.outbound.proxy.reach import HostList, Reach, host_list
from agents_app.outbound.proxy.server import Connection, Limits, Proxy, Shared
from tests.network.agents_app.outbound.site import Handler, Site, running

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Served: yes\r\nConnection: keep-alive\r\n\r\nhello"


@dataclass
class Setting:
    """A proxy in front of a site, and what it reported."""

    site: Site
    port: int
    proxy: Proxy
    shared: Shared
    reports: list[Connection]

    async def ask(self, request: bytes) -> bytes:
        """The whole answer to one request."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer

    async def get(self, host: str, headers: bytes = b"") -> bytes:
        return await self.ask(b"GET http://%b/path?a=1 HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (host.encode(), host.encode(), headers))

    async def connect(self, authority: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        writer.close()
        return head


@asynccontextmanager
async def setting(
    *,
    answer: bytes | Handler = HELLO,
    names: dict[str, Sequence[str]] | None = None,
    lists: tuple[HostList, ...] = (),
    limits: Limits | None = None,
    shared: Shared | None = None,
    owner: int = 1,
) -> AsyncIterator[Setting]:
    """A site on loopback, which the policy opens by its port, and a proxy. ``names``: what names resolve to, in turn."""
    turns = {name: list(addresses) for name, addresses in (names or {}).items()}

    async def look_up(name: str, _port: int) -> Sequence[Address]:
        if name not in turns:
            raise OSError(None, "no such name")
        known = turns[name]
        return [ip_address(known.pop(0) if len(known) > 1 else known[0])]

    async with running() as site:
        site.pages["/path"] = answer
        policy = Policy((Allowance.read(f"127.0.0.1:{site.port}"),))
        shared = shared or Shared(64, 1e9)
        reports: list[Connection] = []
        proxy = Proxy(Reach(policy, lists, look_up), lambda: shared, owner, limits=limits, report=reports.append)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(0)
        proxy.open(listener)
        assert proxy._accepting is not None
        try:
            yield Setting(site, listener.getsockname()[1], proxy, shared, reports)
        finally:
            proxy.close()
            await asyncio.wait([proxy._accepting, *proxy._open])


async def test_a_request_reaches_the_host_without_what_is_the_proxys() -> None:
    async with setting() as here:
        host = f"127.0.0.1:{here.site.port}"
        answer = await here.get(host, b"Proxy-Authorization: Basic c2VjcmV0\r\nX-Own: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\nhello")
        assert b"connection: close" in answer.lower()
        assert b"keep-alive" not in answer
        (head,) = here.site.heads
        assert head.startswith("GET /path?a=1 HTTP/1.1\r\n")
        lines = head.lower().split("\r\n")
        assert lines.count(f"host: {host}") == 1
        assert "x-own: 1" in lines
        assert "connection: close" in lines
        assert "proxy" not in head.lower()
        assert "x-hop" not in head.lower()
    (report,) = here.reports
    assert report.target is not None
    assert (report.target.name, report.target.port, report.refused) == ("127.0.0.1", here.site.port, "")
    assert report.sent > 40
    assert report.received > 40


async def test_a_body_in_chunks_reaches_the_host_and_so_does_an_answer_until_the_end() -> None:
    got: list[bytes] = []

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(b"HTTP/1.0 201 Made\r\n\r\nall of this")

    async with setting(answer=page) as here:
        host = f"127.0.0.1:{here.site.port}".encode()
        body = b"5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n"
        answer = await here.ask(
            b"POST http://%b/path HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\n%b" % (host, host, body)
        )
        assert answer.startswith(b"HTTP/1.1 201 Made\r\n")
        assert b"all of this" in answer
        assert got == [body]


async def test_a_second_request_in_a_connection_goes_nowhere() -> None:
    async with setting() as here:
        host = f"127.0.0.1:{here.site.port}".encode()
        one = b"GET http://%b/path?one HTTP/1.1\r\nHost: %b\r\n\r\n" % (host, host)
        assert (await here.ask(one + one.replace(b"?one", b"?two"))).count(b"HTTP/1.1 200") == 1
        assert here.site.connections == 1
        assert [head.split()[1] for head in here.site.heads] == ["/path?one"]


async def test_a_tunnel_passes_on_bytes_both_ways_and_the_end_of_one_side() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])

    async with setting(answer=echo) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        # What is sent before the answer counts too.
        writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.0\r\n\r\nGET /path HTTP/1.1\r\n\r\nabc" % here.site.port)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(bytes(500_000) + b"z")
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 20) == b"z" + bytes(500_000) + b"cba"
        writer.close()


REFUSED = [
    ("169.254.169.254", "the host is unknown, or has an address that is not public"),
    ("127.0.0.1", "the host is unknown, or has an address that is not public"),
    ("[::1]", "the host is unknown, or has an address that is not public"),
    ("[::ffff:169.254.169.254]", "the host is unknown, or has an address that is not public"),
    ("10.1.2.3", "the host is unknown, or has an address that is not public"),
    ("metadata.google.internal", "the host is unknown, or has an address that is not public"),
    ("nothing.example", "the host is unknown, or has an address that is not public"),
    ("inside.example", "the host is unknown, or has an address that is not public"),
    ("0x7f.1", "number"),
    ("user@inside.example", "user name"),
    ("inside.example:22", "port 22 may not be used, only 80, 443 (AGENTHOST_SANDBOX_NETWORK_PORTS)"),
]


@pytest.mark.parametrize(("host", "reason"), REFUSED, ids=[host for host, _ in REFUSED])
async def test_what_the_guard_refuses_is_answered_with_the_reason(host: str, reason: str) -> None:
    async with setting(names={"inside.example": ["192.168.0.1"]}) as here:
        status, _, rest = (await here.get(host)).partition(b"\r\n")
        assert reason.encode() in status
        assert status.split()[1] in (b"400", b"403")
        assert rest.endswith(b"\n")
        assert reason.encode() in rest
        assert here.site.connections == 0


@pytest.mark.parametrize("authority", ["169.254.169.254:80", "localhost:443", "inside.example:443", "public.example:22"])
async def test_a_tunnel_is_refused_like_a_request(authority: str) -> None:
    async with setting(names={"inside.example": ["10.0.0.1"], "public.example": ["93.184.216.34"]}) as here:
        assert (await here.connect(authority)).startswith(b"HTTP/1.1 403 Forbidden: ")
        assert [report.refused for report in here.reports] != [""]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET https://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a.example HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a.example:443/x HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a.example:99999 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request_for_a_proxy_is_answered_with_400(request_: bytes) -> None:
    async with setting() as here:
        assert (await here.ask(request_)).startswith(b"HTTP/1.1 400 Bad Request: ")


async def test_a_name_that_changes_its_address_is_looked_up_once_and_connected_to_where_it_was_checked() -> None:
    """DNS rebinding: the second answer would be a private address."""
    async with setting(names={"turns.example": ["127.0.0.1", "10.0.0.1"]}) as here:
        assert (await here.get(f"turns.example:{here.site.port}")).startswith(b"HTTP/1.1 200")
        # The next request is checked anew.
        assert (await here.get(f"turns.example:{here.site.port}")).startswith(b"HTTP/1.1 403")
        assert here.site.connections == 1


async def test_a_redirect_into_the_network_is_the_programs_to_follow_and_is_refused_then() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n"
    async with setting(answer=moved) as here:
        assert b"302 Found" in await here.get(f"127.0.0.1:{here.site.port}")
        assert (await here.get("169.254.169.254")).startswith(b"HTTP/1.1 403")


async def test_only_listed_hosts_are_reached_and_a_listed_port_is_opened() -> None:
    here_only = host_list(["127.0.0.1", "*.fine.example:8443"], "workspace.network")
    async with setting(names={"a.fine.example": ["10.0.0.1"], "other.example": ["93.184.216.34"]}, lists=(here_only,)) as here:
        assert (await here.get(f"127.0.0.1:{here.site.port}")).startswith(b"HTTP/1.1 200")
        other = await here.connect("other.example:443")
        assert b"the host is not in the list of hosts that this sandbox may reach (workspace.network)" in other
        # Opened by the list, and then refused by the guard.
        assert b"has an address that is not public" in await here.connect("a.fine.example:8443")
        assert b"port 443 of this host may not be used, only 8443" in await here.connect("a.fine.example:443")


async def test_a_host_that_does_not_answer_with_http_is_a_bad_gateway() -> None:
    async with setting(answer=b"SSH-2.0-OpenSSH_9\r\n\r\n") as here:
        assert (await here.get(f"127.0.0.1:{here.site.port}")).startswith(
            b"HTTP/1.1 502 Bad Gateway: the host's answer is not HTTP"
        )


async def test_connections_beyond_a_sandboxs_share_wait_and_then_get_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SLOT_SECONDS", 0.3)
    async with setting(limits=Limits(connections=2)) as here:
        held = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(2)]
        while len(here.proxy._open) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        refused = await here.get(f"127.0.0.1:{here.site.port}")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"this sandbox may have 2" in refused
        for _, writer in held:
            writer.close()
        monkeypatch.setattr(server, "SLOT_SECONDS", 30.0)
        assert (await here.get(f"127.0.0.1:{here.site.port}")).startswith(b"HTTP/1.1 200")


async def test_a_flood_of_one_tenant_leaves_connections_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SLOT_SECONDS", 0.3)
    shared = Shared(8, 1e9)
    async with setting(shared=shared, owner=1) as flooding, setting(shared=shared, owner=2) as other:
        held = [await asyncio.open_connection("127.0.0.1", flooding.port) for _ in range(40)]
        while shared.slots.busy < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for _ in range(5):
            assert (await other.get(f"127.0.0.1:{other.site.port}")).startswith(b"HTTP/1.1 200")
        assert shared.slots.busy <= 4
        for _, writer in held:
            writer.close()


async def test_a_sandbox_sends_and_receives_no_more_than_its_bytes() -> None:
    async with setting(limits=Limits(bytes=300)) as here:
        host = f"127.0.0.1:{here.site.port}"
        assert (await here.get(host)).startswith(b"HTTP/1.1 200")
        while not (answer := await here.get(host)).startswith(b"HTTP/1.1 403"):
            pass
        assert b"which is the limit (AGENTHOST_SANDBOX_NETWORK_BYTES)" in answer


async def test_an_idle_connection_is_closed() -> None:
    async with setting(limits=replace(Limits(), idle_seconds=0.2)) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.0\r\n\r\n" % here.site.port)
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_closing_the_proxy_cuts_its_connections_and_gives_back_their_slots() -> None:
    async with setting() as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.0\r\n\r\n" % here.site.port)
        await reader.readuntil(b"\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    while here.shared.slots.busy:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", here.port)


@pytest.mark.parametrize("steps", range(12))
async def test_a_proxy_closed_at_any_moment_gives_back_every_slot(steps: int) -> None:
    """Also that of a connection which was accepted in the same step of the loop."""
    shared = Shared(8, 1e9)
    async with setting(shared=shared) as here:
        programs = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(6)]
        for program in programs:
            program.close()
        for _ in range(steps):
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while shared.slots.busy:  # noqa: ASYNC110
            await asyncio.sleep(0)
